// Few channels a group in half precision, channels last, on tensor cores of compute capability 8.0 and up: a
// product's 8 columns are filters, its 16 rows are outputs, and its sum is over 8 channels at two taps.
//
//   x: a tile's pixels --- cp.async, 16 bytes ---> shared memory, a plane for each piece of 8 channels
//
//   a plane, 8 channels a pixel       operand: outputs of two rows by 8 columns
//   row 0  . . . . . . . . . .        output row 0: 8 pixels of row 0 from column s on | the same of the
//   row 1  . . . . . . . . . .        output row 1: 8 pixels of row 1 from column s on | next tap
//
// Eight pixels of a row are one matrix of ldmatrix, at any tap and stride, and a register of a lane. All
// output rows of a strip that meet it take it from there, so each is loaded once. Groups of 8 channels or
// more are dense products; of smaller ones several share a piece, and weights are zero where they are not of
// the filter's group. The layer waits for memory meanwhile: of groups of 4, half of the products are such
// zeros.
//
// A zero makes NaN of another group's infinity, as of padding's zero and an infinite weight. A tile with a
// NaN among its sums is computed again from the tensors as they came.
#include "cuda/algorithms/direct_grouped_half/config.h"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/exact.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_grouped_half {

// What a block computes.
template <DirectGroupedHalf config>
struct Part {
  int chunk, side, band, image;

  __device__ explicit Part(unsigned block) {
    chunk = static_cast<int>(block % config.chunks());
    block /= config.chunks();
    side = static_cast<int>(block % config.sides());
    block /= config.sides();
    band = static_cast<int>(block % config.bands());
    image = static_cast<int>(block / config.bands());
  }
  __device__ int first_filter() const { return chunk * config.filters; }
  __device__ int p() const { return band * config.tile_rows(); }
  __device__ int q() const { return side * config.tile_columns(); }
};

template <DirectGroupedHalf config>
__device__ __forceinline__ void load_tile(const unsigned short* __restrict__ x, const Part<config>& part,
                                          unsigned to) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPieces = config.pieces(), kColumns = config.input_columns();
  constexpr int kPieceBytes = static_cast<int>(config.piece_bytes());
  const int top = config.first_row(part.band), left = config.first_column(part.side);
  const int first_channel = 8 * config.chunk_piece(part.chunk);
  const unsigned short* const image = x + static_cast<long long>(part.image) * (a.h * a.w * a.c);
#pragma unroll 4
  for (int i = threadIdx.x; i < config.input_rows() * kColumns * kPieces; i += config.threads()) {
    const int piece = i % kPieces, position = i / kPieces;
    const int tile_row = position / kColumns, tile_column = position % kColumns;
    const int row = top + tile_row, column = left + tile_column, channel = first_channel + 8 * piece;
    const bool inside = row >= 0 && row < a.h && column >= 0 && column < a.w && channel < a.c;
    const unsigned short* const from = image + (inside ? (row * a.w + column) * a.c + channel : 0);
    const unsigned there =
        to + piece * kPieceBytes + tile_row * config.row_bytes() + config.column_offset(tile_column);
    if constexpr (config.aligned && a.c % 8 == 0) {
      ptx::cp_async_16(there, from, inside ? 16 : 0);
    } else {
      unsigned words[4] = {};
#pragma unroll
      for (int half = 0; half < 8; ++half)
        if (inside && channel + half < a.c)
          words[half / 2] |= static_cast<unsigned>(from[half]) << (half % 2 * 16);
      ptx::st_shared_v4(there, words);
    }
  }
}

template <DirectGroupedHalf config>
using Sums = float[config.eights][config.rows / 2][4];
// Operands of a step's products, two words for 8 filters.
template <DirectGroupedHalf config>
using Weights = unsigned[config.eights][2];

// Where a warp finds the weights of its eights.
template <DirectGroupedHalf config>
struct WarpWeights {
  unsigned shared;
  Weights<config> kept[config.kept() ? config.steps() : 1];

  __device__ __forceinline__ void load(const float* packed, int first_eight, int lane) {
    if constexpr (config.kept()) {
      const auto* const from = reinterpret_cast<const uint2*>(packed) + lane;
#pragma unroll
      for (int eight = 0; eight < config.eights; ++eight)
#pragma unroll
        for (int step = 0; step < config.steps(); ++step) {
          const uint2 words = from[(first_eight + eight) * (config.eight_words() / 2) + step * 32];
          kept[step][eight][0] = words.x, kept[step][eight][1] = words.y;
        }
    }
  }
  template <int kFirst, int kCount, int kStep>
  __device__ __forceinline__ void get(Weights<config>& to, int turn) const {
#pragma unroll
    for (int eight = kFirst; eight < kFirst + kCount; ++eight) {
      if constexpr (config.kept()) {
        to[eight][0] = kept[kStep][eight][0], to[eight][1] = kept[kStep][eight][1];
      } else {
        int both[2];
        ptx::ld_shared_v2(both[0], both[1],
                          shared + (eight * config.turns() + turn) * (config.steps() * 256) + kStep * 256);
        to[eight][0] = static_cast<unsigned>(both[0]), to[eight][1] = static_cast<unsigned>(both[1]);
      }
    }
  }
};

// A column of the window: 8 pixels of each of its rows, at one column of the filter. Lanes of matrix i stand
// i rows below `from`.
template <DirectGroupedHalf config>
__device__ __forceinline__ void load_column(unsigned (&rows)[config.window_rows()], unsigned from) {
  for_constants<0, (config.window_rows() + 3) / 4>([&](auto four) {
    constexpr int kRow = 4 * four.value, kRest = config.window_rows() - kRow;
    unsigned to[4];
    if constexpr (kRest > 2)
      ptx::ldmatrix_x4(to, from + kRow * config.row_bytes());
    else
      ptx::ldmatrix_x2(to[0], to[1], from + kRow * config.row_bytes());
#pragma unroll
    for (int row = 0; row < 4 && row < kRest; ++row) rows[kRow + row] = to[row];
  });
}

// All products of a strip for kCount eights from kFirst on, which meet the same pieces: `input` is the
// strip's in the first of them.
template <DirectGroupedHalf config, int kFirst, int kCount>
__device__ __forceinline__ void multiply(Sums<config>& sums, unsigned input,
                                         const WarpWeights<config>& weights) {
  constexpr int kSteps = config.steps(), kPieceBytes = static_cast<int>(config.piece_bytes());
#pragma unroll 1
  for (int turn = 0; turn < config.turns(); ++turn) {
    unsigned columns[config.turn_columns()][config.window_rows()];
    Weights<config> b[2];
    weights.template get<kFirst, kCount, 0>(b[0], turn);
    for_constants<0, kSteps>([&](auto step) {
      constexpr int kStep = step.value, kTap = 2 * kStep;
      constexpr int kLoaded = kStep == 0 ? 0 : config.column_of(kTap - 1) + 1;
      for_constants<kLoaded, config.column_of(kTap + 1) + 1>([&](auto column) {
        load_column<config>(columns[column.value],
                            input + column.value / config.conv.s * kPieceBytes +
                                config.column_offset(column.value % config.conv.s * config.conv.dilation_w));
      });
      if constexpr (kStep + 1 < kSteps)
        weights.template get<kFirst, kCount, kStep + 1>(b[(kStep + 1) % 2], turn);
      constexpr bool kTwoTaps = kTap + 1 < config.turn_taps();
      const auto& one = columns[config.column_of(kTap)];
      const auto& other = columns[config.column_of(kTap + 1)];
      constexpr int kRow = config.row_of(kTap) * config.conv.dilation_h;
      constexpr int kOtherRow = config.row_of(kTap + 1) * config.conv.dilation_h;
#pragma unroll
      for (int two = 0; two < config.rows / 2; ++two) {
        const int row = 2 * two * config.conv.stride_h, next = row + config.conv.stride_h;
        const unsigned operand[] = {one[row + kRow], one[next + kRow], kTwoTaps ? other[row + kOtherRow] : 0,
                                    kTwoTaps ? other[next + kOtherRow] : 0};
#pragma unroll
        for (int eight = kFirst; eight < kFirst + kCount; ++eight) {
          if constexpr (config.conv.x_type == ElementType::bf16)
            ptx::mma_m16n8k16_bf16(sums[eight][two], operand, b[kStep % 2][eight]);
          else
            ptx::mma_m16n8k16_f16(sums[eight][two], operand, b[kStep % 2][eight]);
        }
      }
    });
    input += config.turn_pieces() * kPieceBytes;
  }
}

// What a warp stores: strips of its filters.
template <DirectGroupedHalf config>
struct Output {
  static constexpr ConvExtents a = config.conv;
  static constexpr bool kWords = config.aligned && a.k % 2 == 0, kPiecewise = config.aligned && a.k % 8 == 0;
  const unsigned short* residual;  // of the image, as y
  unsigned short* y;
  int first_filter;
  unsigned staging;
  float bias[config.eights][2];

  __device__ static bool exists(int p, int q, int filter) { return p < a.p && q < a.q && filter < a.k; }
  // Two of a residual, as a word.
  __device__ __forceinline__ unsigned more(int p, int q, int filter) const {
    const unsigned short* const from = residual + (p * a.q + q) * a.k + filter;
    if (!exists(p, q, filter)) return 0;
    if constexpr (kWords) return *reinterpret_cast<const unsigned*>(from);
    return from[0] | (filter + 1 < a.k ? static_cast<unsigned>(from[1]) << 16 : 0);
  }

  // The strip that begins at p, q. `trace` becomes NaN if a sum is.
  __device__ __forceinline__ void store(const Sums<config>& sums, int p, int q, int lane,
                                        float& trace) const {
    constexpr int kPitch = config.staging_pitch();
    const int group = lane / 4, thread = lane % 4;
#pragma unroll
    for (int two = 0; two < config.rows / 2; ++two) {
      unsigned added[config.eights][2] = {};  // under way together
      if constexpr (a.residual)
#pragma unroll
        for (int eight = 0; eight < config.eights; ++eight)
#pragma unroll
          for (int row = 0; row < 2; ++row)
            added[eight][row] = more(p + 2 * two + row, q + group, first_filter + 8 * eight + 2 * thread);
#pragma unroll
      for (int eight = 0; eight < config.eights; ++eight)
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          const float low = sums[eight][two][2 * row], high = sums[eight][two][2 * row + 1];
          trace = max_nan(max_nan(trace, low), high);
          const unsigned word = pack_halves<a.y_type>(
              finish<config.conv>(low, bias[eight][0], low_half<a.y_type>(added[eight][row])),
              finish<config.conv>(high, bias[eight][1], high_half<a.y_type>(added[eight][row])));
          ptx::st_shared(staging + (8 * row + group) * kPitch + 16 * eight + 4 * thread, word);
        }
      __syncwarp();
      flush(p + 2 * two, q, lane);
      __syncwarp();  // nobody writes what another still reads
    }
  }
  // Staged outputs of two rows.
  __device__ __forceinline__ void flush(int p, int q, int lane) const {
    constexpr int kEights = config.eights, kPitch = config.staging_pitch();
    if constexpr (kPiecewise) {
#pragma unroll
      for (int i = lane; i < 16 * kEights; i += 32) {
        const int output = i / kEights, filter = first_filter + i % kEights * 8;
        const int row = p + output / 8, column = q + output % 8;
        unsigned piece[4];
        ptx::ld_shared_v4(piece, staging + output * kPitch + i % kEights * 16);
        if (exists(row, column, filter))
          *reinterpret_cast<uint4*>(y + (row * a.q + column) * a.k + filter) =
              make_uint4(piece[0], piece[1], piece[2], piece[3]);
      }
    } else {
#pragma unroll 1
      for (int i = lane; i < 16 * 8 * kEights; i += 32) {
        const int output = i / (8 * kEights), filter = first_filter + i % (8 * kEights);
        const int row = p + output / 8, column = q + output % 8;
        const unsigned bits = ptx::ld_shared_u16(staging + output * kPitch + i % (8 * kEights) * 2);
        if (exists(row, column, filter))
          y[(row * a.q + column) * a.k + filter] = static_cast<unsigned short>(bits);
      }
    }
  }
};

// A tile, slowly: where a sum is NaN.
template <DirectGroupedHalf config>
__device__ __noinline__ void compute_exactly(const void* __restrict__ x, const float* __restrict__ packed,
                                             const void* __restrict__ residual, void* __restrict__ y,
                                             const Part<config>& part) {
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (int i = threadIdx.x; i < config.tile_rows() * config.tile_columns() * config.filters;
       i += config.threads()) {
    const int k = part.first_filter() + i % config.filters, at = i / config.filters;
    const int p = part.p() + at / config.tile_columns(), q = part.q() + at % config.tile_columns();
    if (!Output<config>::exists(p, q, k)) continue;
    const long long to = a.output_offset(part.image, k, p, q);
    const float added = a.residual ? load_element<a.y_type>(residual, to) : 0;
    store_element<a.y_type>(y, to, exact_output<config>(x, packed, part.image, k, p, q, added));
  }
}

template <DirectGroupedHalf config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    direct_grouped_half(const void* __restrict__ x, const float* __restrict__ packed,
                        const void* __restrict__ residual, void* __restrict__ y) {
  constexpr ConvExtents a = config.conv;
  constexpr Packed kPacked = config.packed();
  constexpr DirectGroupedHalf::Smem kSmem = config.smem();
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned shared = ptx::shared_address(smem);
  const Part<config> part(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;

  load_tile<config>(static_cast<const unsigned short*>(x), part, shared + kSmem.input);
  if constexpr (!config.kept()) {
    constexpr int kBytes = 4 * (config.filters / 8) * config.eight_words();
    const auto* const from =
        reinterpret_cast<const unsigned char*>(packed) + static_cast<long long>(part.chunk) * kBytes;
    for (int i = threadIdx.x * 16; i < kBytes; i += config.threads() * 16)
      ptx::cp_async_16(shared + kSmem.weights + i, from + i, 16);
  }
  ptx::cp_async_commit_group();

  const int first_eight = warp % config.parts() * config.eights;  // of the chunk
  const int all_eights = part.chunk * (config.filters / 8) + first_eight;
  WarpWeights<config> weights;
  weights.shared = shared + kSmem.weights + first_eight * (4 * config.eight_words()) + 8 * lane;
  weights.load(packed, all_eights, lane);
  const long long image = static_cast<long long>(part.image) * (a.p * a.q * a.k);
  Output<config> output = {static_cast<const unsigned short*>(residual) + (a.residual ? image : 0),
                           static_cast<unsigned short*>(y) + image, 8 * all_eights,
                           shared + kSmem.staging + warp * (16 * config.staging_pitch())};
  unsigned pieces[config.eights];  // of each eight, for this lane
#pragma unroll
  for (int eight = 0; eight < config.eights; ++eight) {
    pieces[eight] = shared + kSmem.input + lane / 8 * config.row_bytes() + lane % 8 * 16 +
                    config.first_piece(all_eights + eight) * static_cast<int>(config.piece_bytes());
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int filter = 8 * (all_eights + eight) + lane % 4 * 2 + i;
      output.bias[eight][i] = filter < a.k ? packed[kPacked.bias_at() + filter] : 0;
    }
  }
  ptx::cp_async_wait_group<0>();
  __syncthreads();

  float trace = 0;
#pragma unroll 1
  for (int strip = warp / config.parts(); strip < config.strips(); strip += config.strip_warps()) {
    const int down = strip / config.across, across = strip % config.across;
    const int p = part.p() + down * config.rows, q = part.q() + across * 8;
    if (p >= a.p || q >= a.q) continue;
    const unsigned corner = down * (config.rows * a.stride_h * config.row_bytes()) + across * 128;
    Sums<config> sums = {};
    if constexpr (config.shared())
      multiply<config, 0, config.eights>(sums, pieces[0] + corner, weights);
    else
      for_constants<0, config.eights>(
          [&](auto eight) { multiply<config, eight.value, 1>(sums, pieces[eight.value] + corner, weights); });
    output.store(sums, p, q, lane, trace);
  }
  if (__syncthreads_or(trace != trace)) compute_exactly<config>(x, packed, residual, y, part);
}

// The packed weights.
template <DirectGroupedHalf config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_grouped_half(const void* __restrict__ w, const void* __restrict__ bias,
                             unsigned* __restrict__ packed) {
  pack_halves<config>(w, bias, packed);
}

}  // namespace convtune::direct_grouped_half
