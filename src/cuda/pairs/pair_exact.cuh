// Numbers that have padding among their inputs, computed one by one where weights are not finite
// (pair_sm90.cuh).
#pragma once

#include "cuda/pairs/pair_tile.cuh"

namespace convtune::pair_sm90 {

// A sum of the tile's rows in shared memory, where they are inside of the tensor: `position` is the first
// tap's, in that row.
template <PairSm90 config, bool kSecond>
__device__ float exact_sum(const Run& run, unsigned from, int matrix_bytes, int row, int position, int step,
                           int filter) {
  float sum = 0;
#pragma unroll 1
  for (int tap = 0; tap < (kSecond ? config.second_taps : config.first_taps); ++tap) {
    const int at = position + tap * step, tap_row = row + tap * step;
    if (at < 0 || at >= run.positions) continue;
#pragma unroll 1
    for (int channel = 0; channel < config.channels; ++channel) {
      const unsigned half =
          ptx::ld_shared_u16(from + place_of<config>(tap_row, channel / 8, matrix_bytes) + channel % 8 * 2);
      sum = fmaf(low_half<config.type>(half),
                 load_element<config.type>(run.packed, config.half_of(kSecond, filter, channel, tap)), sum);
    }
  }
  return sum;
}
__device__ __forceinline__ bool meets_padding(const Run& run, int position, int pad) {
  return position >= 0 && position < run.positions && (position < pad || position + pad >= run.positions);
}

// Numbers of the middle that have padding among their inputs, one by one.
template <PairSm90 config>
__device__ void repair_middle(const Run& run, const Tile<config>& tile) {
  constexpr auto kAt = config.smem();
  const int pad = config.first_pad(run.dilation);
#pragma unroll 1
  for (int i = tile.thread; i < config.positions() * config.filters(); i += config.consumer_threads()) {
    const int row = i / config.filters(), own = i % config.filters(), filter = tile.first_filter() + own;
    const int position = tile.first - config.second_pad() + row;
    if (!meets_padding(run, position, pad)) continue;
    const float sum = exact_sum<config, false>(run, tile.smem + kAt.x, config.x_bytes(run.dilation), row,
                                               position - pad, run.dilation, filter);
    const float value = sum + __uint_as_float(run.packed[config.packed().bias_at(0) + filter]);
    const unsigned both = activated<config>(run, snake_pair<config, true>(tile, own & ~1), value, value);
    ptx::st_shared_u16(
        tile.smem + kAt.middle + place_of<config>(row, filter / 8, config.middle_bytes()) + filter % 8 * 2,
        both >> own % 2 * 16);
  }
}
// Computes the outputs of a warp's rows again, as the function above does values of the intermediate: those
// that meet padding.
template <PairSm90 config>
__device__ void repair_outputs(const Run& run, const Tile<config>& tile) {
  constexpr auto kAt = config.smem();
#pragma unroll 1
  for (int i = tile.lane(); i < 16 * config.filters(); i += 32) {
    const int row = tile.first_row() + i / config.filters(), own = i % config.filters();
    const int filter = tile.first_filter() + own, position = tile.first + row;
    if (row >= config.outputs() || !meets_padding(run, position, config.second_pad())) continue;
    const float sum = exact_sum<config, true>(run, tile.smem + kAt.middle, config.middle_bytes(), row,
                                              position - config.second_pad(), 1, filter);
    const float bias = __uint_as_float(run.packed[config.packed().bias_at(1) + filter]);
    const float x = load_element<config.type>(
        run.x, (1LL * tile.image * run.positions + position) * config.channels + filter);
    ptx::st_shared_u16(
        tile.smem + kAt.staging + place_of<config>(row, own / 8, config.staging_bytes()) + own % 8 * 2,
        pack_halves<config.type>(sum + bias + x, 0));
  }
}

}  // namespace convtune::pair_sm90
