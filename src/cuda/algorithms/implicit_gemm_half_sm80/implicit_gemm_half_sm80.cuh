// Convolution in half precision for tensor cores of compute capability 8.0 and up, channels last: a product
// of the pixels of y (rows) with the filters (columns), whose sums go over the taps of a window and for each
// over the channels.
//
//   x                 cp.async, 16 bytes of a pixel's channels --> stage  [rows pixels][channels], by
//   ldmatrix packed weights    cp.async, in a row                       --> stage  as threads have them in
//   products warp              warp_rows pixels x warp_filters filters, in registers
//
// With a window x comes once for a chunk of channels, with all that the taps of the tile reach, and a tap is
// rows of it that begin some positions further on: less to copy, and some outputs that are none.
//
// All warps of a block load and multiply: while a stage is multiplied, those behind it are on their way, and
// the operands of the next product are read while this one is computed. A block goes from tile to tile, and
// what it copies runs ahead: it is under way while the tile before is stored. Several blocks share a
// multiprocessor, and one multiplies while another stores.
//
// Weights are packed so that a thread's sums are of 8 filters in a row, which it stores as they are.
//
// `split` blocks share the sums of a tile, for layers of too few tiles: each takes some of the steps and
// leaves its sums in memory, from where add_up_implicit_gemm_half_sm80 adds them in the order of their ranks.
//
// Padding multiplies: weights that are not finite would make NaN of its zeros. A flag tells of them, and
// outputs are then computed one by one.
#include "cuda/algorithms/implicit_gemm_half_sm80/load.cuh"
#include "cuda/algorithms/implicit_gemm_half_sm80/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::implicit_gemm_half_sm80 {

// A warp's operands of a product of 16 terms.
template <ImplicitGemmHalfSm80 config>
struct Operands {
  unsigned pixels[config.tiles_m()][4], filters[config.tiles_n() / 2][4];

  // From where this lane reads of a step.
  struct Place {
    unsigned smem, row, pixels, filters, filters_of_first;
    int tap = -1;  // for the window, from `input` on
    unsigned input;

    __device__ __forceinline__ Place(unsigned memory, int warp_m, int warp_n) : smem(memory) {
      const unsigned lane = threadIdx.x % 32;
      row = warp_m * config.warp_rows() + lane % 16;
      input = smem + config.input_bytes();
      filters_of_first = smem + config.weights_at() + warp_n * (config.tiles_n() / 2 * 512) + 16 * lane;
    }
    // To the next step, whose stage is so far behind the first.
    __device__ __forceinline__ void next(unsigned slot_bytes) {
      filters = filters_of_first + slot_bytes;
      int there = static_cast<int>(row);
      if constexpr (config.window) {
        if (++tap == config.taps()) tap = 0;
        if (tap == 0) input = 2 * smem + config.input_bytes() - input;  // the other window
        there += config.tap_positions(tap);
      } else {
        input = smem + slot_bytes;
      }
      pixels = input + there * config.row_bytes() +
               16 * config.exchanged(there, static_cast<int>(threadIdx.x) % 32 / 16);
    }
  };
  template <int kProduct>
  __device__ __forceinline__ void read(const Place& place) {
    // Pieces are exchanged by bits that the number of the product does not reach beyond.
    const unsigned rows = place.pixels ^ (32 * kProduct);
#pragma unroll
    for (int m = 0; m < config.tiles_m(); ++m)
      ptx::ldmatrix_x4(pixels[m], rows + m * (16 * config.row_bytes()));
#pragma unroll
    for (int n = 0; n < config.tiles_n() / 2; ++n)
      ptx::ld_shared_v4(filters[n], place.filters + (kProduct * (config.filters / 16) + n) * 512);
  }
  __device__ __forceinline__ void multiply(Sums<config>& sums) const {
#pragma unroll
    for (int m = 0; m < config.tiles_m(); ++m)
#pragma unroll
      for (int n = 0; n < config.tiles_n(); ++n) {
        const unsigned(&four)[4] = filters[n / 2];
        const unsigned two[2] = {four[n % 2 * 2], four[n % 2 * 2 + 1]};
        if constexpr (config.conv.x_type == ElementType::bf16)
          ptx::mma_m16n8k16_bf16(sums[m][n], pixels[m], two);
        else
          ptx::mma_m16n8k16_f16(sums[m][n], pixels[m], two);
      }
  }
};

// A block's ring: what is copied runs ahead of what is multiplied, from tile to tile.
template <ImplicitGemmHalfSm80 config>
struct Pipeline {
  static constexpr int kStages = config.stages, kProducts = config.products();
  static constexpr unsigned kStage = config.stage_bytes(), kRing = kStages * kStage;
  Loader<config> loader;
  typename Operands<config>::Place place;
  Operands<config> operands[2];  // for the next product and of the one behind it
  unsigned slot = 0;             // of the step that is multiplied, in bytes behind the first

  __device__ __forceinline__ Pipeline(const Loader<config>& loads,
                                      const typename Operands<config>::Place& reads)
      : loader(loads), place(reads) {
#pragma unroll 1
    for (int stage = 0; stage < kStages - 1; ++stage) {
      loader.load(stage * kStage);
      ptx::cp_async_commit_group();
      loader.turn();
    }
    ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();
    place.next(0);
    operands[0].template read<0>(place);
  }
  // The products of so many steps.
  __device__ __forceinline__ void multiply(Sums<config>& sums, int steps) {
#pragma unroll 1
    while (steps > 0) {
      const int some = lesser(steps, loader.left());
      multiply_within(sums, some);
      loader.turn();
      steps -= some;
    }
  }

 private:
  // Counts steps whose loads are all of one tile.
  __device__ __forceinline__ void multiply_within(Sums<config>& sums, int steps) {
#pragma unroll 1
    for (int step = 0; step < steps; ++step)
      for_constants<0, kProducts>([&](auto k) {
        if constexpr (k.value == kProducts - 1) {
          ptx::cp_async_wait_group<kStages - 2>();
          __syncthreads();  // all have read this stage, and the next is there
          slot = slot + kStage == kRing ? 0 : slot + kStage;
          place.next(slot);
        }
        operands[(k.value + 1) % 2].template read<(k.value + 1) % kProducts>(place);
        operands[k.value % 2].multiply(sums);
        if constexpr (k.value == 0) {  // when fewer operands are held than before
          loader.load(slot == 0 ? kRing - kStage : slot - kStage);  // the slot multiplied before
          ptx::cp_async_commit_group();
        }
      });
  }
};

// Sums of a thread, four at a time, that blocks share: from where on they lie.
template <ImplicitGemmHalfSm80 config>
__device__ __forceinline__ long long shared_at(int rank, int tile) {
  return (static_cast<long long>(rank) * static_cast<int>(config.tiles()) + tile) *
             (config.tile_words() / 4) +
         threadIdx.x;
}

// A thread's part of the tile: its warp's, and in it its own.
template <ImplicitGemmHalfSm80 config>
struct Part {
  int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
  int m = warp / config.warps_n, n = warp % config.warps_n, lane = static_cast<int>(threadIdx.x) % 32;

  __device__ int position(int tile) const {
    return config.first_position(tile) + m * config.warp_rows() + lane / 4;
  }
  __device__ int filter(int tile) const {
    return config.first_filter(tile) + n * config.warp_filters() + lane % 4 * 8;
  }
};

template <ImplicitGemmHalfSm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    implicit_gemm_half_sm80(const void* __restrict__ x, const float* __restrict__ packed,
                            const void* __restrict__ residual, void* __restrict__ y,
                            float4* __restrict__ shared) {
  ptx::wait_for_earlier_grids(packed);
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr Packed kPacked = config.packed();
  const auto* const input = static_cast<const unsigned short*>(x);
  const auto* const other = static_cast<const unsigned short*>(residual);
  auto* const output = static_cast<unsigned short*>(y);
  if (__float_as_uint(packed[kPacked.flag_at()]) != 0) {
#pragma unroll 1
    for (Item<config> item; item.exists(); item.next())
      if (item.rank() == 0) store_exact<config>(input, packed, other, output, item.tile());
    return;
  }
  const unsigned smem = ptx::shared_address(memory);
  const Part<config> part;
  Pipeline<config> pipeline(Loader<config>(input, packed, smem),
                            typename Operands<config>::Place(smem, part.m, part.n));
#pragma unroll 1
  for (Item<config> item; item.exists(); item.next()) {
    Sums<config> sums = {};
    pipeline.multiply(sums, item.end_step() - item.first_step());
    if constexpr (config.split > 1) {
      float4* const to = shared + shared_at<config>(item.rank(), item.tile());
#pragma unroll
      for (int m = 0; m < config.tiles_m(); ++m)
#pragma unroll
        for (int n = 0; n < config.tiles_n(); ++n) {
          const float(&four)[4] = sums[m][n];
          to[(m * config.tiles_n() + n) * config.threads()] = {four[0], four[1], four[2], four[3]};
        }
    } else {
      const Store<config> store{packed + kPacked.bias_at(), other, output};
      store(sums, part.position(item.tile()), part.filter(item.tile()), config.end_filter(item.tile()));
    }
  }
  ptx::cp_async_wait_group<0>();
}

// The sums of blocks that share them, added up and stored: a block a tile.
template <ImplicitGemmHalfSm80 config>
__global__ void __launch_bounds__(config.threads())
    add_up_implicit_gemm_half_sm80(const float* __restrict__ packed, const void* __restrict__ residual,
                                   void* __restrict__ y, const float4* __restrict__ shared) {
  ptx::wait_for_earlier_grids(packed);
  constexpr Packed kPacked = config.packed();
  if (__float_as_uint(packed[kPacked.flag_at()]) != 0) return;
  const int tile = static_cast<int>(blockIdx.x);
  const Part<config> part;
  Sums<config> sums = {};
  constexpr int kAtOnce =
      lesser(config.split, config.sums() > 64 ? 2 : 4);  // ranks whose loads are under way
#pragma unroll 1
  for (int first = 0; first < config.split; first += kAtOnce)
#pragma unroll
    for (int m = 0; m < config.tiles_m(); ++m)
#pragma unroll
      for (int n = 0; n < config.tiles_n(); ++n)
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const float4 four =
              shared[shared_at<config>(first + i, tile) + (m * config.tiles_n() + n) * config.threads()];
          float(&sum)[4] = sums[m][n];
          sum[0] += four.x, sum[1] += four.y, sum[2] += four.z, sum[3] += four.w;
        }
  const Store<config> store{packed + kPacked.bias_at(), static_cast<const unsigned short*>(residual),
                            static_cast<unsigned short*>(y)};
  store(sums, part.position(tile), part.filter(tile), config.end_filter(tile));
}

// The packed weights. The flag must be 0 before.
template <ImplicitGemmHalfSm80 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_implicit_gemm_half_sm80(const void* __restrict__ w, const void* __restrict__ bias,
                                 unsigned* __restrict__ packed) {
  pack_halves<config>(w, bias, packed);
}

}  // namespace convtune::implicit_gemm_half_sm80
