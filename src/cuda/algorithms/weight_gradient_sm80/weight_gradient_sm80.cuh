// Gradients of weights in half precision, channels last, for tensor cores of compute capability 8.0 and up:
// the weights of groups of few channels, and of first layers. A product of filters (rows) with channels at
// all taps (columns), whose sums go over the pixels of dy.
//
//   dy  cp.async --> stage  [pixel][filter]                ldmatrix.trans: 16 pixels of 16 filters
//   x   cp.async --> stage  [row][unit][channels], once    ldmatrix.trans: 16 pixels of 8 channels, from
//       for all taps of a tile                             where a tap of them lies
//   a warp: sixteens of filters by eights of columns, in registers from the first tile to the last
//
// Both lie pixel by pixel, as memory has them, and are transposed on their way into registers. A unit of x is
// 16 bytes: eight channels of a pixel; of a first layer with an even stride two pixels of four channels,
// whose taps lie side by side. Filters of narrow groups share a product: the channels of all of them are
// multiplied, and a filter's own are kept.
//
// `split` blocks share the tiles. They leave their sums in memory, from where add_up_weight_gradient_sm80
// adds them in the order of their ranks and rounds once: the same bits every time. The gradient of the bias
// is one column more, of ones.
//
// Zeros stand for the padding: an infinity of the other factor makes NaN of them. A sum that is NaN is
// computed again, of the products alone that there are.
#include "cuda/algorithms/weight_gradient_sm80/load.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/weight_sums.cuh"

namespace convtune::weight_gradient_sm80 {

// A warp's part of its block's sums, and where this lane reads operands of it.
template <WeightGradientSm80 config>
struct Warp {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kSixteens = config.sixteens(), kEights = config.eights();
  int lane, m, o, r;
  unsigned gradients, inputs;  // behind a stage's begin
  float sums[kEights][kSixteens][4] = {}, bias[kSixteens][4] = {};

  __device__ __forceinline__ Warp() {
    const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
    lane = static_cast<int>(threadIdx.x) % 32;
    m = warp % config.warps_m, o = warp / config.warps_m % config.warps_o;
    r = warp / config.warps_m / config.warps_o;
    // Matrices of pixels 0 to 7 and 8 to 15: of dy the first two and the others, of x in turns.
    gradients = config.input_bytes() + (lane / 16 * 8 + lane % 8) * config.pixel_bytes() +
                16 * (lane / 8 % 2) + 32 * kSixteens * m;
    inputs = lane % 8 * config.unit_bytes() + r * a.dilation_h * config.row_bytes();
    if constexpr (!config.first_layer())
      inputs += 16 * (config.octet_of(m * kSixteens) + o * config.warp_octets());
  }
  // How far eight columns lie behind the first, bytes.
  static constexpr int eight_at(int eight) {
    const int octet = eight % config.warp_octets(), unit = eight / config.warp_octets() % config.row_taps();
    const int row = eight / config.warp_octets() / config.row_taps() * config.warps_r;
    return row * a.dilation_h * config.row_bytes() +
           config.unit_at(unit * config.unit_dilation()) * config.unit_bytes() + 16 * octet;
  }
  __device__ __forceinline__ static void multiply(float (&to)[4], const unsigned (&filters)[4],
                                                  const unsigned (&columns)[2]) {
    if constexpr (a.x_type == ElementType::bf16)
      ptx::mma_m16n8k16_bf16(to, filters, columns);
    else
      ptx::mma_m16n8k16_f16(to, filters, columns);
  }
  // The products of a stage.
  __device__ __forceinline__ void add(unsigned stage) {
    constexpr int kRowEights = config.columns / 8;  // eights of pixels in a row
    const bool second = lane >= 16;
#pragma unroll 2
    for (int product = 0; product < config.products(); ++product) {
      unsigned filters[kSixteens][4];
#pragma unroll
      for (int i = 0; i < kSixteens; ++i)
        ptx::ldmatrix_x4_trans(filters[i],
                               stage + gradients + product * (16 * config.pixel_bytes()) + 32 * i);
      const int pixels = 2 * product + lane / 8 % 2;
      const unsigned from = stage + inputs + pixels / kRowEights * (a.stride_h * config.row_bytes()) +
                            pixels % kRowEights * (8 * config.unit_bytes());
      for_constants<0, (kEights + 1) / 2>([&](auto pair) {
        constexpr int kFirst = 2 * pair.value, kSecond = lesser(kFirst + 1, kEights - 1);
        constexpr int kAt = eight_at(kFirst), kOtherAt = eight_at(kSecond);
        unsigned columns[4];
        ptx::ldmatrix_x4_trans(columns, from + (second ? kOtherAt : kAt));
        const unsigned one[2] = {columns[0], columns[1]}, other[2] = {columns[2], columns[3]};
#pragma unroll
        for (int i = 0; i < kSixteens; ++i) {
          multiply(sums[kFirst][i], filters[i], one);
          if constexpr (kSecond > kFirst) multiply(sums[kSecond][i], filters[i], other);
        }
      });
      if (o == 0 && r == 0) {
        constexpr unsigned kOnes = a.x_type == ElementType::bf16 ? 0x3f803f80u : 0x3c003c00u;
        const unsigned ones[2] = {kOnes, kOnes};
#pragma unroll
        for (int i = 0; i < kSixteens; ++i) multiply(bias[i], filters[i], ones);
      }
    }
  }
  // Leaves its sums for the block's rank.
  __device__ __forceinline__ void leave(float4* __restrict__ to) const {
#pragma unroll
    for (int eight = 0; eight <= kEights; ++eight)
#pragma unroll
      for (int i = 0; i < kSixteens; ++i) {
        const float(&four)[4] = eight < kEights ? sums[eight < kEights ? eight : 0][i] : bias[i];
        to[(eight * kSixteens + i) * config.threads() + static_cast<int>(threadIdx.x)] = {four[0], four[1],
                                                                                          four[2], four[3]};
      }
  }
};

template <WeightGradientSm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    weight_gradient_sm80(const void* __restrict__ x, const void* __restrict__ dy,
                         float* __restrict__ partial) {
  ptx::wait_for_earlier_grids(x, dy);
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int kStages = config.stages, kTiles = static_cast<int>(config.tiles());
  const unsigned smem = ptx::shared_address(memory);
  const Part<config> part(blockIdx.x);
  const Loader<config> loader{static_cast<const unsigned short*>(x), static_cast<const unsigned short*>(dy),
                              part};
  Warp<config> warp;
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) {
    if (part.rank + i * config.split < kTiles)
      loader.load(part.rank + i * config.split, smem + i * config.stage_bytes());
    ptx::cp_async_commit_group();
  }
  int slot = 0;
#pragma unroll 1
  for (int tile = part.rank; tile < kTiles; tile += config.split) {
    if constexpr (kStages == 1) {
      __syncthreads();  // nobody reads the tile before
      loader.load(tile, smem);
      ptx::cp_async_commit_group();
      ptx::cp_async_wait_group<0>();
      __syncthreads();
    } else {
      ptx::cp_async_wait_group<greater(kStages - 2, 0)>();
      __syncthreads();  // this tile is there for all, and all have read the one before it
      const int next = tile + (kStages - 1) * config.split;
      if (next < kTiles)
        loader.load(next, smem + (slot == 0 ? kStages - 1 : slot - 1) * config.stage_bytes());
      ptx::cp_async_commit_group();
    }
    warp.add(smem + slot * config.stage_bytes());
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
  warp.leave(reinterpret_cast<float4*>(partial) +
             (part.rank * config.chunks() + part.chunk) * static_cast<long long>(config.chunk_fours()));
}

// The sums of all blocks, added up.
template <WeightGradientSm80 config>
__global__ void __launch_bounds__(kAddThreads)
    add_up_weight_gradient_sm80(const float* __restrict__ partial, const void* __restrict__ x,
                                const void* __restrict__ dy, void* __restrict__ dw, void* __restrict__ dbias,
                                int dw_last) {
  ptx::wait_for_earlier_grids(partial);
  add_up_ranks<config>(partial, x, dy, dw, dbias, dw_last);
}

// Gradients of weights need none.
template <WeightGradientSm80 config>
__global__ void pack_weight_gradient_sm80() {}

}  // namespace convtune::weight_gradient_sm80
