// Two convolutions over positions and what surrounds them, on compute capability 9.0, in half precision and
// channels last: y = x + second(act(first(act(x)))).
//
//   x         positions of a tile with the halos of both, all channels, activated on their way
//   middle    what the first makes of them, activated and rounded: the second's operand
//   staging   x as it came, of the tile's outputs: where their sums begin, and where outputs are put together
//   weights   a ring of taps, or all of them
//
// Rows of an operand are positions, from any one on, so taps are other addresses of the same rows; its
// columns are channels, so that both activations stay in a thread's registers. Of the 64 positions of a
// consumer the first convolution has all, the second all but its halo. Where a tile has several parts, blocks
// of a cluster compute so many-th of the channels of both, and send each other what they have of the middle.
//
// Outside of the tensor the middle is zero, whatever the first would make of zeros. Padding multiplies:
// weights that are not finite would make NaN of its zeros. A flag tells of them, and what has padding among
// its inputs is then computed one by one.
#include "cuda/pairs/pair_exact.cuh"
#include "cuda/ptx/cluster_send.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/wgmma_half_shared.cuh"
#include "cuda/tile/tf32.cuh"

namespace convtune::pair_sm90 {

// Adds a convolution's products: `rows` describes the consumer's first row of the first tap; the next tap is
// so many bytes on, and the next chunk of channels, too.
template <PairSm90 config, bool kSecond>
__device__ __forceinline__ void multiply(Sums<config>& sums, Ring<config.stages>& ring,
                                         const Tile<config>& tile, unsigned first_row, int tap_bytes,
                                         int matrix_bytes) {
  constexpr auto kAt = config.smem();
  constexpr bool kBf16 = config.type == ElementType::bf16;
  constexpr int kSixteens = config.chunk() / 16;
  using Product = ptx::WgmmaHalfShared<kBf16, config.filters()>;
  const unsigned long long rows = ptx::wgmma_descriptor_exchanged<config.row_bytes()>(first_row / 16);
  const unsigned long long filters =
      ptx::wgmma_descriptor_exchanged<config.row_bytes()>((tile.smem + kAt.weights) / 16);
  const bool releases = tile.lane() == 0;
  unsigned empty = 0;
  bool first = true;
#pragma unroll 1
  for (int tap = 0; tap < (kSecond ? config.second_taps : config.first_taps); ++tap)
#pragma unroll 1
    for (int part = 0; part < config.tap_steps(); ++part) {
      ring.wait_full(tile.smem + kAt.full);
      const unsigned long long a = rows + (tap * tap_bytes + part * config.step_chunks() * matrix_bytes) / 16;
      const unsigned long long b = filters + ring.slot * (config.stage_bytes() / 16);
      ptx::wgmma_fence();
      for_constants<0, config.step_chunks()>([&](auto chunk) {
        const unsigned long long chunk_a = a + chunk.value * matrix_bytes / 16;
        constexpr int kChunk = chunk.value * config.chunk_bytes() / 16;
        if constexpr (kSixteens == 4)
          Product::template multiply_four<2>(sums, chunk_a, b + kChunk, true);
        else
          for_constants<0, kSixteens>([&](auto k) {
            Product::multiply(sums, chunk_a + 2 * k.value, b + kChunk + 2 * k.value, true);
          });
      });
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if constexpr (!config.weights_stay()) ptx::mbarrier_arrive_if(empty, releases && !first);
      first = false;
      empty = ring.barrier(tile.smem + kAt.empty);
      ring.next();
    }
  ptx::wgmma_wait<0>();
  if constexpr (!config.weights_stay()) ptx::mbarrier_arrive_if(empty, releases);
}

// Puts a warp's sums into rows of channels, as halves(j, i) has them: of columns 8j on, of rows 8i on.
template <PairSm90 config, class Halves>
__device__ __forceinline__ void put_rows(const Tile<config>& tile, unsigned to, int first_piece,
                                         int matrix_bytes, const Halves& halves) {
  const int row = tile.first_row() + tile.lane() % 16, odd = tile.lane() / 16;
#pragma unroll
  for (int j = 0; j < config.filters() / 8; j += 2) {
    const unsigned words[4] = {halves(j, 0), halves(j, 1), halves(j + 1, 0), halves(j + 1, 1)};
    ptx::stmatrix_x4(to + place_of<config>(row, first_piece + j + odd, matrix_bytes), words);
  }
}

template <PairSm90 config>
__device__ __forceinline__ void begin_sums(Sums<config>& sums, const Tile<config>& tile, int second) {
  const unsigned biases =
      tile.smem + config.smem().numbers + 4 * (second * config.filters() + 2 * (tile.lane() % 4));
#pragma unroll
  for (int j = 0; j < config.filters() / 8; ++j) {
    float low, high;
    ptx::ld_shared_v2(low, high, biases + 32 * j);
    sums[4 * j] = sums[4 * j + 2] = low, sums[4 * j + 1] = sums[4 * j + 3] = high;
  }
}
// Adds x as it came to where the second convolution's sums begin.
template <PairSm90 config>
__device__ __forceinline__ void add_x(Sums<config>& sums, const Tile<config>& tile) {
  const int row = tile.first_row() + tile.lane() / 4;
#pragma unroll
  for (int j = 0; j < config.filters() / 8; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned x = ptx::ld_shared_if(tile.smem + config.smem().staging +
                                               place_of<config>(row + 8 * i, j, config.staging_bytes()) +
                                               4 * (tile.lane() % 4),
                                           row + 8 * i < config.outputs());
      sums[4 * j + 2 * i] += low_half<config.type>(x), sums[4 * j + 2 * i + 1] += high_half<config.type>(x);
    }
}

// A consumer's rows of the middle for the blocks of the other parts: a thread of its first warp for each of
// them and each of this block's chunks.
template <PairSm90 config>
__device__ __forceinline__ void send_middle(const Tile<config>& tile) {
  constexpr auto kAt = config.smem();
  constexpr int kBytes = 64 * config.row_bytes(), kCopies = (config.parts - 1) * config.own_chunks();
  if (tile.warp % 4 != 0) return;
#pragma unroll
  for (int i = tile.lane(); i < round_up(kCopies, 32); i += 32) {
    const int other = i / config.own_chunks() % config.parts;
    const unsigned rank = other + (other >= tile.part);
    const unsigned from = tile.smem + kAt.middle + tile.consumer() * kBytes +
                          (tile.part * config.own_chunks() + i % config.own_chunks()) * config.middle_bytes();
    ptx::bulk_copy_there_if(ptx::mapa(from, rank), from, kBytes, ptx::mapa(tile.smem + kAt.middle_full, rank),
                            i < kCopies);
  }
}

// The first convolution's sums become the middle, this block's part in every block; the second's begin.
template <PairSm90 config>
__device__ __forceinline__ void share_middle(const Run& run, const Tile<config>& tile, Sums<config>& sums,
                                             bool finite) {
  constexpr auto kAt = config.smem();
  const int row = tile.first_row() + tile.lane() / 4, position = tile.first - config.second_pad() + row;
  const auto halves = [&](int j, int i) -> unsigned {
    const bool inside = position + 8 * i >= 0 && position + 8 * i < run.positions;
    const SnakePair two = snake_pair<config, true>(tile, 8 * j + 2 * (tile.lane() % 4));
    const unsigned both = activated<config>(run, two, sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
    return inside ? both : 0;
  };
  put_rows(tile, tile.smem + kAt.middle, tile.first_filter() / 8, config.middle_bytes(), halves);
  begin_sums<config>(sums, tile, 1);
  add_x(sums, tile);
  if (!finite) {
    wait_for_consumers<config>();
    repair_middle(run, tile);
  }
  ptx::fence_proxy_async();
  wait_for_consumers<config>();
  if constexpr (config.parts > 1) {
    ptx::cluster_wait();  // all have begun
    send_middle(tile);
    ptx::mbarrier_wait(tile.smem + kAt.middle_full, 0);
    ptx::cluster_arrive_relaxed();
  }
}

// y, which the consumers have put together, by all that loaded x: a Snake behind it is as much work as a
// third of the products.
template <PairSm90 config>
__device__ __forceinline__ void store_rows(const Run& run, const Tile<config>& tile) {
  constexpr int kPieces = config.filters() / 8;
#pragma unroll
  for (int i = 0; i < ceil_div(config.positions() * kPieces, config.loading_threads()); ++i) {
    const int at = tile.thread + config.loading_threads() * i, row = at / kPieces, piece = at % kPieces;
    if (row >= config.outputs()) break;
    const int position = tile.first + row;
    unsigned words[4];
    ptx::ld_shared_v4(
        words, tile.smem + config.smem().staging + place_of<config>(row, piece, config.staging_bytes()));
    unsigned short* y = run.y + (1LL * tile.image * run.positions + position) * config.channels +
                        tile.first_filter() + 8 * piece;
    const bool is_real = position < run.positions;
    if constexpr (config.snake != 1) ptx::st_global_v4_if(y, words, is_real);
    if constexpr (config.snake > 0) {
      if constexpr (config.snake == 2) y += 1LL * gridDim.y * run.positions * config.channels;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float alpha[2], scale[2];
        const unsigned numbers =
            tile.smem + config.smem().numbers + 4 * (config.behind_at() + 8 * piece + 2 * j);
        ptx::ld_shared_v2(alpha[0], alpha[1], numbers);
        ptx::ld_shared_v2(scale[0], scale[1], numbers + 4 * config.filters());
        words[j] = pack_halves<config.type>(snake(low_half<config.type>(words[j]), alpha[0], scale[0]),
                                            snake(high_half<config.type>(words[j]), alpha[1], scale[1]));
      }
      ptx::st_global_v4_if(y, words, is_real);
    }
  }
}

// The tensors that consumers multiply first, activated by them and others.
template <PairSm90 config>
__device__ __forceinline__ void load(Run& run, const Tile<config>& tile) {
  load_numbers(run, tile);
  ptx::wait_for_earlier_grids(run.x);
  if constexpr (config.activated > 0) {
    copy_x(run, tile);
  } else {
    if constexpr (config.activation == PairSm90Activation::snake) wait_for_loaders<config>();
    load_x(run, tile);
  }
  ptx::fence_proxy_async();
  wait_for_loaders<config>();
}

template <PairSm90 config>
__device__ __forceinline__ void consume(const Run& run, const Tile<config>& tile, bool finite) {
  constexpr auto kAt = config.smem();
  Sums<config> sums;
  Ring<config.stages> ring;
  const int first_row = 64 * tile.consumer() * config.row_bytes();
  begin_sums<config>(sums, tile, 0);
  multiply<config, false>(sums, ring, tile, tile.smem + kAt.x + first_row, run.dilation * config.row_bytes(),
                          config.x_bytes(run.dilation));
  share_middle(run, tile, sums, finite);
  multiply<config, true>(sums, ring, tile, tile.smem + kAt.middle + first_row, config.row_bytes(),
                         config.middle_bytes());
  __syncwarp();  // all have read what was staged
  put_rows(tile, tile.smem + kAt.staging, 0, config.staging_bytes(), [&](int j, int i) -> unsigned {
    return pack_halves<config.type>(sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
  });
  if (!finite) {
    __syncwarp();
    repair_outputs(run, tile);
  }
}

// Blocks of a cluster have the parts of one tile. Weights do not wait for earlier grids, as nobody has
// written them since: pair_executable.cpp says how that is so.
template <PairSm90 config>
__global__ void __cluster_dims__(config.parts, 1, 1) __launch_bounds__(config.threads(), 1)
    pair_sm90(const void* __restrict__ x, const unsigned* __restrict__ packed, void* __restrict__ y,
              int positions, int dilation, float slope) {
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr auto kAt = config.smem();
  const unsigned smem = ptx::shared_address(memory);
  const int block = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) {
    Ring<config.stages>::init(smem + kAt.full, 1, smem + kAt.empty, 4 * config.consumers);
    ptx::mbarrier_init(smem + kAt.middle_full, 1);
    ptx::fence_mbarrier_init();
    if constexpr (config.parts > 1) ptx::mbarrier_arrive_expect(smem + kAt.middle_full, config.sent_bytes());
  }
  __syncthreads();
  if constexpr (config.parts > 1) ptx::cluster_arrive_relaxed();
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
  Run run = {static_cast<const unsigned short*>(x),
             packed,
             static_cast<unsigned short*>(y),
             positions,
             dilation,
             slope};
  const auto leave_to_consumers = [] {
    if constexpr (config.parts > 1) ptx::cluster_wait(), ptx::cluster_arrive_relaxed();
  };
  if (warp == config.loading_threads() / 32) {
    load_weights<config>(run, smem, block % config.parts, [&] {
      ptx::wait_for_earlier_grids();
      leave_to_consumers();
    });
  } else {
    const Tile<config> tile = {block % config.parts,          block / config.parts * config.outputs(),
                               static_cast<int>(blockIdx.y),  warp,
                               static_cast<int>(threadIdx.x), smem};
    const bool finite = packed[config.packed().flag_at()] == 0;
    load(run, tile);
    if (warp < 4 * config.consumers)
      consume(run, tile, finite);
    else
      leave_to_consumers();
    wait_for_loaders<config>();
    store_rows(run, tile);
  }
  if constexpr (config.parts > 1) ptx::cluster_wait();  // nobody reads this block's middle any more
}

// The arguments of packing, as convtune/pair.h has them.
struct Weights {
  const unsigned short *first, *first_bias, *second, *second_bias;
  const float *first_alpha, *first_scale, *second_alpha, *second_scale, *behind_alpha, *behind_scale;
};

// The packed weights, 16 bytes of them or a word behind them a thread. The flag must be 0 before.
template <PairSm90 config>
__global__ void __launch_bounds__(256) pack_pair_sm90(const Weights from, unsigned* __restrict__ packed) {
  constexpr PackedPair kAt = config.packed();
  constexpr int kChannels = config.channels;
  const long long thread = 256LL * blockIdx.x + threadIdx.x;
  if (thread >= kAt.threads()) return;
  if (thread >= kAt.weights / 4) {
    const int word = static_cast<int>(thread - kAt.weights / 4), which = word / kChannels;
    const int channel = word % kChannels;
    if (which < 2) {
      const unsigned short* const bias = which == 0 ? from.first_bias : from.second_bias;
      packed[kAt.weights + word] = bias ? __float_as_uint(load_element<config.type>(bias, channel)) : 0;
    } else {
      const float* const numbers = which == 2   ? from.first_alpha
                                   : which == 3 ? from.first_scale
                                   : which == 4 ? from.second_alpha
                                   : which == 5 ? from.second_scale
                                   : which == 6 ? from.behind_alpha
                                                : from.behind_scale;
      packed[kAt.weights + word] = __float_as_uint(numbers[channel]);
    }
    return;
  }
  const PairSm90::Weights at = config.weights_of(thread);
  const int taps = at.second ? config.second_taps : config.first_taps;
  const unsigned short* const w =
      (at.second ? from.second : from.first) + (1LL * at.filter * kChannels + at.channel) * taps + at.tap;
  unsigned halves[8], words[4];
  bool finite = true;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    halves[i] = w[i * taps];
    finite &= is_finite(__float_as_uint(low_half<config.type>(halves[i])));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = halves[2 * i] | halves[2 * i + 1] << 16;
  reinterpret_cast<uint4*>(packed)[thread] = {words[0], words[1], words[2], words[3]};
  if (!finite) packed[kAt.flag_at()] = 1;
}

}  // namespace convtune::pair_sm90
