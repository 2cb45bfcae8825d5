// Depthwise convolution of channels last in half precision, on tensor cores of compute capability 8.0 and up:
// a filter row times a row of the image is a product with a band matrix.
//
//   operand: 16 strips of the image       band matrix of a filter row a b c       sums
//   strip 0   its 16 columns of a row     a . . . . . . .
//   strip 1   ...                         b a . . . . . .                         8 columns of an output row
//   ...                              x    c b a . . . . .                    ->   of each strip
//   strip 15                              . c b a . . . .   ... 16 rows
//
// All rows of the operand are at the same height of their strips, so that one operand serves all filter rows:
// each adds to another output row, of which as many are under way as the filter has rows. Less than half of
// the products are with weights, and they still cost a quarter of what they cost on CUDA cores.
//
//   x: 8 channels of two pixels -> 8 words of two pixels -> planes of channels in shared memory
//   a warp, two channels: ldmatrix, products, epilogue -> words of two channels in the place of their planes
//   8 channels of a pixel, 4 words -> y
//
// A zero makes NaN of an infinity outside of the filter, as of padding's zero and an infinite weight. A tile
// with a NaN among its sums is computed again from the tensors as they came.
#include "cuda/algorithms/direct_depthwise_half/load.cuh"
#include "cuda/algorithms/direct_depthwise_half/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/epilogue.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_depthwise_half {

// A channel's filter as operands: of each row a band matrix.
template <DirectDepthwiseHalf config>
using Bands = unsigned[config.conv.r][2];

// Entry (k, n) of a band is tap k - n. A lane has k = 2 * thread and the next in the first register, 8 more
// in the second, of n = group; one of the two is zeros.
template <DirectDepthwiseHalf config>
__device__ __forceinline__ void load_bands(Bands<config>& to, unsigned filter, int lane) {
  constexpr int kWords = config.filter_words();
  const int tap = lane % 4 * 2 - lane / 4;
  const bool second = tap < -1;
#pragma unroll
  for (int i = 0; i < kWords / 4; ++i) {
    unsigned words[4];
    ptx::ld_shared_v4(words, filter + 4 * (((tap + 1) & 7) * kWords + 4 * i));
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (4 * i + j < config.conv.r) {
        to[4 * i + j][0] = second ? 0 : words[j];
        to[4 * i + j][1] = second ? words[j] : 0;
      }
  }
}

template <ElementType kType>
__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&strips)[4],
                                         const unsigned (&band)[2]) {
  if constexpr (kType == ElementType::bf16)
    ptx::mma_m16n8k16_bf16(sums, strips, band);
  else
    ptx::mma_m16n8k16_f16(sums, strips, band);
}

// A strip of a lane: of an operand's row, two columns of outputs.
template <DirectDepthwiseHalf config>
struct Strip {
  bool exists;
  unsigned offset;  // for its first outputs

  __device__ __forceinline__ Strip(int m, int lane) : exists(config.is_strip(m)) {
    constexpr DirectDepthwiseHalf::Outputs kTo = Planes<config>::kOutputs;  // a copy, which nvcc wants here
    offset = kTo.offset(config.strip_image(m), config.strip_band(m) * config.rows,
                        config.strip_across(m) * 8 + lane % 4 * 2);
  }
};

// Computes two channels of all strips with one warp.
template <DirectDepthwiseHalf config>
struct Pair {
  static constexpr ConvExtents a = config.conv;
  const Strip<config> (&mine)[2];  // whose outputs this lane has
  unsigned outputs;
  float bias[2];

  __device__ __forceinline__ unsigned row_of(const Strip<config>& strip, int row) const {
    return outputs + strip.offset + row * Planes<config>::kOutputs.row;
  }
  // Outputs of a row of both strips. Halves of `trace` become NaN if a sum is: so do outputs then.
  __device__ __forceinline__ void finish_row(unsigned (&words)[4], const float (&first)[4],
                                             const float (&second)[4], int row, unsigned& trace) const {
    unsigned added[4] = {};
    if constexpr (a.residual)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (mine[i].exists) ptx::ld_shared_v2(added[2 * i], added[2 * i + 1], row_of(mine[i], row));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] =
          finish_halves<config.conv, SumsBegin::at_bias>(first[i], bias[0], second[i], bias[1], added[i]);
      if constexpr (a.y_type == ElementType::bf16)
        trace = ptx::max_nan_bf16x2(trace, words[i]);
      else
        trace = ptx::max_nan_f16x2(trace, words[i]);
    }
  }
  __device__ __forceinline__ void store_row(const unsigned (&words)[4], int row) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (mine[i].exists)
        ptx::st_shared_v2(row_of(mine[i], row), __uint_as_float(words[2 * i]),
                          __uint_as_float(words[2 * i + 1]));
  }
  // `from`: the strips in the first channel's plane, at the row of this lane's matrix.
  __device__ __forceinline__ void compute(unsigned from, const Bands<config> (&bands)[2],
                                          unsigned& trace) const {
    float sums[2][config.rows][4];
    unsigned words[config.rows][4];
#pragma unroll
    for (int input = 0; input < config.strip_rows(); ++input) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        unsigned strips[4];
        ptx::ldmatrix_x4(strips, from + i * Planes<config>::kPlane + input * Planes<config>::kRow);
#pragma unroll
        for (int row = 0; row < config.rows; ++row) {
          const int r = input - row * a.stride_h;
          if (r < 0 || r >= a.r) continue;
          if (r == 0)
#pragma unroll
            for (float& sum : sums[i][row]) sum = a.eager ? 0 : bias[i];
          multiply<a.x_type>(sums[i][row], strips, bands[i][r]);
        }
      }
      __syncwarp();  // all lanes have read these rows
#pragma unroll
      for (int row = 0; row < config.rows; ++row) {
        if (row * a.stride_h + a.r - 1 == input)
          finish_row(words[row], sums[0][row], sums[1][row], row, trace);
        if (config.stored_after(row) == input) store_row(words[row], row);
      }
    }
  }
};

template <DirectDepthwiseHalf config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    direct_depthwise_half(const void* __restrict__ x, const float* __restrict__ packed,
                          const void* __restrict__ residual, void* __restrict__ y) {
  ptx::wait_for_earlier_grids(packed);
  constexpr ConvExtents a = config.conv;
  constexpr Packed kPacked = config.packed();
  constexpr DirectDepthwiseHalf::Smem kSmem = config.smem();
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned shared = ptx::shared_address(smem), planes = shared + kSmem.planes;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Part<config> part(blockIdx.x);
  // Filters and biases come meanwhile: a warp would wait for those of each pair.
  constexpr int kFilterBytes = 4 * config.channels() * config.channel_words();
  const auto* const filters =
      reinterpret_cast<const unsigned char*>(packed) + static_cast<long long>(part.chunk) * kFilterBytes;
#pragma unroll 1
  for (int i = threadIdx.x * 16; i < kFilterBytes; i += config.threads() * 16)
    ptx::cp_async_16(shared + kSmem.filters + i, filters + i, 16);
#pragma unroll 1
  for (int i = threadIdx.x; i < config.channels(); i += config.threads()) {
    const int channel = part.first_channel() + i;
    ptx::cp_async_4(shared + kSmem.biases + 4 * i, packed + kPacked.bias_at() + (channel < a.c ? channel : 0),
                    channel < a.c ? 4 : 0);
  }
  ptx::cp_async_commit_group();
  load_tile<config>(static_cast<const unsigned short*>(x), part, planes);
  if constexpr (a.residual)
    load_residual<config>(static_cast<const unsigned short*>(residual), part, shared + kSmem.outputs);
  ptx::cp_async_wait_group<0>();
  __syncthreads();

  // This lane's row of a matrix: of strips 0 to 7 or 8 to 15, their first 8 columns or the others. Where
  // there is no strip it is that of the matrix's first, which is read with it: another would meet it at a
  // bank.
  const int m = config.is_strip(lane % 16) ? lane % 16 : lane % 16 / 8 * 8;
  const unsigned strips =
      planes + 16 * (lane / 16) +
      (config.is_strip(m) ? config.strip_image(m) * Planes<config>::kImage +
                                config.strip_band(m) * config.rows * a.stride_h * Planes<config>::kRow +
                                16 * config.strip_across(m)
                          : 0);
  const Strip<config> mine[2] = {{lane / 4, lane}, {lane / 4 + 8, lane}};
  unsigned trace = 0;
#pragma unroll 1
  for (int i = warp; i < config.pairs(); i += config.warps) {
    const unsigned plane = i / 4 * Planes<config>::kOctet + i % 4 * (2 * Planes<config>::kPlane);
    Bands<config> bands[2];
    Pair<config> pair = {mine,
                         shared + kSmem.outputs + i / 4 * Planes<config>::kOutputs.octet +
                             i % 4 * Planes<config>::kOutputs.pair,
                         {}};
#pragma unroll
    for (int j = 0; j < 2; ++j)
      load_bands<config>(bands[j], shared + kSmem.filters + 4 * (2 * i + j) * config.channel_words(), lane);
    ptx::ld_shared_v2(pair.bias[0], pair.bias[1], shared + kSmem.biases + 8 * i);
    pair.compute(strips + plane, bands, trace);
  }
  const float low = low_half<a.y_type>(trace), high = high_half<a.y_type>(trace);
  if (__syncthreads_or(low != low || high != high))
    compute_exactly<config>(x, packed, residual, y, part);
  else
    store_tile<config>(static_cast<unsigned short*>(y), part, shared + kSmem.outputs);
}

// The packed weights.
template <DirectDepthwiseHalf config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_depthwise_half(const void* __restrict__ w, const void* __restrict__ bias,
                               unsigned* __restrict__ packed) {
  pack_halves<config>(w, bias, packed);
}

}  // namespace convtune::direct_depthwise_half
