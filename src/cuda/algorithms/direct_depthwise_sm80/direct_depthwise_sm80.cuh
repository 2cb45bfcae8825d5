// Depthwise convolution of channels last, on CUDA cores, in exact fp32: each channel has a filter of its own.
// Such layers wait for memory. In NHWC a position's channels lie beside each other, so neighbouring threads
// take neighbouring channels, and all that they load and store are whole runs:
//
//   x, rows of a tile with their margins, `channels` of each position --- cp.async ---> a ring of rows in
//   shared memory, zeros at the padding; rows for the next passes are on their way while this one computes
//   a thread: a channel, its filter in registers; a strip of `rows` x `columns` outputs a turn; input rows go
//   by, and each is multiplied for all output rows that it belongs to
//
// In half precision a thread has two channels, a word: it loads and stores as wide as with floats, and has
// twice the sums and filters in registers; numbers are widened once for all products that they are in. Where
// registers are short, as with 49 weights a channel, it may have one, and reads as often again.
//
// Products are real ones, so numbers that are not finite spread as they should; only an infinite weight must
// not meet the zeros of the padding. pack() flags such weights, and all is then computed by exact_sum.
#include "cuda/algorithms/direct_depthwise_sm80/config.h"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/exact.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_depthwise_sm80 {

// What a block computes.
template <DirectDepthwiseSm80 config>
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
  __device__ int first_channel() const { return chunk * config.channels; }
};

template <ElementType kType>
struct Stored {
  using Type = unsigned short;
};
template <>
struct Stored<ElementType::f32> {
  using Type = float;
};
template <DirectDepthwiseSm80 config>
using Element = typename Stored<config.conv.x_type>::Type;

// Two halves, read one by one; the second where it is there.
__device__ __forceinline__ unsigned halves_at(const unsigned short* __restrict__ from, bool second) {
  return from[0] | (second ? static_cast<unsigned>(from[1]) << 16 : 0);
}

// Rows [begin, end) of a tile's input into the ring, four words at a time where it can be.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void load_rows(const Element<config>* __restrict__ x, float* ring,
                                          const Part<config>& part, int begin, int end) {
  constexpr ConvExtents a = config.conv;
  constexpr int kWidth = config.vectors() && config.aligned ? 4 : 1;
  constexpr int kAcross = config.words_abreast() / kWidth, kColumns = config.input_columns();
  // Threads that load, each always the same channels of a position; 0: they would be more than there are.
  constexpr int kLoaders = kWidth == 4 ? config.threads() / kAcross * kAcross : 0;
  const int top = config.first_row(part.band), left = config.first_column(part.side);
  const Element<config>* image =
      x + static_cast<long long>(part.image) * a.h * a.w * a.c + part.first_channel();
  const unsigned to = ptx::shared_address(ring);
  const int all = end * kColumns;  // positions
  const auto load = [&](int position, int word) {
    const int channel = word * config.word();
    const int tile_row = position / kColumns, tile_column = position % kColumns;
    const int row = top + tile_row, column = left + tile_column;
    const bool inside = (config.all_rows() || (row >= 0 && row < a.h)) &&
                        (config.all_columns() || (column >= 0 && column < a.w)) &&
                        (a.c % config.channels == 0 || part.first_channel() + channel < a.c);
    const Element<config>* from = image + (inside ? (row * a.w + column) * a.c + channel : 0);
    const int there =
        (tile_row % config.ring_rows() * kColumns + tile_column) * config.words_abreast() + word;
    if constexpr (!config.words())
      ptx::st_shared(to + there * 4, inside ? halves_at(from, part.first_channel() + channel + 1 < a.c) : 0u);
    else if constexpr (kWidth == 4)
      ptx::cp_async_16(to + there * 4, from, inside ? 16 : 0);
    else
      ptx::cp_async_4(to + there * 4, from, inside ? 4 : 0);
  };
  if constexpr (kLoaders > 0) {
    if (kLoaders < config.threads() && threadIdx.x >= kLoaders) return;
    const int word = static_cast<int>(threadIdx.x) % kAcross * kWidth;
#pragma unroll 4
    for (int position = begin * kColumns + static_cast<int>(threadIdx.x) / kAcross; position < all;
         position += kLoaders / kAcross)
      load(position, word);
  } else {
#pragma unroll 1
    for (int i = begin * kColumns * kAcross + static_cast<int>(threadIdx.x); i < all * kAcross;
         i += config.threads())
      load(i / kAcross, i % kAcross * kWidth);
  }
}

template <DirectDepthwiseSm80 config>
using Channels = float[config.width];
template <DirectDepthwiseSm80 config>
using Sums = Channels<config>[config.rows][config.columns];

// From a word, or from a half.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void widen(Channels<config>& channels, unsigned bits) {
  if constexpr (config.word() == 1)
    channels[0] = __uint_as_float(bits);
  else
    channels[0] = low_half<config.conv.x_type>(bits);
  if constexpr (config.width == 2) channels[1] = high_half<config.conv.x_type>(bits);
}

// A strip's input: `columns` is the ring at its first column and its channel, `slot` where its first row is.
template <DirectDepthwiseSm80 config>
struct Strip {
  unsigned columns;
  int slot;

  __device__ __forceinline__ unsigned row(int tile_row) const {
    constexpr bool kWraps = config.ring_rows() < config.input_rows();
    const bool wraps = kWraps && slot + tile_row >= config.ring_rows();
    return columns + (slot + tile_row - (wraps ? config.ring_rows() : 0)) * (config.row_words() * 4);
  }
  // What the strip meets of a row.
  __device__ __forceinline__ void read(Channels<config> (&x)[config.strip_columns()], unsigned row) const {
#pragma unroll
    for (int column = 0; column < config.strip_columns(); ++column)
      if (config.uses_column(column)) {
        const unsigned from = row + config.tile_column(0, column) * config.position_bytes();
        if constexpr (config.width == config.word())
          widen<config>(x[column], ptx::ld_shared(from));
        else
          widen<config>(x[column], ptx::ld_shared_u16(from));
      }
  }
};

// A filter row's products with an input row.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void multiply_row(Channels<config> (&sums)[config.columns],
                                             const Channels<config> (&x)[config.strip_columns()],
                                             const Channels<config> (&weights)[config.conv.s]) {
#pragma unroll
  for (int s = 0; s < config.conv.s; ++s)
#pragma unroll
    for (int column = 0; column < config.columns; ++column) {
      const int at = column * config.conv.stride_w + s * config.conv.dilation_w;
      if (!config.has_column(at)) continue;
#pragma unroll
      for (int channel = 0; channel < config.width; ++channel)
        sums[column][channel] = fmaf(x[at][channel], weights[s][channel], sums[column][channel]);
    }
}

// A tap of all channels of a thread.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void read_tap(Channels<config>& to, const float* __restrict__ from) {
  if constexpr (config.width == 1) {
    to[0] = *from;
  } else {
    const float2 both = *reinterpret_cast<const float2*>(from);
    to[0] = both.x, to[1] = both.y;
  }
}

// A thread's filters, in registers: input rows go by, each read once.
template <DirectDepthwiseSm80 config>
struct KeptFilter {
  static constexpr int kRow = config.conv.s;
  Channels<config> kept[config.conv.r][kRow];

  __device__ __forceinline__ explicit KeptFilter(const float* packed) {
#pragma unroll
    for (int r = 0; r < config.conv.r; ++r)
#pragma unroll
      for (int s = 0; s < kRow; ++s)
        read_tap<config>(kept[r][s], packed + (r * kRow + s) * config.packed_channels());
  }
  __device__ __forceinline__ void multiply(Sums<config>& sums, const Strip<config>& strip) const {
#pragma unroll
    for (int from = 0; from < config.strip_rows(); ++from) {
      if (!config.uses_row(from)) continue;
      Channels<config> x[config.strip_columns()];
      strip.read(x, strip.row(config.tile_row(0, from)));
#pragma unroll
      for (int r = config.conv.r - 1; r >= 0; --r) {
        const int distance = from - r * config.conv.dilation_h;  // to the strip's output row
        if (distance < 0 || distance % config.conv.stride_h != 0) continue;
        const int output = distance / config.conv.stride_h;
        if (output < config.rows) multiply_row<config>(sums[output], x, kept[r]);
      }
    }
  }
};

// Those too large for that: their rows go by.
template <DirectDepthwiseSm80 config>
struct LargeFilter {
  const float* packed;

  __device__ __forceinline__ explicit LargeFilter(const float* from) : packed(from) {}
  __device__ __forceinline__ void multiply(Sums<config>& sums, const Strip<config>& strip) const {
    constexpr ConvExtents a = config.conv;
#pragma unroll 1
    for (int r = 0; r < a.r; ++r) {
      Channels<config> weights[a.s];
#pragma unroll
      for (int s = 0; s < a.s; ++s)
        read_tap<config>(weights[s], packed + (r * a.s + s) * config.packed_channels());
#pragma unroll
      for (int output = 0; output < config.rows; ++output) {
        const int tile_row = config.tile_row(0, output * a.stride_h + r * a.dilation_h);
        if (config.all_rows() && (tile_row < 0 || tile_row >= a.h)) continue;
        Channels<config> x[config.strip_columns()];
        strip.read(x, strip.row(tile_row));
        multiply_row<config>(sums[output], x, weights);
      }
    }
  }
};

template <bool kKept, DirectDepthwiseSm80 config>
struct FilterOf {
  using Type = LargeFilter<config>;
};
template <DirectDepthwiseSm80 config>
struct FilterOf<true, config> {
  using Type = KeptFilter<config>;
};

// Whether a strip's output is one of the image's; p, q: the first.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ bool is_output(int p, int q, int row, int column) {
  constexpr ConvExtents a = config.conv;
  return (a.p % config.rows == 0 || p + row < a.p) && (a.q % config.columns == 0 || q + column < a.q);
}

// The four threads that have the same strip of neighbouring words.
__device__ __forceinline__ void sync_neighbours() {
  __syncwarp(0xfu << (threadIdx.x % 32 / 4 * 4));
}

// What is added to a strip's outputs, on its way: each of four neighbours copies every fourth output of all
// four, 16 bytes. Words of its own would come through L1, of which shared memory leaves little.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void fetch_residual(const Element<config>* __restrict__ residual, unsigned to,
                                               int p, int q) {
  constexpr ConvExtents a = config.conv;
  const int neighbour = static_cast<int>(threadIdx.x) % 4;
  const Element<config>* const from = residual - neighbour * config.word();
  const unsigned there = to - 4 * neighbour;
#pragma unroll
  for (int begin = 0; begin < config.rows * config.columns; begin += 4) {
    const int output = begin + neighbour, row = output / config.columns, column = output % config.columns;
    if ((begin + 4 <= config.rows * config.columns || row < config.rows) &&
        is_output<config>(p, q, row, column))
      ptx::cp_async_16(there + 4 * output * config.threads(), from + (row * a.q + column) * a.c, 16);
  }
}

// `to`: the strip's first output, which is p, q; `residual`: what is added to it, which is in shared memory
// from `waiting` on where it has been fetched. `both`: a word's second channel is there.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void store(const Sums<config>& sums, const Channels<config>& bias,
                                      const Element<config>* __restrict__ residual, unsigned waiting,
                                      Element<config>* __restrict__ to, int p, int q, bool both) {
  constexpr ConvExtents a = config.conv;
  const auto exists = [&](int row, int column) { return is_output<config>(p, q, row, column); };
  constexpr int kTogether = config.residual_by_rows || config.waits() ? 1 : config.rows;
#pragma unroll
  for (int begin = 0; begin < config.rows; begin += kTogether) {
    const auto each = [&](const auto& output) {
#pragma unroll
      for (int row = begin; row < lesser(begin + kTogether, config.rows); ++row)
#pragma unroll
        for (int column = 0; column < config.columns; ++column)
          output(row, column, (row * a.q + column) * a.c);
    };
    // Opaque, or rows to come would be loaded, and kept, before this one is stored.
    if constexpr (config.residual_by_rows) asm volatile("" : "+l"(residual)::"memory");
    unsigned residuals[kTogether][config.columns] = {};  // under way together
    if constexpr (a.residual)
      each([&](int row, int column, int at) {
        if (!exists(row, column)) return;
        unsigned& word = residuals[row - begin][column];
        if constexpr (config.waits())
          word = ptx::ld_shared(waiting + 4 * (row * config.columns + column) * config.threads());
        else if constexpr (config.width < config.word())
          word = residual[at];
        else if constexpr (config.words())
          word = *reinterpret_cast<const unsigned*>(residual + at);
        else
          word = halves_at(residual + at, both);
      });
    each([&](int row, int column, int at) {
      const Channels<config>& sum = sums[row][column];
      const unsigned added = residuals[row - begin][column];
      if constexpr (config.width == 1) {
        Channels<config> more;
        widen<config>(more, added);
        const float value = finish<config.conv, SumsBegin::at_bias>(sum[0], bias[0], more[0]);
        if constexpr (config.word() == 1)
          ptx::st_global_if(to + at, value, exists(row, column));
        else if (exists(row, column))
          to[at] = static_cast<unsigned short>(pack_halves<a.y_type>(value, 0));
      } else {
        const unsigned word =
            finish_halves<config.conv, SumsBegin::at_bias>(sum[0], bias[0], sum[1], bias[1], added);
        if constexpr (config.words()) {
          ptx::st_global_if(reinterpret_cast<float*>(to + at), __uint_as_float(word), exists(row, column));
        } else if (exists(row, column)) {
          to[at] = static_cast<unsigned short>(word);
          if (both) to[at + 1] = static_cast<unsigned short>(word >> 16);
        }
      }
    });
  }
}

// Everything, slowly: where a weight is not finite.
template <DirectDepthwiseSm80 config>
__device__ __noinline__ void compute_exactly(const void* __restrict__ x, const float* __restrict__ packed,
                                             void* __restrict__ y, const void* __restrict__ residual,
                                             const Part<config>& part) {
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (int i = threadIdx.x; i < config.tile_rows() * config.tile_columns() * config.channels;
       i += config.threads()) {
    const int k = part.first_channel() + i % config.channels, at = i / config.channels;
    const int p = part.band * config.tile_rows() + at / config.tile_columns();
    const int q = part.side * config.tile_columns() + at % config.tile_columns();
    if (p >= a.p || q >= a.q || k >= a.c) continue;
    store_exact_output<config>(x, packed, residual, y, part.image, k, p, q);
  }
}

template <DirectDepthwiseSm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    direct_depthwise_sm80(const void* __restrict__ x, const float* __restrict__ packed,
                          const void* __restrict__ residual, void* __restrict__ y) {
  ptx::wait_for_earlier_grids(packed);
  constexpr ConvExtents a = config.conv;
  constexpr Packed kPacked = config.packed();
  using Element = typename Stored<a.x_type>::Type;
  extern __shared__ __align__(16) float ring[];
  const Part<config> part(blockIdx.x);
  const bool finite = packed[kPacked.flag_at()] == 0;
  // Threads of nobody's strip load, too, and compute what is not stored.
  const int thread = threadIdx.x < config.used_threads() ? static_cast<int>(threadIdx.x) : 0;
  const int strip = thread / config.lanes(), first = thread % config.lanes() * config.width;
  const int down = strip / config.across, across = strip % config.across;
  const int k = part.first_channel() + first;
  const int q = part.side * config.tile_columns() + across * config.columns;
  const bool exists = threadIdx.x < config.used_threads() && k < a.c && q < a.q;
  const typename FilterOf<config.weights_in_registers(), config>::Type filter(packed + k);
  Channels<config> bias;
#pragma unroll
  for (int channel = 0; channel < config.width; ++channel)
    bias[channel] = packed[kPacked.bias_at() + k + channel];

  const unsigned columns = ptx::shared_address(ring) +
                           across * config.columns * a.stride_w * config.position_bytes() +
                           first * size_of(a.x_type);
  int slot = down * config.rows * a.stride_h;
  int p = part.band * config.tile_rows() + down * config.rows;
  const auto* const residuals = static_cast<const Element*>(residual);
  const unsigned waiting = ptx::shared_address(ring) + config.residual_at() + 4 * threadIdx.x;
  auto* const outputs = static_cast<Element*>(y);
  Element* to = outputs + static_cast<long long>(part.image) * a.p * a.q * a.c + (p * a.q + q) * a.c + k;
#pragma unroll 1
  for (int step = 0; step < config.passes + config.ahead; ++step) {
    if (step >= config.ahead) {
      ptx::cp_async_wait_group<config.waits() ? 2 * config.ahead - 1 : config.ahead - 1>();
      __syncthreads();  // this turn has its rows, and nobody needs those that the last one left behind
      if (!finite) {
        ptx::cp_async_wait_group<0>();
        compute_exactly<config>(x, packed, y, residual, part);
        return;
      }
    }
    if (step < config.passes) {
      const int begin = step == 0 ? 0 : config.rows_for(1) + (step - 1) * config.pass_input_rows();
      const int end = config.rows_for(1) + step * config.pass_input_rows();
      load_rows<config>(static_cast<const Element*>(x), ring, part, begin, end);
    }
    ptx::cp_async_commit_group();
    if constexpr (config.waits())
      if (step < config.ahead) {  // nobody has taken one yet
        if (step == config.ahead - 1 && exists && p < a.p)
          fetch_residual<config>(residuals + (to - outputs), waiting, p, q);
        ptx::cp_async_commit_group();
      }
    if (step < config.ahead) continue;
    if (exists && p < a.p) {
      Sums<config> sums;
#pragma unroll
      for (int row = 0; row < config.rows; ++row)
#pragma unroll
        for (int column = 0; column < config.columns; ++column)
#pragma unroll
          for (int channel = 0; channel < config.width; ++channel)
            sums[row][column][channel] = a.eager ? 0 : bias[channel];
      filter.multiply(sums, {columns, slot});
      if constexpr (config.waits()) {
        ptx::cp_async_wait_group<1>();
        sync_neighbours();
      }
      store<config>(sums, bias, residuals + (a.residual ? to - outputs : 0), waiting, to, p, q, k + 1 < a.c);
    }
    slot += config.pass_input_rows();
    if (slot >= config.ring_rows()) slot -= config.ring_rows();
    p += config.pass_rows();
    to += static_cast<long long>(config.pass_rows()) * a.q * a.c;
    if constexpr (config.waits()) {
      if (step + 1 < config.passes + config.ahead && exists && p < a.p) {
        sync_neighbours();  // they have read what was there
        fetch_residual<config>(residuals + (to - outputs), waiting, p, q);
      }
      ptx::cp_async_commit_group();
    }
  }
}

// The packed weights. The flag must be 0 before.
template <DirectDepthwiseSm80 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_depthwise_sm80(const void* __restrict__ w, const void* __restrict__ bias,
                               unsigned* __restrict__ packed) {
  pack<config>(w, bias, packed, __float_as_uint);
}

}  // namespace convtune::direct_depthwise_sm80
