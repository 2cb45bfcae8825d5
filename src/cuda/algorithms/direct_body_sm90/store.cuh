// How direct_body_sm90.cuh stores a warpgroup's sums: gathered in shared memory in the order of y, from where
// bulk copies take whole rows while the next tile is multiplied; or straight from registers.
#pragma once

#include "cuda/algorithms/direct_body_sm90/load.cuh"
#include "cuda/tile/exact.cuh"

namespace convtune::direct_body_sm90 {

// The place of y's element in its 16 bytes.
__device__ inline int phase_of(const float* y) {
  return static_cast<int>(reinterpret_cast<unsigned long long>(y) / 4 % 4);
}

// Sums of one warp: filters first_filter to first_filter + 15, from `first_position` on. Half of them lie in
// registers that the code names, so that it is compiled once for both halves; the others move there.
template <DirectBodySm90 config>
__device__ void store_staged(float (&sums)[config.sums()], const float* __restrict__ bias,
                             float* __restrict__ y, int first_filter, int first_position, unsigned staging,
                             unsigned table) {
  using S = Sizes<config>;
  constexpr ConvExtents a = config.conv;
  constexpr int kFrame = a.p * a.q, kOutputs = a.z * kFrame, kRows = config.staged;
  constexpr bool kAlike = kOutputs % 4 == 0;  // all filters begin alike in their 16 bytes
  const int lane = threadIdx.x % 32, group = lane / 4;
  const int first_segment = first_position / Segment<config>::kPositions;
  const int last_segment = (first_position + S::kPositions - 1) / Segment<config>::kPositions;
  const auto start_of = [&](const Segment<config>& segment) {  // in y, of filter 0
    return y + static_cast<long long>(segment.image / a.z) * a.k * kOutputs + segment.image % a.z * kFrame +
           segment.origin + segment.begin;
  };
  // For each position 4 * its place in a filter's staging, or -1. What its segment adds to the phase is part
  // of the place where all filters begin alike, else it is added to that.
  __syncwarp();
#pragma unroll 1
  for (int i = lane; i < S::kPositions; i += 32) {
    const int position = first_position + i;
    int entry = -1;
    if (output_of<config>(position).column < a.q) {
      const int index = position / Segment<config>::kPositions;
      const Segment<config> segment(index, first_segment, first_position);
      const int place = segment.slot - segment.begin +
                        Segment<config>::before(position - index * Segment<config>::kPositions);
      entry = place * 4 + phase_of(start_of(segment)) * (kAlike ? 4 : 1);
    }
    ptx::st_shared(table + 4 * i, static_cast<unsigned>(entry));
  }
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    if (half == 0 || kRows == 8) ptx::bulk_wait_read();  // the piece gathered before is on its way
    __syncwarp();
    const int filter = first_filter + group + 8 * half;
    const float addend = filter < a.k ? __ldg(bias + filter) : 0.0f;
    const int filter_phase = filter * (kOutputs % 4);
    const unsigned row = staging + (group + (kRows == 8 ? 0 : 8 * half)) * (S::kStagingPitch * 4);
#pragma unroll
    for (int j = 0; j < S::kPositions / 8; ++j) {
      // The upper half of the warp takes its pair in reverse: so no two threads write to one bank.
      int entries[2];
      ptx::ld_shared_v2(entries[0], entries[1], table + (8 * j + lane % 4 * 2) * 4);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const bool second = lane < 16 ? b == 1 : b == 0;
        const int entry = second ? entries[1] : entries[0];
        const float value = finish<config.conv>(second ? sums[4 * j + 1] : sums[4 * j], addend);
        const int offset = kAlike ? entry : (entry & ~3) + ((entry + filter_phase) & 3) * 4;
        ptx::st_shared_unless_negative(row, offset, value, entry);
      }
    }
#pragma unroll
    for (int j = 0; j < S::kPositions / 8; ++j) {
      sums[4 * j] = sums[4 * j + 2];
      sums[4 * j + 1] = sums[4 * j + 3];
    }
    if (half == 0 && kRows == 16) continue;
    ptx::fence_proxy_async();
    __syncwarp();
#pragma unroll 1
    for (int item = lane; item < kRows * (last_segment - first_segment + 1); item += 32) {
      const int k = first_filter + item % kRows + (kRows == 8 ? 8 * half : 0);
      const Segment<config> segment(first_segment + item / kRows, first_segment, first_position);
      const int length = segment.end - segment.begin;
      if (k >= a.k || length <= 0) continue;
      float* const to = start_of(segment) + static_cast<long long>(k) * kOutputs;
      const int phase = phase_of(to);
      const unsigned from = staging + (item % kRows * S::kStagingPitch + segment.slot + phase) * 4;
      const int head = min(-phase & 3, length), whole = (length - head) / 4 * 4;
#pragma unroll 1
      for (int i = 0; i < head; ++i) to[i] = __uint_as_float(ptx::ld_shared(from + 4 * i));
#pragma unroll 1
      for (int i = head + whole; i < length; ++i) to[i] = __uint_as_float(ptx::ld_shared(from + 4 * i));
      if (whole > 0) ptx::bulk_copy_to_global(to + head, from + 4 * head, whole * 4);
    }
    ptx::bulk_commit_group();
  }
}

template <DirectBodySm90 config>
__device__ void store_direct(const float (&sums)[config.sums()], const float* __restrict__ bias,
                             float* __restrict__ y, int first_filter, int first_position, unsigned table) {
  using S = Sizes<config>;
  constexpr ConvExtents a = config.conv;
  constexpr int kFrame = a.p * a.q, kOutputs = a.z * kFrame;
  const int lane = threadIdx.x % 32;
  const int first_image = output_of<config>(first_position).image / a.z;
  // For each position its output's place behind that of the first image's filter 0, or -1.
  __syncwarp();
#pragma unroll 1
  for (int i = lane; i < S::kPositions; i += 32) {
    const Output at = output_of<config>(first_position + i);
    const int place = (at.image / a.z - first_image) * (a.k * kOutputs) + at.image % a.z * kFrame +
                      at.row * a.q + at.column;
    ptx::st_shared(table + 4 * i, static_cast<unsigned>(at.column < a.q ? place : -1));
  }
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int filter = first_filter + lane / 4 + 8 * half;
    if (filter >= a.k) continue;
    const float addend = __ldg(bias + filter);
    float* const to = y + (static_cast<long long>(first_image) * a.k + filter) * kOutputs;
#pragma unroll
    for (int j = 0; j < S::kPositions / 8; ++j) {
      int places[2];
      ptx::ld_shared_v2(places[0], places[1], table + (8 * j + lane % 4 * 2) * 4);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        if (places[b] >= 0) to[places[b]] = finish<config.conv>(sums[4 * j + 2 * half + b], addend);
      }
    }
  }
}

// Two filters of a pixel that are neighbours in a tensor whose channels come last.
template <DirectBodySm90 config>
struct Pair {
  float first = 0, second = 0;

  __device__ __forceinline__ void load(const float* __restrict__ from, bool both) {
    if constexpr (config.wide_output()) {
      const float2 two = __ldg(reinterpret_cast<const float2*>(from));
      first = two.x, second = two.y;
    } else {
      first = __ldg(from);
      if (both) second = __ldg(from + 1);
    }
  }
  __device__ __forceinline__ void store(float* __restrict__ to, bool both) const {
    if constexpr (config.wide_output()) {
      *reinterpret_cast<float2*>(to) = {first, second};
    } else {
      to[0] = first;
      if (both) to[1] = second;
    }
  }
};

// Stores outputs whose channels come last: a thread has two neighbouring filters of each position, and a warp
// 64 bytes. Residuals of some positions are on their way at once.
template <DirectBodySm90 config>
__device__ void store_pixels(const float (&sums)[config.sums()], const float* __restrict__ bias,
                             const float* __restrict__ residual, float* __restrict__ y, int first_filter,
                             int first_position, unsigned table) {
  using S = Sizes<config>;
  constexpr ConvExtents a = config.conv;
  constexpr int kEights = S::kPositions / 8, kBatch = 2;  // eights: two positions of each are a thread's
  const int lane = threadIdx.x % 32;
  // For each position its output's pixel, counted through all images, or -1.
  __syncwarp();
#pragma unroll 1
  for (int i = lane; i < S::kPositions; i += 32) {
    const Output at = output_of<config>(first_position + i);
    const int pixel = (at.image * a.p + at.row) * a.q + at.column;
    ptx::st_shared(table + 4 * i, static_cast<unsigned>(at.column < a.q ? pixel : -1));
  }
  __syncwarp();
  const int filter = first_filter + lane / 4 * 2;
  if (filter >= a.k) return;
  const bool both = a.k % 2 == 0 || filter + 1 < a.k;
  Pair<config> addends;
  addends.first = __ldg(bias + filter);
  if (both) addends.second = __ldg(bias + filter + 1);
  for_constants<0, ceil_div(kEights, kBatch)>([&](auto batch) {
    constexpr int kFirst = batch.value * kBatch, kCount = lesser(kEights - kFirst, kBatch);
    int pixels[kCount][2];
    Pair<config> others[kCount][2];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      ptx::ld_shared_v2(pixels[i][0], pixels[i][1], table + (8 * (kFirst + i) + lane % 4 * 2) * 4);
      if constexpr (config.conv.residual) {
#pragma unroll
        for (int b = 0; b < 2; ++b)
          if (pixels[i][b] >= 0)
            others[i][b].load(residual + static_cast<long long>(pixels[i][b]) * a.k + filter, both);
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i)
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const float* const mine = sums + 4 * (kFirst + i) + b;
        const Pair<config> done{finish<config.conv>(mine[0], addends.first, others[i][b].first),
                                finish<config.conv>(mine[2], addends.second, others[i][b].second)};
        if (pixels[i][b] >= 0) done.store(y + static_cast<long long>(pixels[i][b]) * a.k + filter, both);
      }
  });
}

// The sums of a product whose rows are positions, one of several.
template <DirectBodySm90 config, int kRowBlock>
__device__ __forceinline__ float (&sums_of(float (&sums)[config.sums()]))[config.columns() / 2] {
  return *reinterpret_cast<float(*)[config.columns() / 2]>(sums + kRowBlock * (config.columns() / 2));
}

// As above, where a product's rows are positions: of each of its own a thread has pairs of filters, and four
// threads 32 bytes. `first_position`: the warp's.
template <DirectBodySm90 config>
__device__ void store_turned(float (&sums)[config.sums()], const float* __restrict__ bias,
                             const float* __restrict__ residual, float* __restrict__ y, int first_position) {
  constexpr ConvExtents a = config.conv;
  const int lane = threadIdx.x % 32, first_filter = lane % 4 * 2;
  for_constants<0, 2 * config.row_blocks()>([&](auto row) {
    constexpr int kRowBlock = row.value / 2, kHalf = row.value % 2;
    const Output at = output_of<config>(first_position + 64 * kRowBlock + 8 * kHalf + lane / 4);
    if (at.column >= config.conv.q) return;
    const long long pixel = (at.image * config.conv.p + at.row) * config.conv.q + at.column;
#pragma unroll
    for (int j = 0; j < config.columns() / 8; ++j) {
      const int filter = first_filter + 8 * j;
      const bool both = config.conv.k % 2 == 0 || filter + 1 < config.conv.k;
      if (config.conv.k % 8 != 0 && filter >= config.conv.k) continue;
      Pair<config> other;
      if constexpr (config.conv.residual) other.load(residual + pixel * config.conv.k + filter, both);
      const float* const mine = sums + kRowBlock * (config.columns() / 2) + 4 * j + 2 * kHalf;
      const Pair<config> done{
          finish<config.conv>(mine[0], __ldg(bias + filter), other.first),
          finish<config.conv>(mine[1], both ? __ldg(bias + filter + 1) : 0, other.second)};
      done.store(y + pixel * config.conv.k + filter, both);
    }
  });
}

// Computes these outputs again slowly: for tiles that meet a number that is not finite. By a warp.
template <DirectBodySm90 config>
__device__ void store_exact(const float* __restrict__ x, const float* __restrict__ packed,
                            const float* __restrict__ residual, float* __restrict__ y, int first_filter,
                            int first_position) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPositions = config.turned() ? 16 * config.row_blocks() : config.positions;
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < (config.turned() ? config.columns() : 16) * kPositions; i += 32) {
    const int filter = first_filter + i / kPositions, position = i % kPositions;
    const Output at =
        output_of<config>(first_position + (config.turned() ? position / 16 * 64 + position % 16 : position));
    if (filter >= a.k || at.column >= a.q) continue;
    const int image = at.image / a.z, frame = at.image % a.z;
    float added = 0;
    if constexpr (a.residual) added = residual[a.output_offset(image, filter, frame, at.row, at.column)];
    y[a.output_offset(image, filter, frame, at.row, at.column)] =
        exact_output<config>(x, packed, image, filter, at.row, at.column, added, frame);
  }
}

}  // namespace convtune::direct_body_sm90
