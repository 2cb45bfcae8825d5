// The storing half of implicit_gemm_sm80.cuh: sums, bias and activation into the output, four at a time, or
// one at a time between other residues of a stride; and the outputs again whose sums are not finite.
#pragma once

#include "cuda/algorithms/implicit_gemm_sm80/load.cuh"
#include "cuda/tile/exact.cuh"

namespace convtune::implicit_gemm_sm80 {

template <ImplicitGemmSm80 config>
using Sums = float[config.tiles_m()][config.tiles_n()][4];

template <ImplicitGemmSm80 config>
class Storer {
 public:
  __device__ __forceinline__ Storer(const ConvExtents& a, const Tile& tile, const float* x,
                                    const float* packed, float* y, const Smem<config>& smem)
      : a_(a), tile_(tile), x_(x), packed_(packed), y_(y), smem_(smem) {
    bias_ = packed_ + config.packed(a).bias_at() + static_cast<long long>(tile.group) * a.group_filters();
    plane_ = config.filter_outputs(a);
    const int warp = threadIdx.x / 32;
    warp_m_ = tile.m_block * config.block_m + warp / config.warps_n * config.warp_m();
    warp_n_ = warp % config.warps_n * config.warp_n();
  }

  // Every thread of the block must arrive.
  __device__ __forceinline__ void store(Sums<config>& sums) {
    if constexpr (config.abreast() > 1)
      store_abreast(sums);
    else if constexpr (config.between())
      store_staged(sums);
    else if constexpr (config.specialized)
      store<config.wide_output(config.conv)>(sums);
    else
      config.wide_output(a_) ? store<true>(sums) : store<false>(sums);
    if (__syncthreads_or(trace_ != trace_)) repair();
  }

 private:
  template <bool kWide>
  __device__ __forceinline__ void store(Sums<config>& sums) {
    if constexpr (config.conv.nhwc)
      store_last<kWide>(sums);
    else if constexpr (kWide)
      store_first(sums);
    else
      store_staged(sums);
  }

  __device__ __forceinline__ float bias_of(int filter) const {
    const int last = a_.group_filters() - 1;
    return __ldg(bias_ +
                 config.ordered(a_.group_filters() % config.block_m == 0 || filter < last ? filter : last));
  }

  // Channels first. A thread's four products of one column are four neighbouring pixels.
  __device__ __forceinline__ void store_first(Sums<config>& sums) {
    constexpr int kColumns = config.tiles_n() / 2, kRows = 2 * config.tiles_m();
    const int lane = threadIdx.x % 32, first = warp_m_ + lane / 4;
    float bias[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row) bias[row] = bias_of(first + 8 * row);
    float* to[kColumns];
    int left[kColumns];  // filters
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const long long at = smem_.outputs[warp_n_ + config.position_of(i / 2 * 4, lane % 4 * 2 + i % 2)];
      to[i] = y_ + at + first * plane_;
      left[i] = at >= 0 ? a_.group_filters() - first : 0;
    }
    for_constants<0, kRows>([&](auto row) {
      constexpr int kTile = row.value / 2, kUpper = row.value % 2, kFilter = 8 * row.value;
      constexpr long long kBytes = config.specialized ? 4 * kFilter * config.filter_outputs(config.conv) : 0;
      constexpr bool kInInstruction = config.specialized && kBytes < 1 << 23;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int tile = i / 2 * 4, reg = 2 * kUpper + i % 2;
        float four[4] = {sums[kTile][tile][reg], sums[kTile][tile + 1][reg], sums[kTile][tile + 2][reg],
                         sums[kTile][tile + 3][reg]};
        const float addend = bias[row.value];
        finish(four, {addend, addend, addend, addend});
        ptx::st_global_v4_if<kInInstruction ? static_cast<int>(kBytes) : 0>(
            to[i] + (kInInstruction ? 0 : kFilter * plane_), four, left[i] > kFilter);
      }
    });
  }

  // Images whose size is not a multiple of 4 pixels: through shared memory, 16 filters of a warp at a time,
  // so that a warp writes 32 pixels in a row.
  __device__ __forceinline__ void store_staged(Sums<config>& sums) {
    constexpr int kPitch = config.staging_pitch(), kPixels = config.warp_n() / 32;
    const int lane = threadIdx.x % 32;
    const unsigned staging = ptx::shared_address(smem_.ring) + threadIdx.x / 32 * (16 * kPitch * 4);
    const unsigned sums_to = staging + 4 * (lane / 4 * kPitch + config.position_of(0, lane % 4 * 2));
    float* to[kPixels];
    int left[kPixels];  // filters
    Position pixels[kPixels];
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const int place = warp_n_ + 32 * i + lane;
      const long long at = smem_.outputs[place];
      to[i] = y_ + at + warp_m_ * plane_;
      left[i] = at >= 0 ? a_.group_filters() - warp_m_ : 0;
      if constexpr (config.between()) pixels[i] = position<config>(a_, tile_.first_position + place);
    }
    float bias[2 * config.tiles_m()];
#pragma unroll
    for (int row = 0; row < 2 * config.tiles_m(); ++row) bias[row] = bias_of(warp_m_ + 8 * row + lane / 4);
    __syncthreads();  // the ring is read
#pragma unroll
    for (int tile = 0; tile < config.tiles_m(); ++tile) {
      stage_sums(sums[tile], bias[2 * tile], bias[2 * tile + 1], sums_to);
      __syncwarp();
#pragma unroll 1
      for (int row = 0; row < 16; row += 4) {
#pragma unroll
        for (int i = 0; i < kPixels; ++i) {
          const unsigned staged = staging + 4 * (row * kPitch + 32 * i + lane);
          if constexpr (config.between())
            copy_rows_between(pixels[i], warp_m_ + 16 * tile + row, staged, left[i]);
          else
            copy_rows(to[i], staged, left[i]);
          to[i] += 4 * plane_, left[i] -= 4;
        }
      }
      __syncwarp();
    }
  }

  // As above, where residues of a row are abreast: neighbouring threads have neighbouring outputs of a row of
  // the tensor, for one channel after the other.
  __device__ __forceinline__ void store_abreast(Sums<config>& sums) {
    constexpr int kPitch = config.staging_pitch(), kStaged = config.staged_filters();
    const int lane = threadIdx.x % 32;
    const unsigned staging = ptx::shared_address(smem_.ring) + threadIdx.x / 32 * (kStaged * kPitch * 4);
    const unsigned sums_to = staging + 4 * (lane / 4 * kPitch + config.position_of(0, lane % 4 * 2));
    float bias[2 * config.tiles_m()];
#pragma unroll
    for (int row = 0; row < 2 * config.tiles_m(); ++row) bias[row] = bias_of(warp_m_ + 8 * row + lane / 4);
    __syncthreads();  // the ring is read
#pragma unroll
    for (int first = 0; first < config.tiles_m(); first += kStaged / 16) {
#pragma unroll
      for (int tile = first; tile < first + kStaged / 16; ++tile)
        stage_sums(sums[tile], bias[2 * tile], bias[2 * tile + 1], sums_to + 64 * (tile - first) * kPitch);
      __syncwarp();
      copy_abreast(staging, warp_m_ + 16 * first);
      __syncwarp();
    }
  }

  // Copies what is staged to filters of the group from first_filter on.
  __device__ __forceinline__ void copy_abreast(unsigned staging, int first_filter) {
    constexpr int kAbreast = config.abreast(), kRow = config.warp_n() * kAbreast, kBatch = 8;
    constexpr ConvLies lies = config.conv.lies;
    constexpr long long kChannel = 1LL * lies.d * lies.h * lies.w;  // from one to the next in the tensor
    constexpr ConvExtents kRows = [] {                              // beginnings of rows
      ConvExtents rows = config.conv;
      rows.lies.stride_w = rows.lies.crop_w = 0;
      return rows;
    }();
    const int left = lesser(a_.group_filters() - first_filter, config.staged_filters()) / kAbreast;
#pragma unroll 1
    for (int begin = 0; begin < kRow; begin += 32) {
      const int place = begin + static_cast<int>(threadIdx.x % 32), residue = place % kAbreast;
      const int pixel = warp_n_ + place / kAbreast;
      const Position at = position<config>(a_, tile_.first_position + pixel);
      const int column = at.q * lies.stride_w + residue - lies.crop_w;
      const bool real = smem_.outputs[pixel] >= 0 && column >= 0 && column < lies.w;
      const unsigned from = staging + 4 * (residue * config.staging_pitch() + place / kAbreast);
      // Channels of one residue of rows and frames lie a plane apart: what a store asks is worked out for
      // all.
#pragma unroll 1
      for (int first = 0, run = 0; first < left; first += run) {
        const int filter = config.ordered(first_filter + first * kAbreast);
        run = lesser(left - first, a_.group_results() - filter % a_.group_results());
        const long long row = real ? kRows.stored_offset(at.image, tile_.group * a_.group_filters() + filter,
                                                         at.frame, at.p, at.q)
                                   : -1;
        float* to = y_ + row + column;
#pragma unroll 1
        for (int i = first; i < first + run; i += kBatch) {
          float values[kBatch];
#pragma unroll
          for (int j = 0; j < kBatch; ++j)
            if (i + j < first + run)
              ptx::ld_shared(values[j], from + 4 * (i + j) * kAbreast * config.staging_pitch());
#pragma unroll
          for (int j = 0; j < kBatch; ++j)
            if (i + j < first + run && row >= 0) to[j * kChannel] = values[j];
          to += kBatch * kChannel;
        }
      }
    }
  }

  // A tile's sums of 16 filters, finished: those of `bias`, then the 8 of `upper`.
  __device__ __forceinline__ void stage_sums(const float (&sums)[config.tiles_n()][4], float bias,
                                             float upper, unsigned to) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < config.tiles_n() / 2; ++i) {
        const int first = i / 2 * 4, reg = 2 * half + i % 2;
        float four[4] = {sums[first][reg], sums[first + 1][reg], sums[first + 2][reg], sums[first + 3][reg]};
        const float addend = half == 0 ? bias : upper;
        finish(four, {addend, addend, addend, addend});
        ptx::st_shared_v4(to + 4 * (8 * half * config.staging_pitch() + config.position_of(first, i % 2)),
                          four);
      }
  }

  // Channels last. A thread's sums of two products are four neighbouring filters.
  template <bool kWide>
  __device__ __forceinline__ void store_last(Sums<config>& sums) {
    constexpr int kTiles = config.tiles_m(), kColumns = 2 * config.tiles_n(), kAtOnce = 4;
    const int lane = threadIdx.x % 32, first = warp_m_ + config.filter_of(0, 0, lane / 4);
    const int odd = warp_m_ + config.filter_of(kTiles - 1, 0, lane / 4);  // per tile without a neighbour
    float bias[2 * kTiles];
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i)
      bias[i] = bias_of(i / 4 * 2 + 1 < kTiles ? first + i / 4 * 32 + i % 4 : odd + i % 2);
#pragma unroll
    for (int begin = 0; begin < kColumns; begin += kAtOnce) {
      long long at[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        at[i] = smem_.outputs[warp_n_ + config.position_of((begin + i) / 2, lane % 4 * 2 + i % 2)];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int tile = (begin + i) / 2, reg = i % 2;
        float* const to = y_ + at[i] + first;
        const int left = at[i] >= 0 ? a_.group_filters() - first : 0;
        for_constants<0, kTiles / 2>([&](auto pair) {
          constexpr int kPair = pair.value;
          const auto& one = sums[2 * kPair][tile];
          const auto& other = sums[2 * kPair + 1][tile];
          float four[4] = {one[reg], one[2 + reg], other[reg], other[2 + reg]};
          finish(four, {bias[4 * kPair], bias[4 * kPair + 1], bias[4 * kPair + 2], bias[4 * kPair + 3]});
          if constexpr (kWide)
            ptx::st_global_v4_if<128 * kPair>(to, four, left > 32 * kPair);
          else
            store_some<4>(to + 32 * kPair, four, left - 32 * kPair);
        });
        if constexpr (kTiles % 2 != 0) {
          const int there = at[i] >= 0 ? a_.group_filters() - odd : 0;
          float two[4] = {sums[kTiles - 1][tile][reg], sums[kTiles - 1][tile][2 + reg]};
          finish(two, {bias[2 * kTiles - 2], bias[2 * kTiles - 1], 0, 0});
          store_some<2>(y_ + at[i] + odd, two, there);
        }
      }
    }
  }

  // Four sums with their biases, activated. The trace becomes NaN where one is not finite, and what is stored
  // of it is not finite either: so repair() knows that it must look, and finds it.
  struct Biases {
    float b[4];
  };
  __device__ __forceinline__ void finish(float (&sums)[4], const Biases& bias) {
    constexpr ConvActivation kActivation = config.conv.activation;
    if constexpr (kActivation == ConvActivation::none || kActivation == ConvActivation::relu) {
      // Written as below, kernels compile for a fifth longer.
      ptx::add_four<kActivation == ConvActivation::relu>(sums, bias.b, trace_);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] += bias.b[i];
      trace_ = fmaf(sums[0] + sums[1] + (sums[2] + sums[3]), 0, trace_);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[i] = fmaf(sums[i], 0, activate<kActivation>(sums[i], a_.alpha, a_.beta));
    }
  }
  // `left` of four in a row, from none on, or of two.
  template <int kCount>
  static __device__ __forceinline__ void store_some(float* to, const float (&values)[4], int left) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) ptx::st_global_if(to + i, values[i], left > i);
  }

  // Four rows of what is staged, one pixel; `left` of them, from none on.
  __device__ __forceinline__ void copy_rows(float* to, unsigned staged, int left) {
    constexpr long long kPlane = config.specialized ? 4 * config.filter_outputs(config.conv) : 0;
    constexpr bool kInInstruction = config.specialized && 3 * kPlane < 1 << 23;
    const long long row = kInInstruction ? 0 : plane_;
    ptx::copy_four_rows<4 * config.staging_pitch(), kInInstruction ? static_cast<int>(kPlane) : 0>(
        to, row, staged, left);
  }

  // As above, of residues of a stride from `filter` on: a row of a warp is one residue of one channel.
  __device__ __forceinline__ void copy_rows_between(const Position& pixel, int filter, unsigned staged,
                                                    int left) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= left) return;
      const long long at = stored_at(pixel, filter + i);
      float sum;
      ptx::ld_shared(sum, staged + 4 * i * config.staging_pitch());
      if (at >= 0) y_[at] = sum;
    }
  }
  // Returns the offset in y, negative where the residue has no such pixel.
  __device__ __forceinline__ long long stored_at(const Position& pixel, int filter) const {
    return a_.stored_offset(pixel.image, tile_.group * a_.group_filters() + filter, pixel.frame, pixel.p,
                            pixel.q);
  }

  // Computes what is not finite, from the tensors as they came.
  __device__ __forceinline__ void repair() {
#pragma unroll 1
    for (int i = threadIdx.x; i < config.block_m * config.block_n; i += config.threads()) {
      const int in_group = tile_.m_block * config.block_m + i / config.block_n, place = i % config.block_n;
      const long long at = smem_.outputs[place];
      if (at < 0 || in_group >= a_.group_filters()) continue;
      const int filter = config.ordered(in_group);
      float* to = y_ + at + (config.conv.nhwc ? filter : filter * plane_);
      if constexpr (config.between()) {
        const long long there = stored_at(position<config>(a_, tile_.first_position + place), filter);
        if (there < 0) continue;
        to = y_ + there;
      }
      if ((__float_as_uint(*to) & 0x7f800000u) != 0x7f800000u) continue;
      const Column& window = smem_.columns[place];
      const long long k = static_cast<long long>(tile_.group) * a_.group_filters() + filter;
      int first_frame = 0;
      if constexpr (config.pads_frames())
        first_frame = position<config>(a_, tile_.first_position + place).frame * a_.stride_d - a_.pad_front;
      const float sum = exact_sum(
          a_, packed_ + config.packed(a_).exact_at() + k * a_.taps(), window.row, window.column,
          [&](int channel, int frame, int row, int column) {
            if constexpr (config.conv.lies.uneven())  // the weight is 0, and x may be infinite
              if (column == window.column && config.conv.lies.lacks_column(filter / a_.group_results()))
                return 0.0f;
            if (config.has_frames())
              return x_[window.offset + a_.input_offset(0, channel, frame - first_frame, row - window.row,
                                                        column - window.column)];
            return x_[window.offset + a_.input_offset(0, channel, row - window.row, column - window.column)];
          },
          first_frame);
      *to = activate<config.conv.activation>(sum + bias_[filter], a_.alpha, a_.beta);
    }
  }

  const ConvExtents& a_;
  const Tile& tile_;
  const float* x_;
  const float* packed_;
  float* y_;
  const Smem<config>& smem_;
  const float* bias_;
  long long plane_;
  float trace_ = 0;  // NaN: something is not finite
  int warp_m_, warp_n_;
};

}  // namespace convtune::implicit_gemm_sm80
