// Convolution for few input channels and a stride of 4 columns on compute capability 9.0: wgmma straight from
// input rows.
//
// A chunk is 4 neighbouring columns of a row, 16 bytes. wgmma reads an operand in blocks of 8 rows of 16
// bytes, 128 contiguous bytes where nothing is swizzled; so 8 chunks that follow each other ARE such a block:
// the operand's rows are pixels, 4 columns apart, and its k are the 4 columns. The next 4 filter columns are
// the same chunks, one further on. (Below: an 11-column filter.) The im2col matrix is never made.
//
//   columns   | 0 1 2 3 | 4 5 6 7 | 8 9 .. | ..
//   chunks    |    0    |    1    |   2    | 3 ..
//   filter columns 0-3:  pixels 0 1 2 .. are chunks 0 1 2 ..
//   filter columns 4-7:  pixels 0 1 2 .. are chunks   1 2 3 ..      the descriptor's start, plus 16 bytes
//   filter columns 8-11: pixels 0 1 2 .. are chunks     2 3 4 ..    column 11 meets a weight of zero
//
// A block stays on its multiprocessor with its filters and walks down output rows. Everything on the way is
// asynchronous, since shared memory has little to spare beside the products (5 of 6 KB a product's time):
// rows come and go by bulk copies; the consumers, which take tiles in turns, wait for as few barriers as can
// be.
//
//   load a unit -> round it in place -> multiply (three warpgroups) -> stage into slots (in turns) -> store
//
// Zero weights and rounding would spread numbers that are not finite, so rows that meet one are computed
// again at the end, from the tensors as they came, in fp32 and with no padding.
#include "cuda/algorithms/direct_stem_sm90/load.cuh"
#include "cuda/algorithms/direct_stem_sm90/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/exact.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_stem_sm90 {

// Gives the start of each k-step's pixels, in chunks from its unit's start, and above 16 bits how far its
// second group lies behind its first. A table, which is read where the loop is written out: so they are
// constants, and the compiler need not compute config.group().
template <DirectStemSm90 config>
struct Steps {
  unsigned pixels[config.k_steps()];
  constexpr Steps() : pixels() {
    for (int step = 0; step < config.k_steps(); ++step) {
      const DirectStemSm90::Group first = config.group(2 * step), second = config.group(2 * step + 1);
      const int begin = config.group_offset(first), next = config.group_offset(second);
      pixels[step] = static_cast<unsigned>(begin) | static_cast<unsigned>(next - begin) << 16;
    }
  }
};

// Begins the products of a tile. In a rolled loop, compiling takes a tenth less, and alexnet_conv1 1 % more.
template <DirectStemSm90 config>
__device__ __forceinline__ void begin_products(float (&sums)[config.sums()], unsigned smem, int first_unit,
                                               int tile) {
  using S = Sizes<config>;
  constexpr Steps<config> kTable;
  const unsigned long long weights = ptx::wgmma_descriptor((smem + S::kAt.weights) / 16, config.filters, 8);
  unsigned long long window[config.halo() + 1];
#pragma unroll
  for (int unit = 0; unit <= config.halo(); ++unit) {
    const unsigned buffer = smem + S::kAt.units + (first_unit + unit) % S::kUnits * S::kUnitBytes;
    const unsigned chunk = buffer / 16 + tile * DirectStemSm90::kTile;
    // Every thread has the same: so the compiler learns it, and keeps it in a uniform register.
    window[unit] = ptx::wgmma_descriptor(__shfl_sync(0xffffffff, chunk, 0), 0, 8);
  }
  ptx::wgmma_fence();
  const auto pixels = [&](int step) { return window[step / config.unit_steps()] + kTable.pixels[step]; };
  const auto filters = [&](int step) { return weights + step * (2 * config.filters); };
  constexpr int kThrees = config.k_steps() / 3 * 3;
#pragma unroll
  for (int step = 0; step < kThrees; step += 3) {
    const unsigned long long a[3] = {pixels(step), pixels(step + 1), pixels(step + 2)};
    const unsigned long long b[3] = {filters(step), filters(step + 1), filters(step + 2)};
    ptx::ThreeWgmmaTf32Anywhere<config.filters>::multiply(sums, a, b, step > 0);
  }
#pragma unroll
  for (int step = kThrees; step < config.k_steps(); ++step)
    ptx::WgmmaTf32<config.filters>::multiply(sums, pixels(step), filters(step), step > 0);
  ptx::wgmma_commit();
}

// A warpgroup: every consumers-th tile of the block.
template <DirectStemSm90 config>
__device__ void consume(unsigned smem, float* __restrict__ y, int consumer, int thread) {
  constexpr int kTiles = config.tiles();
  using S = Sizes<config>;
  const Rows<config> rows;
  const int lane = thread % 32, warp = thread / 32;
  float bias[config.filters / 4];  // for my filters
#pragma unroll
  for (int pair = 0; pair < config.filters / 4; ++pair)
    ptx::ld_shared(bias[pair], smem + S::kAt.bias + config.filter_of(pair, lane % 4) * 4);
  const unsigned turns_at = smem + S::kAt.turn, my_turn = turns_at + 8 * consumer;
  const unsigned next_turn = turns_at + 8 * ((consumer + 1) % config.consumers);
  int turns = 0;  // mine until now
  int seen = -1;  // the last unit that is known to be full
#pragma unroll 1
  for (int item = consumer; item < rows.count * kTiles; item += config.consumers, ++turns) {
    const int i = item / kTiles, first_unit = rows.first_unit(i);
    const Tile tile = tile_of<config>(rows, i, item % kTiles);
    // Units become full in order, so the last will do; but a barrier knows only odd from even, so no more
    // than a round of the barriers at once.
#pragma unroll 1
    while (seen < first_unit + config.halo()) {
      seen = min(first_unit + config.halo(), seen + config.full_barriers());
      ptx::mbarrier_wait(smem + S::kAt.full + 8 * (seen % config.full_barriers()),
                         seen / config.full_barriers() & 1);
    }
    float sums[config.sums()];
    begin_products<config>(sums, smem, first_unit, item % kTiles);
    ptx::wgmma_wait<0>();
    __syncwarp();
    if (lane == 0 && item % kTiles + config.consumers >= kTiles)  // my last of the row
      ptx::mbarrier_arrive(smem + S::kAt.done + 8 * (i % config.units));
#pragma unroll
    for (int sum = 0; sum < config.sums(); ++sum)
      sums[sum] = finish<config.conv>(sums[sum], bias[sum / 4 * 2 + sum % 2]);
    if (tile.begins || tile.ends) store_ends<config>(sums, y, tile, thread);
    if (item > 0) ptx::mbarrier_wait(my_turn, (turns - (consumer == 0)) & 1);
    if (!tile.begins && !tile.ends && 16 * warp + 15 + DirectStemSm90::kSector - 1 < tile.positions)
      stage<config, true>(sums, smem, tile, next_turn, thread);
    else
      stage<config, false>(sums, smem, tile, next_turn, thread);
  }
}

// Rows [begin, end) of the block again, slowly, by all its threads.
template <DirectStemSm90 config>
__device__ __noinline__ void repair(const float* __restrict__ x, const float* __restrict__ packed,
                                    float* __restrict__ y, int begin, int end) {
  constexpr ConvExtents a = config.conv;
  const Rows<config> rows;
#pragma unroll 1
  for (int i = begin; i < end; ++i)
#pragma unroll 1
    for (int e = threadIdx.x; e < config.filters * a.q; e += config.threads()) {
      const int filter = static_cast<int>(blockIdx.y) * config.filters + e / a.q, q = e % a.q;
      if (filter >= a.k) break;
      y[a.output_offset(rows.image(i), filter, rows.row(i), q)] =
          exact_output<config>(x, packed, rows.image(i), filter, rows.row(i), q);
    }
}

// Before the warps part.
template <DirectStemSm90 config>
__device__ void set_up(const float* __restrict__ packed, unsigned smem, bool in_boxes) {
  using S = Sizes<config>;
  constexpr Packed kPacked = config.packed();
  const int thread = threadIdx.x;
  if (thread == 0) {
#pragma unroll 1
    for (int i = 0; i < config.units; ++i) {
      ptx::mbarrier_init(smem + S::kAt.raw + 8 * i, 1);
      ptx::mbarrier_init(smem + S::kAt.done + 8 * i, 4 * lesser(config.tiles(), config.consumers));
    }
#pragma unroll 1
    for (int i = 0; i < config.full_barriers(); ++i)
      ptx::mbarrier_init(smem + S::kAt.full + 8 * i, kRounders);
#pragma unroll 1
    for (int i = 0; i < config.kSlots; ++i) {
      ptx::mbarrier_init(smem + S::kAt.filled + 8 * i, 128);
      ptx::mbarrier_init(smem + S::kAt.free + 8 * i, in_boxes ? 1 : 32);
    }
    for (int i = 0; i < config.consumers; ++i) ptx::mbarrier_init(smem + S::kAt.turn + 8 * i, 128);
    ptx::st_shared(smem + S::kAt.repaired, 0x7fffffffu);  // no row yet: from the last on, to before the first
    ptx::st_shared(smem + S::kAt.repaired + 4, 0xffffffffu);
    ptx::fence_mbarrier_init();
  }
#pragma unroll 1
  for (int i = thread; i < config.filters; i += config.threads()) {
    const int filter = static_cast<int>(blockIdx.y) * config.filters + i;
    ptx::st_shared(smem + S::kAt.bias + 4 * i,
                   filter < config.conv.k ? packed[kPacked.bias_at() + filter] : 0.0f);
  }
  __syncthreads();
}

// `in_boxes`: the maps can be used.
template <DirectStemSm90 config>
__global__ void __launch_bounds__(config.threads(), 1)
    direct_stem_sm90(const __grid_constant__ Maps maps, int in_boxes, const float* __restrict__ x,
                     const float* __restrict__ packed, float* __restrict__ y) {
  ptx::wait_for_earlier_grids(packed);
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr Packed kPacked = config.packed();
  constexpr auto kAt = config.smem();
  const unsigned smem = ptx::shared_address(memory);
  const int thread = threadIdx.x;
  set_up<config>(packed, smem, in_boxes);
  // Registers of a block of five warpgroups are 96 a thread; those that load and store need fewer.
  constexpr bool kShares = config.consumers == DirectStemSm90::kMostConsumers;
  const int warp = __shfl_sync(0xffffffff, thread / 32, 0) - 4 * config.consumers;
  const bool in_bulk = config.conv.w % 4 == 0 && reinterpret_cast<unsigned long long>(x) % 16 == 0;
  if (warp < 0) {
    if constexpr (kShares) ptx::take_registers<120>();
    consume<config>(smem, y, __shfl_sync(0xffffffff, thread / 128, 0), thread % 128);
  } else {
    if constexpr (kShares) ptx::leave_registers<56>();
    if (warp == 0)
      load<config>(x, packed, smem, thread % 32 == 0, in_bulk);
    else if (warp == 1)
      store<config>(maps.y, y, smem, thread % 32, in_boxes);
    else if (warp >= 4)
      round_units<config>(x, smem, thread % 128, in_bulk);
  }
  __syncthreads();
  const bool all = packed[kPacked.flag_at()] != 0;
  const int begin = all ? 0 : static_cast<int>(ptx::ld_shared(smem + kAt.repaired));
  const int end = all ? Rows<config>().count : static_cast<int>(ptx::ld_shared(smem + kAt.repaired + 4)) + 1;
  if (begin < end) repair<config>(x, packed, y, begin, end);
}

// The packed weights. The flag must be 0 before.
template <DirectStemSm90 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_stem_sm90(const float* __restrict__ w, const float* __restrict__ bias,
                          unsigned* __restrict__ packed) {
  pack<config>(w, bias, packed, ptx::cvt_rna_tf32);
}

}  // namespace convtune::direct_stem_sm90
