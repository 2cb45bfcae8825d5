// How direct_body_half_sm90.cuh stores a consumer's sums. Their rows are filters and their columns outputs,
// and channels last has it the other way round: matrix loads and stores transpose them on their way from and
// to shared memory, where the residual waits and outputs gather; TMA brings the one and stores the others. In
// NCHW they lie right: a warp gathers the outputs of its 16 filters of each block, and moves them in runs.
#pragma once

#include "cuda/algorithms/direct_body_half_sm90/load.cuh"
#include "cuda/algorithms/direct_body_half_sm90/run.cuh"
#include "cuda/tile/exact.cuh"

namespace convtune::direct_body_half_sm90 {

template <DirectBodyHalfSm90 config>
using Sums = float[config.filter_blocks][config.positions() / 2];

// The biases of a thread: of its two filters of each block.
template <DirectBodyHalfSm90 config>
using Biases = float[config.filter_blocks][2];

template <DirectBodyHalfSm90 config>
struct Store {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kBlocks = config.filter_blocks, kBlockBytes = config.staging_bytes() / kBlocks;
  static constexpr int kRows = config.vertical().output, kColumns = config.horizontal().output;
  DirectBodyHalfSm90::Corner corner;  // for the consumer: its first filter
  unsigned staging, residual_full, residual_parity;
  int thread, barrier;  // for the consumer's 128
  int images;
  unsigned second = 0;  // 1: the second of two places

  // To the place of the consumer's next tile; of two, each has every second.
  __device__ __forceinline__ void next_place() {
    if constexpr (config.places() == 1) {
      residual_parity ^= 1;
    } else {
      staging += second == 0 ? config.staging_bytes() : -config.staging_bytes();
      residual_full += second == 0 ? 8 : -8;
      residual_parity ^= second;
      second ^= 1;
    }
  }

  __device__ __forceinline__ void sync() const { ptx::bar_sync(barrier, 128); }

  // Tells whether the run has that output of the tile's volume.
  __device__ __forceinline__ bool exists(int image, int row, int column) const {
    if constexpr (!config.any_batch)
      return image < constant<config.batch()> && row < kRows && column < kColumns &&
             corner.volume < constant<config.volumes()>;
    return of_run<config>(images, [&](const auto& one) {
      return image < one.batch() && row < kRows && column < one.horizontal().output &&
             corner.volume < one.volumes();
    });
  }

  // The consumer's first filter, of all groups'.
  __device__ __forceinline__ int first_filter() const {
    return corner.set * constant<config.set_filters()> + corner.filter;
  }

  __device__ static constexpr int set_of(int filter) { return filter / constant<config.set_filters()>; }

  // The index of a pixel of y, counted through all images: ints where these do.
  static constexpr auto kOne = [] {
    if constexpr (1LL * a.n * a.z * a.p * a.q < DirectBodyHalfSm90::kInt)
      return 1;
    else
      return 1LL;
  }();
  template <class Pixel>
  __device__ static long long offset(Pixel pixel, int filter) {
    constexpr int kPlane = a.z * a.p * a.q;
    if constexpr (config.conv.lies.between())  // negative where y has no such pixel
      return config.conv.stored_offset(
          static_cast<int>(pixel / kPlane), filter, static_cast<int>(pixel / (a.p * a.q) % a.z),
          static_cast<int>(pixel / a.q % a.p) + late_rows<config>(set_of(filter)),
          static_cast<int>(pixel % a.q) + late_columns<config>(set_of(filter)));
    return config.nchw ? (1LL * (pixel / kPlane) * a.k + filter) * kPlane + pixel % kPlane
                       : 1LL * pixel * a.k + filter;
  }

  // f(address, pixel, filter) for this thread's elements of the tile, of those that are; addresses are those
  // of channels last.
  template <class F>
  __device__ __forceinline__ void for_elements(const F& f) const {
    constexpr int kFilters = config.consumer_filters();
#pragma unroll 1
    for (int i = thread; i < constant<config.tile_outputs()> * kFilters; i += 128) {
      const int index = i / kFilters, column = i % kFilters;
      const int image = corner.image + index / (config.rows * config.columns);
      const int row = corner.row + index / config.columns % config.rows;
      const int pixel_column = corner.column + index % config.columns;
      if (!exists(image, row, pixel_column) || corner.filter + column >= constant<config.set_filters()>)
        continue;
      const unsigned at =
          staging + column / 64 * kBlockBytes + config.staged_at(index, column % 64 / 8) + column % 8 * 2;
      f(at,
        (kOne * (corner.volume * constant<config.batch()> + image) * kRows + row) * kColumns + pixel_column,
        first_filter() + column);
    }
  }

  // f(address, offset in y) for this thread's pieces of 8 filters, of those that y has, where outputs lie
  // between each other. A thread has the same filters of every so many-th output.
  template <class F>
  __device__ __forceinline__ void for_pieces(const F& f) const {
    constexpr ConvLies lies = a.lies;
    constexpr int kPieces = config.consumer_filters() / 8, kOutputs = config.tile_outputs();
    constexpr int kFilters = a.group_filters();
    constexpr bool kDeep = a.has_depth();
    constexpr int kResults = a.group_results();  // in one group
    const int piece = thread % kPieces, column = piece * 8, filter = first_filter() + column;
    if (corner.filter + column >= constant<config.set_filters()>) return;
    const int residue = filter % kFilters / kResults;
    const int channel = filter / kFilters * kResults + filter % kResults;
    const int late_w = late_columns<config>(corner.set), late_h = late_rows<config>(corner.set);
    const int first_w = residue % lies.residues_w * lies.step_w - lies.crop_w + late_w * lies.stride_w;
    const int first_h =
        residue / lies.residues_w % lies.residues_h * lies.step_h - lies.crop_h + late_h * lies.stride_h;
    const int first_d = residue / (lies.residues_w * lies.residues_h) * lies.step_d - lies.crop_d;
#pragma unroll 2
    for (int index = thread / kPieces; index < kOutputs; index += 128 / kPieces) {
      const int image = corner.image + index / (config.rows * config.columns);
      const int row = corner.row + index / config.columns % config.rows;
      const int pixel_column = corner.column + index % config.columns;
      const int volume = kDeep ? corner.volume : image, frame = kDeep ? image : 0;
      const int w = pixel_column * lies.stride_w + first_w, h = row * lies.stride_h + first_h;
      const int d = frame * lies.stride_d + first_d;
      if (!exists(image, row, pixel_column) || w < 0 || w >= lies.w || h < 0 || h >= lies.h || d < 0 ||
          d >= lies.d)
        continue;
      f(staging + column / 64 * kBlockBytes + config.staged_at(index, piece % 8),
        (((1LL * volume * lies.d + d) * lies.h + h) * lies.w + w) * (a.groups * kResults) + channel);
    }
  }

  // Returns the offset of a row of outputs in NCHW, for one of the consumer's filters.
  __device__ __forceinline__ unsigned staged_row(int filter) const {
    return staging + filter * constant<config.staged_pitch()>;
  }

  // Outputs of this warp's filters, between there and a tensor in NCHW: lanes have runs of one filter, or of
  // several where those are few, and keep their place from filter to filter.
  template <bool kToTensor, class Half>
  __device__ __forceinline__ void move_runs(Half* __restrict__ tensor) const {
    constexpr int kRun = config.run(), kRuns = config.tile_outputs() / kRun, kPlane = a.z * a.p * a.q;
    constexpr int kAbreast = kRuns > 16 ? 1 : kRuns > 8 ? 2 : kRuns > 4 ? 4 : 8, kLanes = 32 / kAbreast;
    constexpr int kSteps = kBlocks * 16 / kAbreast, kAtOnce = kRun == 8 ? 2 : lesser(4, kSteps);
    const int lane = thread % 32, first = thread / 32 * 16 + lane / kLanes;
#pragma unroll 1
    for (int run = lane % kLanes; run < kRuns; run += kLanes) {
      const int image = run * kRun / (config.rows * config.columns);
      const int row = run * kRun / config.columns % config.rows, column = run * kRun % config.columns;
      if (!exists(corner.image + image, corner.row + row, corner.column + column)) continue;
      const auto pixel = (kOne * (corner.volume * constant<config.batch()> + corner.image + image) * kRows +
                          corner.row + row) *
                             kColumns +
                         corner.column + column;
      Half* const from_first = tensor + offset(pixel, first_filter() + first);
      const unsigned at = staged_row(first) + 2 * config.column_of(image, row, column);
#pragma unroll 1
      for (int step = 0; step < kSteps; step += kAtOnce) {
        Run<kRun, config.piece()> some[kAtOnce];
        const auto for_each = [&](const auto& f) {
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) {
            const int filter = (step + i) * kAbreast / 16 * 64 + (step + i) * kAbreast % 16;
            if (config.set_filters() % config.filters() == 0 ||
                corner.filter + first + filter < config.set_filters())
              f(some[i], from_first + 1LL * filter * kPlane, at + filter * constant<config.staged_pitch()>);
          }
        };
        if constexpr (kToTensor) {
          for_each([](auto& one, auto*, unsigned from) { one.load_shared(from); });
          for_each([](auto& one, auto* to, unsigned) { one.store(to); });
        } else {
          for_each([](auto& one, auto* from, unsigned) { one.load(from); });
          for_each([](auto& one, auto*, unsigned to) { one.store_shared(to); });
        }
      }
    }
  }

  // f(address, filter) for each block: by one thread, for its boxes.
  template <class F>
  __device__ __forceinline__ void for_blocks(const F& f) const {
    for_constants<0, kBlocks>(
        [&](auto block) { f(staging + block.value * kBlockBytes, corner.filter + 64 * block.value); });
  }

  // The tile's last outputs have left shared memory.
  __device__ __forceinline__ void wait_until_free() const {
    if constexpr (config.wide_stores()) {
      if (thread == 0) ptx::bulk_wait_read();
    }
  }

  // The residual on its way to where its outputs will stand.
  __device__ __forceinline__ void load_residual(const Maps& maps,
                                                const unsigned short* __restrict__ residual) const {
    if constexpr (a.residual && config.nchw) {
      __syncwarp();  // the warp has read its last outputs
      move_runs<false>(residual);
    } else if constexpr (a.residual && config.wide_stores()) {
      const bool mine = thread == 0;
      wait_until_free();
      ptx::mbarrier_arrive_expect_if(residual_full, kBlocks * config.tile_outputs() * 128, mine);
      for_blocks([&](unsigned to, int filter) {
        ptx::load_box_if(to, &maps.residual, filter, corner.column, corner.part(), corner.row, corner.image,
                         residual_full, mine);
      });
    } else if constexpr (a.residual && config.piece_stores()) {
      for_pieces([&](unsigned to, long long at) {
        const uint4 words = *reinterpret_cast<const uint4*>(residual + at);
        ptx::st_shared_v4(to, {words.x, words.y, words.z, words.w});
      });
    } else if constexpr (a.residual) {
      for_elements([&](unsigned at, auto pixel, int filter) {
        const long long from = offset(pixel, filter);
        if (!config.conv.lies.between() || from >= 0) ptx::st_shared_u16(at, residual[from]);
      });
    }
  }

  __device__ __forceinline__ void load_biases(Biases<config>& biases, const float* __restrict__ bias) const {
    int first = thread / 32 * 16 + thread % 32 / 4;
    asm volatile("" : "+r"(first));  // opaque, or addresses that follow from it would be kept beside the sums
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      const int filter = first + 64 * (i / 2) + 8 * (i % 2);
      biases[i / 2][i % 2] = config.lying == 0 && corner.filter + filter < constant<config.set_filters()>
                                 ? __ldg(bias + first_filter() + filter)
                                 : 0;
    }
  }

  // This lane's row of the four matrices of 16 columns by this warp's 16 filters of the first block.
  __device__ __forceinline__ unsigned staged_matrices(int part, int lane) const {
    if constexpr (config.nchw)
      return staged_row(thread / 32 * 16 + lane % 16) + 2 * (16 * part + lane / 16 * 8);
    const int output = config.output_of(16 * part + lane / 16 * 8 + lane % 8, constant<config.pitch()>,
                                        constant<config.box_rows()>);
    const int row = output < 0 ? constant<config.staged_rows()> - 8 + lane % 8 : output;
    return staging + config.staged_at(row, thread / 32 * 2 + lane / 8 % 2);
  }

  // Sums to outputs, 16 columns of this warp's 16 filters of a block at a time.
  __device__ __forceinline__ void finish_sums(const Sums<config>& sums, const Biases<config>& biases) const {
    int lane = thread % 32;  // opaque, so that no addresses are kept beside the sums
    asm volatile("" : "+r"(lane));
    if constexpr (config.nchw)
      __syncwarp();
    else if constexpr (a.residual && config.wide_stores())
      ptx::mbarrier_wait(residual_full, residual_parity);
    else
      wait_until_free();
    if constexpr (!config.nchw && (!a.residual || !config.wide_stores())) sync();
    // Two steps at once: one's special functions beside another's loads.
    constexpr int kSteps = config.positions() / 16 * kBlocks;
    constexpr int kAtOnce = 2;
#pragma unroll
    for (int begin = 0; begin < kSteps; begin += kAtOnce) {
      unsigned at[kAtOnce], words[kAtOnce][4] = {};
      const auto each = [&](const auto& f) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          if (begin + i < kSteps) f(i, (begin + i) / kBlocks, (begin + i) % kBlocks);
      };
      each([&](int step, int part, int block) {
        at[step] = staged_matrices(part, lane) + block * kBlockBytes;
        if constexpr (config.conv.residual && config.nchw)
          ptx::ldmatrix_x4(words[step], at[step]);
        else if constexpr (config.conv.residual)
          ptx::ldmatrix_x4_trans(words[step], at[step]);
      });
      each([&](int step, int part, int block) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          unsigned& word = words[step][i];
          const float* const two = sums[block] + 8 * part + 2 * i;
          const float bias = biases[block][i % 2];
          word = finish_halves<config.conv>(two[0], bias, two[1], bias, word);
        }
      });
      each([&](int step, int, int) {
        if constexpr (config.nchw)
          ptx::stmatrix_x4(at[step], words[step]);
        else
          ptx::stmatrix_x4_trans(at[step], words[step]);
      });
    }
  }

  // Stores what was gathered.
  __device__ __forceinline__ void store(const Maps& maps, unsigned short* __restrict__ y) const {
    if constexpr (config.nchw) {
      __syncwarp();
      move_runs<true>(y);
    } else if constexpr (config.wide_stores()) {
      ptx::fence_proxy_async();
      sync();
      for_blocks([&](unsigned from, int filter) {
        ptx::store_box_if(&maps.y, filter, corner.column, corner.part(), corner.row, corner.image, from,
                          thread == 0);
      });
      if (thread == 0) ptx::bulk_commit_group();
    } else {
      sync();
      if constexpr (config.piece_stores())
        for_pieces([&](unsigned from, long long at) {
          unsigned words[4];
          ptx::ld_shared_v4(words, from);
          *reinterpret_cast<uint4*>(y + at) = {words[0], words[1], words[2], words[3]};
        });
      else
        for_elements([&](unsigned at, auto pixel, int filter) {
          const long long to = offset(pixel, filter);
          if (!config.conv.lies.between() || to >= 0)
            y[to] = static_cast<unsigned short>(ptx::ld_shared_u16(at));
        });
      sync();  // before a residual comes
    }
  }

  // Computes these outputs again slowly, where a weight is not finite.
  __device__ void store_exact(const unsigned short* __restrict__ x, const unsigned short* __restrict__ cache,
                              const float* __restrict__ packed, const unsigned short* __restrict__ residual,
                              unsigned short* __restrict__ y) const {
    for_elements([&](unsigned, auto pixel, int filter) {
      const long long output = offset(pixel, filter);
      if (config.conv.lies.between() && output < 0) return;
      float other = 0;
      if constexpr (a.residual) other = load_element<a.y_type>(residual, output);
      const int frame = static_cast<int>(pixel / (a.p * a.q)), row = static_cast<int>(pixel / a.q % a.p);
      const int column = static_cast<int>(pixel % a.q);
      float value;
      if constexpr (config.lying > 0)
        value =
            exact_lying_output<config>(x, packed, frame / a.z, filter, row + late_rows<config>(corner.set),
                                       column + late_columns<config>(corner.set), frame % a.z);
      else if constexpr (config.cache > 0)
        value = exact_with_cache(x, cache, packed, frame / a.z, filter, row, column, other, frame % a.z);
      else
        value = exact_output<config>(x, packed, frame / a.z, filter, row + late_rows<config>(corner.set),
                                     column + late_columns<config>(corner.set), other, frame % a.z);
      store_element<a.y_type>(y, output, value);
    });
  }

  // As exact_output(), where the first frames are the cache's.
  __device__ static float exact_with_cache(const unsigned short* __restrict__ x,
                                           const unsigned short* __restrict__ cache,
                                           const float* __restrict__ packed, int volume, int filter, int p,
                                           int q, float residual, int z) {
    constexpr Packed kAt = config.packed();
    constexpr ConvExtents kFrames = [] {
      ConvExtents whole = a;
      whole.d += config.cache, whole.pad_front -= config.cache;
      return whole;
    }();
    constexpr ConvExtents kCache = [] {
      ConvExtents before = a;
      before.d = config.cache;
      return before;
    }();
    const float sum = exact_sum(
        kFrames, exact_taps<config>(packed, filter), p * a.stride_h - a.pad_top, q * a.stride_w - a.pad_left,
        [&](int channel, int frame, int row, int column) {
          return frame < config.cache
                     ? load_element<a.x_type>(cache, kCache.input_offset(volume, channel, frame, row, column))
                     : load_element<a.x_type>(
                           x, a.input_offset(volume, channel, frame - config.cache, row, column));
        },
        z * a.stride_d - kFrames.pad_front);
    return finish<config.conv>(sum, packed[kAt.bias_at() + filter], residual);
  }
};

}  // namespace convtune::direct_body_half_sm90
