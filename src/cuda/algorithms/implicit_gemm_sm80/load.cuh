// The loading half of implicit_gemm_sm80.cuh: where a block's positions are in the input, and one block of
// terms after the other copied into the ring of stages.
#pragma once

#include "cuda/algorithms/implicit_gemm_sm80/config.h"
#include "cuda/ptx/gather.cuh"
#include "cuda/ptx/several.cuh"
#include "cuda/tile/constants.cuh"

namespace convtune::implicit_gemm_sm80 {

// The problem: numbers that the compiler knows, or a parameter of the launch.
template <ImplicitGemmSm80 config>
__device__ __forceinline__ ConvExtents extents(const ConvExtents& given) {
  if constexpr (config.specialized) return config.conv;
  ConvExtents a = given;
  a.nhwc = config.conv.nhwc, a.activation = config.conv.activation;
  return a;
}

// 64-bit divisions take ten times as long as 32-bit ones, and are hardly ever needed.
__device__ __forceinline__ long long divide(long long a, long long b) {
  if ((a | b) >> 32 == 0) return static_cast<unsigned>(a) / static_cast<unsigned>(b);
  return a / b;
}

// An output position's window in the input: its first element, which may lie in the padding.
struct Column {
  long long offset;
  int row, column;
};
struct Position {
  int image, p, q;
  int frame = 0;
};
template <ImplicitGemmSm80 config>
__device__ __forceinline__ Position position(const ConvExtents& a, long long index) {
  if constexpr (config.specialized && config.positions(config.conv) < 1LL << 31) {
    const unsigned place = static_cast<unsigned>(index), row = place / a.q, image = row / a.p;
    if constexpr (config.has_frames())
      return {static_cast<int>(image / a.z), static_cast<int>(row % a.p), static_cast<int>(place % a.q),
              static_cast<int>(image % a.z)};
    return {static_cast<int>(image), static_cast<int>(row - image * a.p),
            static_cast<int>(place - row * a.q)};
  }
  const long long pixels = static_cast<long long>(a.p) * a.q;
  const long long image = divide(index, pixels), pixel = index - image * pixels, p = divide(pixel, a.q);
  return {static_cast<int>(image), static_cast<int>(p), static_cast<int>(pixel - p * a.q)};
}

// The tile of this block.
struct Tile {
  int group, m_block;
  long long first_position;
};
template <ImplicitGemmSm80 config>
__device__ __forceinline__ Tile tile_of_block(const ConvExtents& a) {
  // Blocks of the same positions are neighbours: the first brings the input into the L2 for the others.
  const unsigned m_blocks = config.m_blocks(a), n_blocks = static_cast<unsigned>(config.n_blocks(a));
  const unsigned block = blockIdx.x / m_blocks;
  return {static_cast<int>(block / n_blocks), static_cast<int>(blockIdx.x % m_blocks),
          static_cast<long long>(block % n_blocks) * config.block_n};
}

// Shared memory: the block's positions in the input and in the output (-1: there is none), and the ring.
template <ImplicitGemmSm80 config>
struct Smem {
  static constexpr auto kAt = config.smem();
  Column* columns;
  long long* outputs;
  unsigned* ring;
  __device__ explicit Smem(unsigned* memory)
      : columns(reinterpret_cast<Column*>(memory + kAt.columns)),
        outputs(reinterpret_cast<long long*>(memory + kAt.outputs)),
        ring(memory + kAt.ring) {}
};

template <ImplicitGemmSm80 config>
__device__ __forceinline__ void find_positions(const ConvExtents& a, const Tile& tile,
                                               const Smem<config>& smem) {
#pragma unroll 1
  for (int i = threadIdx.x; i < config.block_n; i += config.threads()) {
    const long long index = tile.first_position + i;
    const bool exists = index < config.positions(a);
    const Position at = exists ? position<config>(a, index) : Position{0, 0, 0};
    const int row = at.p * a.stride_h - a.pad_top, column = at.q * a.stride_w - a.pad_left;
    if constexpr (config.has_frames()) {
      smem.columns[i] = {a.input_offset(at.image, tile.group * a.group_channels(),
                                        at.frame * a.stride_d - a.pad_front, row, column),
                         exists ? row : -config.kOutside / 2, column};
      smem.outputs[i] =
          exists ? a.output_offset(at.image, tile.group * a.group_filters(), at.frame, at.p, at.q) : -1;
      continue;
    }
    smem.columns[i] = {a.input_offset(at.image, tile.group * a.group_channels(), row, column),
                       exists ? row : -config.kOutside / 2, column};
    smem.outputs[i] = exists ? a.output_offset(at.image, tile.group * a.group_filters(), at.p, at.q) : -1;
  }
}

__device__ __forceinline__ bool inside(const ConvExtents& a, int row, int column) {
  return static_cast<unsigned>(row) < static_cast<unsigned>(a.h) &&
         static_cast<unsigned>(column) < static_cast<unsigned>(a.w);
}

// A number to be kept in a register: left alone, the compiler computes it again in every block of terms.
__device__ __forceinline__ void keep(unsigned& value) {
  asm volatile("" : "+r"(value));
}
template <class T>
__device__ __forceinline__ void keep(T*& value) {
  asm volatile("" : "+l"(value));
}

// Copies blocks of terms in their order, one a call. A copy of 0 bytes writes zeros; its address, which may
// lie outside the tensor, is not followed.
template <ImplicitGemmSm80 config>
class Loader {
  static constexpr int kThreads = config.threads(), kBlockN = config.block_n, kBlockK = config.block_k;

 public:
  __device__ __forceinline__ Loader(const ConvExtents& a, const Tile& tile, const float* x,
                                    const float* packed, const Smem<config>& smem)
      : a_(a),
        x_(x),
        columns_(smem.columns),
        table_(ptx::shared_address(columns_)),
        ring_(ptx::shared_address(smem.ring)) {
    const int thread = threadIdx.x;
    weights_ = reinterpret_cast<const unsigned*>(packed) + 4 * thread +
               (static_cast<long long>(tile.group) * config.m_blocks(a) + tile.m_block) * config.k_blocks(a) *
                   config.weight_words();
    taps_ = reinterpret_cast<const int4*>(packed + config.taps_at(a));
    if constexpr (!config.conv.nhwc) {
      const bool wide = config.wide_input(a);
      const int row = wide ? thread / (kBlockN / 4) : first_row();
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int place = wide ? thread % (kBlockN / 4) * 4 : column_of(i);
        const Column column = smem.columns[place];
        from_[i] = x + column.offset + (config.chunked ? row * plane() : 0);
        row_[i] = column.row, column_[i] = column.column;
        if constexpr (config.pads_frames())
          frame_[i] = position<config>(a, tile.first_position + place).frame * a.stride_d - a.pad_front;
        to_[i] = ring_ + 4 * (config.weight_words() + row * config.input_pitch() + place);
        keep(from_[i]), keep(to_[i]);
      }
    }
    ring_ += 16 * thread;
    keep(weights_), keep(ring_), keep(x_);
  }

  // Into the stage that is `at` bytes on.
  __device__ __forceinline__ void load(unsigned at) {
    constexpr int kPieces = config.weight_words() / 4;
    for_constants<0, ceil_div(kPieces, kThreads)>([&](auto i) {
      constexpr int kPiece = i.value * kThreads;
      if (kPiece + kThreads <= kPieces || threadIdx.x < kPieces - kPiece)
        ptx::cp_async_16_cached<16 * kPiece>(ring_ + at + 16 * kPiece, weights_, 16);
    });
    weights_ += config.weight_words();
    if constexpr (!config.chunked && config.conv.nhwc)
      load_last_flat(at);
    else if constexpr (!config.chunked)
      load_first_flat(at);
    else if constexpr (config.specialized)
      load_chunk<config.wide_input(config.conv)>(at);
    else
      config.wide_input(a_) ? load_chunk<true>(at) : load_chunk<false>(at);
    if constexpr (config.chunked)
      next_tap();
    else
      taps_ += kBlockK;
  }

 private:
  // Channels first: a thread has a column of the tile, or some, and every so many of its rows.
  static constexpr int kColumns = kBlockN > kThreads ? kBlockN / kThreads : 1;
  static constexpr int kRowStep = kBlockN > kThreads ? 1 : kThreads / kBlockN;
  static __device__ __forceinline__ int column_of(int i) {
    return threadIdx.x % kBlockN + i * kThreads;
  }
  static __device__ __forceinline__ int first_row() {
    return kRowStep == 1 ? 0 : threadIdx.x / kBlockN;
  }
  __device__ __forceinline__ long long plane() const {
    return static_cast<long long>(a_.h) * a_.w;
  }

  // Chunks: the tap, and how far it is from the first term of all.
  __device__ __forceinline__ void next_tap() {
    const long long step = config.conv.nhwc ? a_.c : 1, width = step * a_.w;
    offset_ += a_.dilation_w * step;
    dw_ += a_.dilation_w;
    if (dw_ < a_.s * a_.dilation_w) return;
    dw_ = 0;
    offset_ += a_.dilation_h * width - a_.s * a_.dilation_w * step;
    dh_ += a_.dilation_h;
    if (dh_ < a_.r * a_.dilation_h) return;
    dh_ = 0;
    offset_ += kBlockK * (config.conv.nhwc ? 1 : plane()) - a_.r * a_.dilation_h * width;
    channel_ += kBlockK;
  }

  // Copies kSize bytes for each of kCount rows of the tile, kStep of them apart.
  template <int kSize, int kCount, int kStep>
  __device__ __forceinline__ void copy_rows(unsigned to, const float* from, int first, bool exists) {
    const int channels = a_.group_channels() - channel_;  // left
    const bool whole = a_.group_channels() % kBlockK == 0;
    constexpr long long kPlane = config.specialized ? 4LL * kStep * config.conv.h * config.conv.w : 0;
    if constexpr (config.specialized && config.conv.group_channels() % kBlockK == 0 && kCount % 4 == 0 &&
                  kBlockK % kStep == 0 && kCount * kPlane < 1LL << 31) {
      for_constants<0, kCount / 4>([&](auto i) {
        ptx::cp_async_four<kSize, 4 * i.value, 4 * kStep * config.input_pitch(), static_cast<int>(kPlane)>(
            to, from, exists ? kSize : 0);
      });
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int row = i * kStep;
        if (kBlockK % kStep != 0 && first + row >= kBlockK) break;
        const unsigned bytes = exists && (whole || first + row < channels) ? kSize : 0;
        const unsigned there = to + 4 * row * config.input_pitch();
        if constexpr (kSize == 4)
          ptx::cp_async_4(there, from + row * plane(), bytes);
        else
          ptx::cp_async_16_cached(there, from + row * plane(), bytes);
      }
    }
  }

  template <bool kWide>
  __device__ __forceinline__ void load_chunk(unsigned at) {
    if constexpr (config.conv.nhwc)
      load_last_chunk<kWide>(at);
    else
      load_first_chunk<kWide>(at);
  }

  template <bool kWide>
  __device__ __forceinline__ void load_first_chunk(unsigned at) {
    if constexpr (kWide) {  // rows of the tile lie in the input as they are
      constexpr int kStep = kThreads / (kBlockN / 4);
      const bool exists = row_[0] >= 0;
      copy_rows<16, ceil_div(kBlockK, kStep), kStep>(to_[0] + at, from_[0] + offset_,
                                                     threadIdx.x / (kBlockN / 4), exists);
    } else {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const bool exists = inside(a_, row_[j] + dh_, column_[j] + dw_);
        copy_rows<4, kBlockK / kRowStep, kRowStep>(to_[j] + at, from_[j] + offset_, first_row(), exists);
      }
    }
  }

  __device__ __forceinline__ void load_first_flat(unsigned at) {
    constexpr int kRows = kBlockK / kRowStep, kCount = kRows % 4 == 0 ? 4 : 1,
                  kPitch = 4 * config.input_pitch();
    constexpr int kAtOnce = kRows % 8 == 0 ? 8 : kCount;
    const int4* taps = taps_ + first_row();
#pragma unroll 1
    for (int begin = 0; begin < kRows; begin += kAtOnce)
#pragma unroll
      for (int i = begin; i < begin + kAtOnce; i += kCount)
#pragma unroll
        for (int j = 0; j < kColumns; j += 2) {
          const unsigned step = at + i * kRowStep * kPitch;
          const int4* const here = taps + i * kRowStep;
          if constexpr (config.pads_frames() && kColumns == 1)
            ptx::cp_async_gather_frames<kCount, 4, 16 * kRowStep, kRowStep * kPitch>(
                a_.d, a_.h, a_.w, here, to_[j] + step, from_[j], frame_[j], row_[j], column_[j]);
          else if constexpr (config.pads_frames())
            ptx::cp_async_gather_frames<kCount, 4, 16 * kRowStep, kRowStep * kPitch>(
                a_.d, a_.h, a_.w, here, to_[j] + step, from_[j], frame_[j], row_[j], column_[j],
                to_[j + 1] + step, from_[j + 1], frame_[j + 1], row_[j + 1], column_[j + 1]);
          else if constexpr (kColumns == 1)
            ptx::cp_async_gather<kCount, 4, 16 * kRowStep, kRowStep * kPitch>(a_.h, a_.w, here, to_[j] + step,
                                                                              from_[j], row_[j], column_[j]);
          else
            ptx::cp_async_gather<kCount, 4, 16 * kRowStep, kRowStep * kPitch>(
                a_.h, a_.w, here, to_[j] + step, from_[j], row_[j], column_[j], to_[j + 1] + step,
                from_[j + 1], row_[j + 1], column_[j + 1]);
        }
  }

  // Channels last: a thread has 4 neighbouring terms, or one, and every so many positions.
  __device__ __forceinline__ unsigned place_of(unsigned at, int place, int k) const {
    return ring_ + at + 4 * (config.weight_words() + config.input_word(place, k) - 4 * threadIdx.x);
  }

  template <bool kWide>
  __device__ __forceinline__ void load_last_chunk(unsigned at) {
    constexpr int kPieces = kBlockK / 4, kStep = kThreads / kPieces;
    const int k = threadIdx.x % kPieces * 4, first = threadIdx.x / kPieces;
    const int channels = a_.group_channels() - channel_ - k;  // left
    // kStep is even, so that the order within a row is the same in all of them.
    constexpr int kCopies = ceil_div(kBlockN, kStep), kBytes = 4 * kStep * kBlockK;
    const unsigned there = place_of(at, first, k);
    if constexpr (kWide) {
      constexpr int kCount = kCopies % 4 == 0 ? 4 : 1;
      const int row = channels > 0 ? dh_ : config.kOutside;
#pragma unroll
      for (int i = 0; i < kCopies; i += kCount)
        if (kBlockN % kStep == 0 || first + i * kStep < kBlockN)
          ptx::cp_async_gather<kCount, 16, 16 * kStep, kBytes>(a_.h, a_.w, table_ + 16 * (first + i * kStep),
                                                               there + i * kBytes, x_ + (offset_ + k), row,
                                                               dw_);
    } else {
#pragma unroll 1
      for (int i = 0; i < kCopies && first + i * kStep < kBlockN; ++i) {
        const Column column = columns_[first + i * kStep];
        const bool exists = inside(a_, column.row + dh_, column.column + dw_);
        const float* from = x_ + (column.offset + offset_ + k);
        for (int e = 0; e < 4; ++e)
          ptx::cp_async_4(there + i * kBytes + 4 * e, from + e, exists && e < channels ? 4 : 0);
      }
    }
  }

  __device__ __forceinline__ void load_last_flat(unsigned at) {
    constexpr int kStep = kThreads / kBlockK;
    const int k = threadIdx.x % kBlockK, first = threadIdx.x / kBlockK;
    constexpr int kCopies = kBlockN / kStep, kCount = kCopies % 4 == 0 ? 4 : 1, kBytes = 4 * kStep * kBlockK;
    const int4 tap = __ldg(taps_ + k);
    const long long offset = static_cast<unsigned>(tap.x) | static_cast<long long>(tap.y) << 32;
    const unsigned there = place_of(at, first, k);
#pragma unroll
    for (int i = 0; i < kCopies; i += kCount)
      ptx::cp_async_gather<kCount, 4, 16 * kStep, kBytes>(a_.h, a_.w, table_ + 16 * (first + i * kStep),
                                                          there + i * kBytes, x_ + offset, tap.z, tap.w);
  }

  const ConvExtents& a_;
  const float* x_;
  const Column* const columns_;
  const unsigned table_;     // the table in shared memory
  unsigned ring_;            // of stage 0, this thread's 16 bytes
  const unsigned* weights_;  // of the next block of terms
  const int4* taps_;
  const float* from_[kColumns];
  unsigned to_[kColumns];
  int row_[kColumns], column_[kColumns], frame_[config.pads_frames() ? kColumns : 1];
  int channel_ = 0, dh_ = 0, dw_ = 0;  // for the next block of terms
  long long offset_ = 0;
};

}  // namespace convtune::implicit_gemm_sm80
