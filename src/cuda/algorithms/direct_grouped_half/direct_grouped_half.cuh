// Few channels a group in half precision, channels last, on tensor cores of compute capability 8.0 and up: a
// product's 8 columns are filters, its 16 rows are outputs, and its sum is over 8 channels at two taps.
//
//   x: a tile's pixels --- cp.async, 16 bytes ---> shared memory
//
//   8 channels of the pixels          operand: outputs of rows m and m + 2, 8 columns of each
//   row 0  . . . . . . . . . .        row m      8 pixels of row m from column s on     | of row m + 1
//   row 1  . . . . . . . . . .        row m + 2  8 pixels of row m + 2 from column s on | of row m + 3
//
// Eight pixels of a row are one matrix of ldmatrix, at any column and stride, and a register of a lane. Four
// of them, two taps of two output rows, are loaded as the operand that they are; the next output rows take
// the same registers for other taps. Groups of 8 channels or more are dense products; smaller ones share a
// piece, and weights are zero where they are not of the filter's group: of groups of 4, half of the products.
// The layer waits for memory meanwhile.
//
// A zero makes NaN of another group's infinity, as of padding's zero and an infinite weight. A tile with a
// NaN among its sums is computed again from the tensors as they came.
#include "cuda/algorithms/direct_grouped_half/load.cuh"
#include "cuda/algorithms/direct_grouped_half/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/exact.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_grouped_half {

template <ElementType kType>
__device__ __forceinline__ void multiply_two(float (&sums)[4], const unsigned (&couples)[4],
                                             const unsigned (&weights)[2]) {
  if constexpr (kType == ElementType::bf16)
    ptx::mma_m16n8k16_bf16(sums, couples, weights);
  else
    ptx::mma_m16n8k16_f16(sums, couples, weights);
}
template <ElementType kType>
__device__ __forceinline__ void multiply_one(float (&sums)[4], unsigned first, unsigned second,
                                             unsigned weight) {
  if constexpr (kType == ElementType::bf16)
    ptx::mma_m16n8k8_bf16(sums, first, second, weight);
  else
    ptx::mma_m16n8k8_f16(sums, first, second, weight);
}

// All products of a strip for kCount eights from kFirst on, which meet the same pieces: `input` is the
// strip's in the first of them, at the row of this lane's matrix.
template <DirectGroupedHalf config, int kFirst, int kCount>
__device__ __forceinline__ void multiply(Sums<config>& sums, unsigned input,
                                         const WarpWeights<config>& weights) {
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (int piece = 0; piece < a.t * config.span(); ++piece) {
#pragma unroll
    for (int s = 0; s < a.s; ++s) {
      Column<config> b[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) weights.get(b[i], kFirst + i, piece, s);
#pragma unroll
      for (int chain = 0; chain < config.chains(); ++chain) {
#pragma unroll
        for (int i = 0; i < config.couples(); i += 2) {
          const unsigned from = input + config.column_offset(s * a.dilation_w) +
                                (chain * a.stride_h + i * a.dilation_h) * config.row_bytes();
          unsigned two[4];
          if (i + 1 < config.couples())
            ptx::ldmatrix_x4(two, from);
          else
            ptx::ldmatrix_x2(two[0], two[1], from);
#pragma unroll
          for (int m = 0; m < config.chain_outputs(); ++m)
#pragma unroll
            for (int eight = 0; eight < kCount; ++eight) {
              float(&sum)[4] = sums[kFirst + eight][chain + m];
              const int r = i - m;  // the filter row that the first couple meets
              if (r >= 0 && r + 1 < a.r)
                multiply_two<a.x_type>(sum, two, b[eight][r >= 0 ? r / config.pair_step() : 0]);
              else if (r >= 0 && r < a.r)
                multiply_one<a.x_type>(sum, two[0], two[1],
                                       b[eight][config.single_word(r) / 2][config.single_word(r) % 2]);
              else if (r == -1)
                multiply_one<a.x_type>(sum, two[2], two[3], b[eight][0][0]);
            }
        }
      }
    }
    const bool frame_ends = a.t > 1 && (piece + 1) % config.span() == 0;
    input += frame_ends ? config.frame_bytes() - 16 * (config.span() - 1) : 16;
  }
}

// All tiles of the block, slowly: where a sum is NaN.
template <DirectGroupedHalf config>
__device__ __noinline__ void compute_exactly(const void* __restrict__ x, const float* __restrict__ packed,
                                             const void* __restrict__ residual, void* __restrict__ y) {
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (long long tile = blockIdx.x; tile < config.tiles(); tile += gridDim.x) {
    const Part<config> part(static_cast<unsigned>(tile));
#pragma unroll 1
    for (int i = threadIdx.x; i < config.tile_rows() * config.tile_columns() * config.filters;
         i += config.threads()) {
      const int k = part.first_filter() + i % config.filters, at = i / config.filters;
      const int p = part.p() + at / config.tile_columns(), q = part.q() + at % config.tile_columns();
      if (p >= a.p || q >= a.q || k >= a.k) continue;
      store_exact_output<config>(x, packed, residual, y, part.frame / a.z, k, p, q, part.frame % a.z);
    }
  }
}

template <DirectGroupedHalf config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    direct_grouped_half(const void* __restrict__ x, const float* __restrict__ packed,
                        const void* __restrict__ residual, void* __restrict__ y) {
  ptx::wait_for_earlier_grids(packed);
  constexpr ConvExtents a = config.conv;
  constexpr Packed kPacked = config.packed();
  constexpr DirectGroupedHalf::Smem kSmem = config.smem();
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned shared = ptx::shared_address(smem);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const auto load = [&](unsigned tile, int slot) {
    load_tile<config>(static_cast<const unsigned short*>(x), Part<config>(tile),
                      shared + kSmem.input + slot * config.tile_bytes(), warp, lane);
  };
  load(blockIdx.x, 0);
  const int chunk = static_cast<int>(blockIdx.x % config.chunks());  // for all tiles of this block
  if constexpr (!config.kept()) {
    constexpr int kBytes = 4 * (config.filters / 8) * config.eight_words();
    const auto* const from =
        reinterpret_cast<const unsigned char*>(packed) + static_cast<long long>(chunk) * kBytes;
    for (int i = threadIdx.x * 16; i < kBytes; i += config.threads() * 16)
      ptx::cp_async_16(shared + kSmem.weights + i, from + i, 16);
  }
  ptx::cp_async_commit_group();

  const int first_eight = warp % config.parts() * config.eights;  // for the chunk
  const int all_eights = chunk * (config.filters / 8) + first_eight;
  WarpWeights<config> weights;
  weights.shared = shared + kSmem.weights + first_eight * (4 * config.eight_words()) + 8 * lane;
  weights.load(packed, all_eights, lane);
  Output<config> output = {static_cast<const unsigned short*>(residual), static_cast<unsigned short*>(y),
                           8 * all_eights, shared + kSmem.staging + warp * config.staging_bytes()};
  unsigned pieces[config.eights];  // per eight, for this lane
#pragma unroll
  for (int eight = 0; eight < config.eights; ++eight) {
    pieces[eight] =
        shared + kSmem.input + lane % 8 * config.pixel_bytes() +
        (lane / 8 % 2 * config.depth() * a.stride_h + lane / 16 * a.dilation_h) * config.row_bytes() +
        16 * config.first_piece(all_eights + eight);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int filter = 8 * (all_eights + eight) + lane % 4 * 2 + i;
      output.bias[eight][i] = filter < a.k ? packed[kPacked.bias_at() + filter] : 0;
    }
  }

  constexpr unsigned kTiles = static_cast<unsigned>(config.tiles());
  unsigned trace = 0;
  int slot = 0;
#pragma unroll 1
  for (unsigned tile = blockIdx.x; tile < kTiles; tile += gridDim.x) {
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile has come, and nobody needs the one before
    const Part<config> part(tile);
    const long long image = output.image_of(part.frame);
    const int first_strip = warp / config.parts();
    const auto row_of = [&](int strip) { return part.p() + strip / config.across * config.rows; };
    const auto column_of = [&](int strip) { return part.q() + strip % config.across * 8; };
    // Before the next tile, or it would have to wait for that one. Not outside of the output: the warp's next
    // strip would be copied to the same place, and nothing orders two copies that nobody waits for.
    if (first_strip < config.strips() && row_of(first_strip) < a.p && column_of(first_strip) < a.q)
      output.load_residual(image, row_of(first_strip), column_of(first_strip), lane);
    if (config.stages > 1 && kTiles - tile > gridDim.x) load(tile + gridDim.x, slot ^ 1);
    ptx::cp_async_commit_group();
#pragma unroll 1
    for (int strip = first_strip; strip < config.strips(); strip += config.strip_warps()) {
      const int p = row_of(strip), q = column_of(strip);
      if (p >= a.p || q >= a.q) continue;
      if (strip != first_strip) output.load_residual(image, p, q, lane);
      const unsigned corner = slot * config.tile_bytes() +
                              strip / config.across * (config.rows * a.stride_h * config.row_bytes()) +
                              strip % config.across * (8 * config.pixel_bytes());
      Sums<config> sums;
      output.begin(sums);
      if constexpr (config.shared())
        multiply<config, 0, config.eights>(sums, pieces[0] + corner, weights);
      else
        for_constants<0, config.eights>([&](auto eight) {
          multiply<config, eight.value, 1>(sums, pieces[eight.value] + corner, weights);
        });
      if constexpr (a.residual) {
        if (strip == first_strip)
          ptx::cp_async_wait_group<1>();
        else
          ptx::cp_async_wait_group<0>();
        __syncwarp();
      }
      output.store(sums, image, p, q, lane, trace);
    }
    if constexpr (config.stages == 1) break;
    slot ^= 1;
  }
  const float low = low_half<a.y_type>(trace), high = high_half<a.y_type>(trace);
  if (__syncthreads_or(low != low || high != high)) compute_exactly<config>(x, packed, residual, y);
}

// The packed weights.
template <DirectGroupedHalf config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_grouped_half(const void* __restrict__ w, const void* __restrict__ bias,
                             unsigned* __restrict__ packed) {
  pack_halves<config>(w, bias, packed);
}

}  // namespace convtune::direct_grouped_half
