// How direct_body_half_sm90.cuh stores a consumer's sums. Their rows are filters and their columns outputs,
// and tensors have it the other way round: matrix loads and stores transpose them on their way from and to
// shared memory, where the residual waits and outputs gather; TMA brings the one and stores the others.
#pragma once

#include "cuda/algorithms/direct_body_half_sm90/load.cuh"
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
  static constexpr int kBlocks = config.filter_blocks, kBlockBytes = config.staged_rows() * 128;
  static constexpr int kRows = config.vertical().output, kColumns = config.horizontal().output;
  DirectBodyHalfSm90::Corner corner;  // of the consumer: its first filter
  unsigned staging, residual_full, residual_parity;
  int thread, barrier;  // of the consumer's 128

  __device__ __forceinline__ void sync() const { ptx::bar_sync(barrier, 128); }

  // f(address, output, filter) for this thread's elements of the tile, of those that are.
  template <class F>
  __device__ __forceinline__ void for_elements(const F& f) const {
    constexpr int kFilters = config.consumer_filters();
#pragma unroll 1
    for (int i = thread; i < config.tile_outputs() * kFilters; i += 128) {
      const int index = i / kFilters, column = i % kFilters, filter = corner.filter + column;
      const int image = corner.image + index / (config.rows * config.columns);
      const int row = corner.row + index / config.columns % config.rows;
      const int pixel_column = corner.column + index % config.columns;
      if (image >= config.batch() || row >= kRows || pixel_column >= kColumns || filter >= a.k) continue;
      const unsigned at =
          staging + column / 64 * kBlockBytes + config.staged_at(index, column % 64 / 8) + column % 8 * 2;
      f(at, ((1LL * image * kRows + row) * kColumns + pixel_column) * a.k + filter, filter);
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
    if constexpr (a.residual && config.wide_stores()) {
      const bool mine = thread == 0;
      wait_until_free();
      ptx::mbarrier_arrive_expect_if(residual_full, kBlocks * config.tile_outputs() * 128, mine);
      for_blocks([&](unsigned to, int filter) {
        ptx::load_box_if(to, &maps.residual, filter, corner.column, 0, corner.row, corner.image,
                         residual_full, mine);
      });
    } else if constexpr (a.residual) {
      for_elements([&](unsigned at, long long output, int) { ptx::st_shared_u16(at, residual[output]); });
    }
  }

  __device__ __forceinline__ void load_biases(Biases<config>& biases, const float* __restrict__ bias) const {
    const int filter = corner.filter + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i)
      biases[i / 2][i % 2] =
          filter + 64 * (i / 2) + 8 * (i % 2) < a.k ? __ldg(bias + filter + 64 * (i / 2) + 8 * (i % 2)) : 0;
  }

  // Sums to outputs, 16 columns of this warp's 16 filters of a block at a time.
  __device__ __forceinline__ void finish_sums(const Sums<config>& sums, const Biases<config>& biases) const {
    // Opaque, or addresses that follow from it would be kept in registers from tile to tile.
    int lane = thread % 32;
    asm volatile("" : "+r"(lane));
    if constexpr (a.residual && config.wide_stores())
      ptx::mbarrier_wait(residual_full, residual_parity);
    else
      wait_until_free();
    if constexpr (!a.residual || !config.wide_stores()) sync();
#pragma unroll
    for (int part = 0; part < config.positions() / 16; ++part) {
      const int output = config.output_of(16 * part + lane / 16 * 8 + lane % 8);
      const int row = output < 0 ? config.staged_rows() - 8 + lane % 8 : output;
      const unsigned at = staging + config.staged_at(row, thread / 32 * 2 + lane / 8 % 2);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        unsigned words[4] = {0, 0, 0, 0};
        if constexpr (a.residual) ptx::ldmatrix_x4_trans(words, at + block * kBlockBytes);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* const two = sums[block] + 8 * part + 2 * i;
          const float bias = biases[block][i % 2];
          words[i] = pack_halves<a.y_type>(finish<config.conv>(two[0], bias, low_half<a.y_type>(words[i])),
                                           finish<config.conv>(two[1], bias, high_half<a.y_type>(words[i])));
        }
        ptx::stmatrix_x4_trans(at + block * kBlockBytes, words);
      }
    }
  }

  // What was gathered.
  __device__ __forceinline__ void store(const Maps& maps, unsigned short* __restrict__ y) const {
    if constexpr (config.wide_stores()) {
      ptx::fence_proxy_async();
      sync();
      for_blocks([&](unsigned from, int filter) {
        ptx::store_box_if(&maps.y, filter, corner.column, 0, corner.row, corner.image, from, thread == 0);
      });
      if (thread == 0) ptx::bulk_commit_group();
    } else {
      sync();
      for_elements([&](unsigned at, long long output, int) {
        y[output] = static_cast<unsigned short>(ptx::ld_shared_u16(at));
      });
      sync();  // before a residual comes
    }
  }

  // The same outputs, slowly, where a weight is not finite.
  __device__ void store_exact(const unsigned short* __restrict__ x, const float* __restrict__ packed,
                              const unsigned short* __restrict__ residual,
                              unsigned short* __restrict__ y) const {
    for_elements([&](unsigned, long long output, int filter) {
      float other = 0;
      if constexpr (a.residual) other = load_element<a.y_type>(residual, output);
      const long long pixel = output / a.k;
      store_element<a.y_type>(
          y, output,
          exact_output<config>(x, packed, static_cast<int>(pixel / (a.p * a.q)), filter,
                               static_cast<int>(pixel / a.q % a.p), static_cast<int>(pixel % a.q), other));
    });
  }
};

}  // namespace convtune::direct_body_half_sm90
