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
#include "cuda/algorithms/direct_depthwise_half/config.h"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/exact.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_depthwise_half {

// Of the planes in shared memory, in bytes: constants for certain, which a search for the best pitch is not.
template <DirectDepthwiseHalf config>
struct Planes {
  static constexpr DirectDepthwiseHalf::Pitch kPitch = config.pitch();
  static constexpr int kRow = kPitch.row, kImage = kPitch.image, kPlane = config.plane_bytes(),
                       kOctet = config.octet_bytes();
  static constexpr DirectDepthwiseHalf::Outputs kOutputs = config.outputs();
};

// What a block computes: chunks beside each other, so that one finds in L2 what another has read of a line.
template <DirectDepthwiseHalf config>
struct Part {
  int chunk, side, level, image;

  __device__ explicit Part(unsigned block) {
    chunk = static_cast<int>(block % config.chunks());
    block /= config.chunks();
    side = static_cast<int>(block % config.sides());
    block /= config.sides();
    level = static_cast<int>(block % config.levels());
    image = static_cast<int>(block / config.levels()) * config.images;
  }
  __device__ int first_channel() const { return chunk * config.channels(); }
  __device__ int p() const { return level * config.tile_rows(); }
  __device__ int q() const { return side * config.tile_columns(); }
  __device__ bool has_image(int of_tile) const {
    return config.conv.n % config.images == 0 || image + of_tile < config.conv.n;
  }
};

// Eight channels of a pixel.
template <bool kAligned>
__device__ __forceinline__ uint4 octet_at(const unsigned short* __restrict__ from) {
  if constexpr (kAligned) {
    unsigned words[4];
    ptx::ld_global_v4_uncached(words, from);
    return {words[0], words[1], words[2], words[3]};
  }
  const auto word = [&](int i) { return from[2 * i] | static_cast<unsigned>(from[2 * i + 1]) << 16; };
  return {word(0), word(1), word(2), word(3)};
}

// f(first row, piece) for a thread's share of rows of pieces: it has the same piece of every
// rows_abreast()-th row, so that a row is a constant away from the one before.
template <DirectDepthwiseHalf config, int kPieces, class F>
__device__ __forceinline__ void for_pieces(const F& f) {
  constexpr int kAbreast = config.rows_abreast(kPieces);
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = kPieces > config.threads() ? 0 : thread / kPieces;
  if (kAbreast * kPieces < config.threads() && first_row >= kAbreast) return;
#pragma unroll 1
  for (int piece = kPieces > config.threads() ? thread : thread % kPieces; piece < kPieces;
       piece += config.threads())
    f(first_row, piece);
}

// A tile's input into planes, eights of channels of two pixels by threads. Zeros where there is no image.
template <DirectDepthwiseHalf config>
__device__ __forceinline__ void load_tile(const unsigned short* __restrict__ x, const Part<config>& part,
                                          unsigned to) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPieces = config.column_pairs() * config.octets, kAll = config.images * config.input_rows();
  constexpr int kAbreast = config.rows_abreast(kPieces), kBatch = config.loads_together();
  const int top = config.first_row(part.level), left = config.first_column(part.side);
  const unsigned short* const image = x + static_cast<long long>(part.image) * (a.h * a.w * a.c);
  for_pieces<config, kPieces>([&](int first_row, int piece) {
    const int octet = piece % config.octets, pair = piece / config.octets;
    const int channel = part.first_channel() + 8 * octet;
    const bool has_channel = a.c % config.channels() == 0 || channel < a.c;
    const bool has[2] = {has_channel && static_cast<unsigned>(left + 2 * pair) < a.w,
                         has_channel && static_cast<unsigned>(left + 2 * pair + 1) < a.w};
    const unsigned plane = to + octet * Planes<config>::kOctet + 4 * pair;
    const unsigned short* const pixels = image + ((top + first_row) * a.w + left + 2 * pair) * a.c + channel;
#pragma unroll 1
    for (int begin = 0; begin < kAll; begin += kBatch * kAbreast) {
      uint4 loaded[kBatch][2] = {};
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = begin + i * kAbreast + first_row;
        const int of_tile = config.images == 1 ? 0 : row / config.input_rows();
        const int image_row = top + row - of_tile * config.input_rows();
        const bool here = row < kAll && static_cast<unsigned>(image_row) < a.h && part.has_image(of_tile);
        const unsigned short* const from = pixels + (begin + i * kAbreast) * (a.w * a.c) +
                                           of_tile * ((a.h - config.input_rows()) * a.w * a.c);
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (here && has[j] && 2 * pair + j < config.read_columns())
            loaded[i][j] = octet_at<config.aligned>(from + j * a.c);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = begin + i * kAbreast + first_row;
        if (kAll % (kBatch * kAbreast) != 0 && row >= kAll) break;
        const int of_tile = config.images == 1 ? 0 : row / config.input_rows();
        const unsigned there = plane + of_tile * Planes<config>::kImage +
                               (row - of_tile * config.input_rows()) * Planes<config>::kRow;
        const unsigned one[4] = {loaded[i][0].x, loaded[i][0].y, loaded[i][0].z, loaded[i][0].w};
        const unsigned next[4] = {loaded[i][1].x, loaded[i][1].y, loaded[i][1].z, loaded[i][1].w};
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const unsigned at = there + 2 * word * Planes<config>::kPlane;
          ptx::st_shared(at, __byte_perm(one[word], next[word], 0x5410));
          ptx::st_shared(at + Planes<config>::kPlane, __byte_perm(one[word], next[word], 0x7632));
        }
      }
    }
  });
}

// What is added to a tile's outputs to where they will be, eights of channels of a pixel by threads: words of
// two channels as they come. As copies of words they would each take lines of L1 until they have come, and
// shared memory leaves few: that was as slow as reading them where they are added.
template <DirectDepthwiseHalf config>
__device__ __forceinline__ void load_residual(const unsigned short* __restrict__ residual,
                                              const Part<config>& part, unsigned to) {
  constexpr ConvExtents a = config.conv;
  constexpr DirectDepthwiseHalf::Outputs kTo = Planes<config>::kOutputs;
  constexpr int kPieces = config.tile_columns() * config.octets, kAll = config.images * config.tile_rows();
  constexpr int kAbreast = config.rows_abreast(kPieces), kBatch = config.residuals_together();
  const unsigned short* const from = residual + static_cast<long long>(part.image) * (a.p * a.q * a.c);
  for_pieces<config, kPieces>([&](int first_row, int piece) {
    const int octet = piece % config.octets, column = piece / config.octets;
    const int q = part.q() + column, channel = part.first_channel() + 8 * octet;
    const bool exists =
        (a.q % config.tile_columns() == 0 || q < a.q) && (a.c % config.channels() == 0 || channel < a.c);
    const unsigned pairs = to + octet * kTo.octet + kTo.offset(0, 0, column);
    const unsigned short* const pixels = from + (part.p() * a.q + q) * a.c + channel;
#pragma unroll 1
    for (int begin = first_row; begin < kAll; begin += kBatch * kAbreast) {
      uint4 loaded[kBatch] = {};
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = begin + i * kAbreast, image = config.images == 1 ? 0 : row / config.tile_rows();
        const int of_image = row - image * config.tile_rows();
        if (exists && row < kAll && part.has_image(image) &&
            (a.p % config.tile_rows() == 0 || part.p() + of_image < a.p))
          loaded[i] = octet_at<config.aligned>(pixels + (image * a.p + of_image) * (a.q * a.c));
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = begin + i * kAbreast, image = config.images == 1 ? 0 : row / config.tile_rows();
        if (kAll % (kBatch * kAbreast) != 0 && row >= kAll) break;
        const unsigned there = pairs + image * kTo.image + (row - image * config.tile_rows()) * kTo.row;
        const unsigned words[4] = {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w};
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) ptx::st_shared(there + pair * kTo.pair, words[pair]);
      }
    }
  });
}

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
  unsigned offset;  // of its first outputs

  __device__ __forceinline__ Strip(int m, int lane)
      : exists(config.is_strip(m)),
        offset(Planes<config>::kOutputs.offset(config.strip_image(m), config.strip_band(m) * config.rows,
                                               config.strip_across(m) * 8 + lane % 4 * 2)) {}
};

// What a warp does with two channels of all strips.
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

// Outputs of a tile from shared memory, eight channels at a time.
template <DirectDepthwiseHalf config>
__device__ __forceinline__ void store_tile(unsigned short* __restrict__ y, const Part<config>& part,
                                           unsigned from) {
  constexpr ConvExtents a = config.conv;
  constexpr DirectDepthwiseHalf::Outputs kFrom = Planes<config>::kOutputs;
  constexpr int kPieces = config.tile_columns() * config.octets, kAll = config.images * config.tile_rows();
  unsigned short* const to = y + static_cast<long long>(part.image) * (a.p * a.q * a.c);
  for_pieces<config, kPieces>([&](int first_row, int piece) {
    const int octet = piece % config.octets, column = config.stored_column(piece / config.octets);
    const int q = part.q() + column, channel = part.first_channel() + 8 * octet;
    const bool exists =
        (a.q % config.tile_columns() == 0 || q < a.q) && (a.c % config.channels() == 0 || channel < a.c);
    const unsigned pairs = from + octet * kFrom.octet + kFrom.offset(0, 0, column);
    unsigned short* const pixels = to + (part.p() * a.q + q) * a.c + channel;
#pragma unroll 4
    for (int row = first_row; row < kAll; row += config.rows_abreast(kPieces)) {
      const int image = config.images == 1 ? 0 : row / config.tile_rows();
      const int of_image = row - image * config.tile_rows();
      const bool here =
          exists && part.has_image(image) && (a.p % config.tile_rows() == 0 || part.p() + of_image < a.p);
      const unsigned there = pairs + image * kFrom.image + of_image * kFrom.row;
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = ptx::ld_shared(there + i * kFrom.pair);
      unsigned short* const first = pixels + (image * a.p + of_image) * (a.q * a.c);
      if constexpr (config.aligned) {
        ptx::st_global_v4_if(first, words, here);
      } else if (here) {
#pragma unroll
        for (int i = 0; i < 8; ++i) first[i] = static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16));
      }
    }
  });
}

// All outputs of the block, slowly: where a sum is NaN.
template <DirectDepthwiseHalf config>
__device__ __noinline__ void compute_exactly(const void* __restrict__ x, const float* __restrict__ packed,
                                             const void* __restrict__ residual, void* __restrict__ y,
                                             const Part<config>& part) {
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (int i = threadIdx.x; i < config.tile_pixels() * config.channels(); i += config.threads()) {
    const int channel = part.first_channel() + i % config.channels(), pixel = i / config.channels();
    const int row = pixel / config.tile_columns(), image = part.image + row / config.tile_rows();
    const int p = part.p() + row % config.tile_rows(), q = part.q() + pixel % config.tile_columns();
    if (image >= a.n || p >= a.p || q >= a.q || channel >= a.c) continue;
    store_exact_output<config>(x, packed, residual, y, image, channel, p, q);
  }
}

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
