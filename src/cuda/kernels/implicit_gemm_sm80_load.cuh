// The loading half of implicit_gemm_sm80.cuh: where a block's positions are in the input, and one block of
// terms after the other copied into the ring of stages.
#pragma once

#include "constants.cuh"
#include "implicit_gemm_sm80.h"
#include "ptx_sm80.cuh"

namespace convtune::implicit_gemm {

// The problem: numbers that the compiler knows, or a parameter of the launch.
template <ImplicitGemmSm80 config>
__device__ __forceinline__ Conv2dExtents extents(const Conv2dExtents& given) {
  if constexpr (config.specialized) return config.problem;
  Conv2dExtents a = given;
  a.nhwc = config.problem.nhwc;
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
};
__device__ __forceinline__ Position position(const Conv2dExtents& a, long long index) {
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
__device__ __forceinline__ Tile tile_of_block(const Conv2dExtents& a) {
  // Blocks of the same positions are neighbours: the first brings the input into the L2 for the others.
  const unsigned m_blocks = config.m_blocks(a), n_blocks = static_cast<unsigned>(config.n_blocks(a));
  const unsigned block = blockIdx.x / m_blocks;
  return {static_cast<int>(block / n_blocks), static_cast<int>(blockIdx.x % m_blocks),
          static_cast<long long>(block % n_blocks) * config.block_n};
}

// Shared memory: the block's positions in the input and in the output (-1: there is none), then the ring.
template <ImplicitGemmSm80 config>
struct Smem {
  Column* columns;
  long long* outputs;
  unsigned* ring;
  __device__ explicit Smem(unsigned* memory)
      : columns(reinterpret_cast<Column*>(memory)),
        outputs(reinterpret_cast<long long*>(memory + 4 * config.block_n)),
        ring(memory + config.table_words()) {}
};

template <ImplicitGemmSm80 config>
__device__ __forceinline__ void find_positions(const Conv2dExtents& a, const Tile& tile,
                                               const Smem<config>& smem) {
  for (int i = threadIdx.x; i < config.block_n; i += config.threads()) {
    const long long index = tile.first_position + i;
    const bool exists = index < config.positions(a);
    const Position at = exists ? position(a, index) : Position{0, 0, 0};
    const int row = at.p * a.stride_h - a.pad_top, column = at.q * a.stride_w - a.pad_left;
    smem.columns[i] = {a.input_offset(at.image, tile.group * a.group_channels(), row, column),
                       exists ? row : -config.kOutside / 2, column};
    smem.outputs[i] = exists ? a.output_offset(at.image, tile.group * a.group_filters(), at.p, at.q) : -1;
  }
}

__device__ __forceinline__ bool inside(const Conv2dExtents& a, int row, int column) {
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
  // `wide`: whether x is aligned to 16 bytes.
  __device__ __forceinline__ Loader(const Conv2dExtents& a, const Tile& tile, const float* x,
                                    const unsigned* packed, const Smem<config>& smem, bool wide)
      : a_(a), x_(x), columns_(smem.columns), ring_(ptx::shared_address(smem.ring)) {
    const int thread = threadIdx.x;
    weights_ = packed + 4 * thread +
               (static_cast<long long>(tile.group) * config.m_blocks(a) + tile.m_block) * config.k_blocks(a) *
                   config.weight_words();
    taps_ = reinterpret_cast<const int4*>(packed + config.taps_at(a));
    if constexpr (config.problem.nhwc) {
      wide_ = wide && a.c % 4 == 0 && a.group_channels() % 4 == 0;
    } else {
      const bool pointwise = a.r == 1 && a.s == 1 && a.stride_h == 1 && a.stride_w == 1 && a.pad_top == 0 &&
                             a.pad_left == 0 && a.p == a.h && a.q == a.w;
      wide_ = config.chunked && wide && pointwise && static_cast<long long>(a.h) * a.w % 4 == 0;
      const int row = wide_ ? thread / (kBlockN / 4) : first_row();
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int place = wide_ ? thread % (kBlockN / 4) * 4 : column_of(i);
        const Column column = smem.columns[place];
        from_[i] = x + column.offset + (config.chunked ? row * plane() : 0);
        row_[i] = column.row, column_[i] = column.column;
        to_[i] = ring_ + 4 * (config.weight_words() + row * config.input_pitch() + place);
        keep(from_[i]), keep(to_[i]);
      }
    }
    ring_ += 16 * thread;
    keep(weights_), keep(ring_), keep(x_);
  }

  __device__ __forceinline__ void load(int stage) {
    const unsigned at = 4 * stage * config.stage_words();
    constexpr int kPieces = config.weight_words() / 4;
    for_constants<0, (kPieces + kThreads - 1) / kThreads>([&](auto i) {
      constexpr int kPiece = i.value * kThreads;
      if (kPiece + kThreads <= kPieces || threadIdx.x < kPieces - kPiece)
        ptx::cp_async_16_at<16 * kPiece>(ring_ + at + 16 * kPiece, weights_, 16);
    });
    weights_ += config.weight_words();
    if constexpr (config.problem.nhwc && config.chunked)
      load_last_chunk(at);
    else if constexpr (config.problem.nhwc)
      load_last_flat(at);
    else if constexpr (config.chunked)
      load_first_chunk(at);
    else
      load_first_flat(at);
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
    const long long step = config.problem.nhwc ? a_.c : 1, width = step * a_.w;
    offset_ += a_.dilation_w * step;
    dw_ += a_.dilation_w;
    if (dw_ < a_.s * a_.dilation_w) return;
    dw_ = 0;
    offset_ += a_.dilation_h * width - a_.s * a_.dilation_w * step;
    dh_ += a_.dilation_h;
    if (dh_ < a_.r * a_.dilation_h) return;
    dh_ = 0;
    offset_ += kBlockK * (config.problem.nhwc ? 1 : plane()) - a_.r * a_.dilation_h * width;
    channel_ += kBlockK;
  }

  // Copies kSize bytes for each of kCount rows of the tile, kStep of them apart.
  template <int kSize, int kCount, int kStep>
  __device__ __forceinline__ void copy_rows(unsigned to, const float* from, int first, bool exists) {
    const int channels = a_.group_channels() - channel_;  // left
    const bool whole = a_.group_channels() % kBlockK == 0;
    for_constants<0, kCount>([&](auto i) {
      constexpr int kRow = i.value * kStep;
      if (kBlockK % kStep != 0 && first + kRow >= kBlockK) return;
      const unsigned bytes = exists && (whole || first + kRow < channels) ? kSize : 0;
      const unsigned there = to + 4 * kRow * config.input_pitch();
      constexpr long long kBytes = config.specialized ? 4LL * kRow * config.problem.h * config.problem.w : 0;
      if constexpr (config.specialized && kBytes < 1 << 23) {
        if constexpr (kSize == 4)
          ptx::cp_async_4_at<kBytes>(there, from, bytes);
        else
          ptx::cp_async_16_at<kBytes>(there, from, bytes);
      } else {
        if constexpr (kSize == 4)
          ptx::cp_async_4(there, from + kRow * plane(), bytes);
        else
          ptx::cp_async_16_cached(there, from + kRow * plane(), bytes);
      }
    });
  }

  __device__ __forceinline__ void load_first_chunk(unsigned at) {
    if (wide_) {  // rows of the tile lie in the input as they are
      constexpr int kStep = kThreads / (kBlockN / 4);
      const bool exists = row_[0] >= 0;
      copy_rows<16, (kBlockK + kStep - 1) / kStep, kStep>(to_[0] + at, from_[0] + offset_,
                                                          threadIdx.x / (kBlockN / 4), exists);
    } else {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const bool exists = inside(a_, row_[j] + dh_, column_[j] + dw_);
        copy_rows<4, kBlockK / kRowStep, kRowStep>(to_[j] + at, from_[j] + offset_, first_row(), exists);
      }
    }
  }

  __device__ __forceinline__ ImplicitGemmSm80::Tap tap(int k) const {
    const int4 words = __ldg(taps_ + k);
    return {static_cast<long long>(static_cast<unsigned>(words.x)) | static_cast<long long>(words.y) << 32,
            words.z, words.w};
  }

  __device__ __forceinline__ void load_first_flat(unsigned at) {
    constexpr int kRows = kBlockK / kRowStep, kAtOnce = kRows < 8 ? kRows : 8;  // taps in registers
#pragma unroll 1
    for (int begin = 0; begin < kRows; begin += kAtOnce)
#pragma unroll
      for (int i = begin; i < begin + kAtOnce; ++i) {
        const ImplicitGemmSm80::Tap term = tap(first_row() + i * kRowStep);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const bool reads = inside(a_, row_[j] + term.row, column_[j] + term.column);
          ptx::cp_async_4(to_[j] + at + 4 * i * kRowStep * config.input_pitch(), from_[j] + term.offset,
                          reads ? 4 : 0);
        }
      }
  }

  // Channels last: a thread has 4 neighbouring terms, or one, and every so many positions.
  __device__ __forceinline__ unsigned place_of(unsigned at, int place, int k) const {
    return ring_ + at + 4 * (config.weight_words() + config.input_word(place, k) - 4 * threadIdx.x);
  }

  __device__ __forceinline__ void load_last_chunk(unsigned at) {
    constexpr int kPieces = kBlockK / 4, kStep = kThreads / kPieces;
    const int k = threadIdx.x % kPieces * 4, first = threadIdx.x / kPieces;
    const int channels = a_.group_channels() - channel_ - k;  // left
    // kStep is even, so that the order within a row is the same in all of them.
    constexpr int kCopies = (kBlockN + kStep - 1) / kStep, kBytes = 4 * kStep * kBlockK;
    const unsigned there = place_of(at, first, k);
    if (wide_) {
      constexpr int kAtOnce = 4;  // all their reads before the first copy, which would make each wait
#pragma unroll
      for (int begin = 0; begin < kCopies; begin += kAtOnce) {
        const float* from[kAtOnce];
        unsigned bytes[kAtOnce];
#pragma unroll
        for (int i = begin; i < kCopies && i < begin + kAtOnce; ++i) {
          const Column column = columns_[first + i * kStep];
          from[i - begin] = x_ + (column.offset + offset_ + k);
          bytes[i - begin] = channels > 0 && inside(a_, column.row + dh_, column.column + dw_) ? 16 : 0;
        }
#pragma unroll
        for (int i = begin; i < kCopies && i < begin + kAtOnce; ++i)
          if (kBlockN % kStep == 0 || first + i * kStep < kBlockN)
            ptx::cp_async_16_cached(there + i * kBytes, from[i - begin], bytes[i - begin]);
      }
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
    const ImplicitGemmSm80::Tap term = tap(k);
    const unsigned there = place_of(at, first, k);
#pragma unroll
    for (int i = 0; i < kBlockN / kStep; ++i) {
      const Column column = columns_[first + i * kStep];
      const bool reads = inside(a_, column.row + term.row, column.column + term.column);
      ptx::cp_async_4(there + 4 * i * kStep * kBlockK, x_ + (column.offset + term.offset), reads ? 4 : 0);
    }
  }

  const Conv2dExtents& a_;
  const float* x_;
  const Column* const columns_;
  unsigned ring_;            // of stage 0, this thread's 16 bytes
  const unsigned* weights_;  // of the next block of terms
  const int4* taps_;
  bool wide_;
  const float* from_[kColumns];
  unsigned to_[kColumns];
  int row_[kColumns], column_[kColumns];
  int channel_ = 0, dh_ = 0, dw_ = 0;  // of the next block of terms
  long long offset_ = 0;
};

}  // namespace convtune::implicit_gemm
