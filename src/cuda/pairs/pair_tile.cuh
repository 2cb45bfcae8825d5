// A tile of pair_sm90.cuh: where its numbers lie, and how x and weights come to them.
#pragma once

#include "cuda/pairs/pair_sm90.h"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/halves.cuh"
#include "cuda/ptx/sine.cuh"
#include "cuda/ptx/sm80.cuh"
#include "cuda/ptx/sm90.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/element.cuh"
#include "cuda/tile/ring.cuh"

namespace convtune::pair_sm90 {

// The arguments of a launch, and the tile of a block.
struct Run {
  const unsigned short* x;
  const unsigned* packed;
  unsigned short* y;
  int positions, dilation;
  float slope;
};
template <PairSm90 config>
struct Tile {
  int part, first, image;  // the first output's position
  int warp, thread;        // the warp's number is known to be the same for all of it
  unsigned smem;

  __device__ int lane() const { return thread % 32; }
  __device__ int consumer() const { return config.consumers == 1 ? 0 : warp / 4; }
  __device__ int first_row() const { return warp * 16; }  // for a warp
  __device__ int first_filter() const { return part * config.filters(); }
};
template <PairSm90 config>
using Sums = float[config.filters() / 2];

// All threads that load x, and the consumers among them.
template <PairSm90 config>
__device__ __forceinline__ void wait_for_loaders() {
  ptx::bar_sync(1, config.loading_threads());
}
template <PairSm90 config>
__device__ __forceinline__ void wait_for_consumers() {
  ptx::bar_sync(2, config.consumer_threads());
}

// The squared sine has a period of pi, so that an angle is taken modulo it.
__device__ __forceinline__ float snake(float v, float alpha, float scale) {
  constexpr float kPi = 3.14159265f;
  const float turns = alpha * v * (1 / kPi), sine = ptx::sin_approx((turns - rintf(turns)) * kPi);
  return fmaf(scale * sine, sine, v);
}

// An activation's numbers for two neighbouring channels.
struct SnakePair {
  float alpha[2], scale[2];
};
// In front of the first convolution of all channels, in front of the second of the block's own.
template <PairSm90 config, bool kSecond>
__device__ __forceinline__ SnakePair snake_pair(const Tile<config>& tile, int channel) {
  SnakePair two{};
  if constexpr (config.activation == PairSm90Activation::snake) {
    const unsigned numbers = tile.smem + config.smem().numbers + 4 * channel;
    ptx::ld_shared_v2(two.alpha[0], two.alpha[1], numbers + 4 * config.alpha_at(kSecond));
    ptx::ld_shared_v2(two.scale[0], two.scale[1], numbers + 4 * config.scale_at(kSecond));
  }
  return two;
}

// Two numbers activated, as a word.
template <PairSm90 config>
__device__ __forceinline__ unsigned activated(const Run& run, const SnakePair& two, float low, float high) {
  if constexpr (config.activation == PairSm90Activation::snake)
    return pack_halves<config.type>(snake(low, two.alpha[0], two.scale[0]),
                                    snake(high, two.alpha[1], two.scale[1]));
  return pack_halves<config.type>(low > 0 ? low : low * run.slope, high > 0 ? high : high * run.slope);
}
// Two halves activated: with a leaky ReLU those that have a sign take what it makes of them.
template <PairSm90 config>
__device__ __forceinline__ unsigned activated(const Run& run, const SnakePair& two, unsigned halves) {
  const float low = low_half<config.type>(halves), high = high_half<config.type>(halves);
  if constexpr (config.activation == PairSm90Activation::snake) return activated<config>(run, two, low, high);
  const unsigned negative = ptx::half_signs(halves);
  return (pack_halves<config.type>(low * run.slope, high * run.slope) & negative) | (halves & ~negative);
}

// Biases, and what the activations have a channel, which no earlier grid writes.
template <PairSm90 config>
__device__ __forceinline__ void load_numbers(const Run& run, const Tile<config>& tile) {
  constexpr PackedPair kPacked = config.packed();
  const auto copy = [&](int to, long long from, int count) {
#pragma unroll 1
    for (int i = tile.thread; i < count; i += config.loading_threads())
      ptx::st_shared(tile.smem + config.smem().numbers + 4 * (to + i), run.packed[from + i]);
  };
  const int own = tile.first_filter();
  copy(0, kPacked.bias_at(0) + own, config.filters());
  copy(config.filters(), kPacked.bias_at(1) + own, config.filters());
  if constexpr (config.activation == PairSm90Activation::snake) {
    copy(config.alpha_at(true), kPacked.alpha_at(1) + own, config.filters());
    copy(config.scale_at(true), kPacked.scale_at(1) + own, config.filters());
    copy(config.alpha_at(false), kPacked.alpha_at(0), 2 * config.channels);  // and scales behind
  }
  if constexpr (config.snake > 0) {
    copy(config.behind_at(), kPacked.behind_at() + own, config.filters());
    copy(config.behind_at() + config.filters(), kPacked.behind_at() + config.channels + own,
         config.filters());
  }
}

// The place of a piece of 16 bytes in matrices of `matrix_bytes` each, one for each chunk of channels.
template <PairSm90 config>
__device__ __forceinline__ unsigned place_of(int row, int piece, int matrix_bytes) {
  return piece / config.pieces() * matrix_bytes + row * config.row_bytes() +
         16 * config.exchanged(row, piece % config.pieces());
}

// x with its halos, activated, and as it came where outputs add it.
template <PairSm90 config>
__device__ __forceinline__ void load_x(const Run& run, const Tile<config>& tile) {
  constexpr auto kAt = config.smem();
  constexpr int kPieces = config.channels / 8, kRows = config.loading_rows();
  constexpr int kAtOnce = kPieces < 16 ? 4 : 8;
  static_assert(kRows % 8 == 0);  // pieces are exchanged alike
  const int pads = config.first_pad(run.dilation) + config.second_pad();
  const int rows = config.x_rows(run.dilation), first = tile.first - pads;
  const int piece = tile.thread % kPieces, own_piece = piece - tile.first_filter() / 8;
  const unsigned staging = tile.smem + kAt.staging;
  const bool is_own = own_piece >= 0 && own_piece < config.filters() / 8;
  SnakePair snakes[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) snakes[j] = snake_pair<config, false>(tile, 8 * piece + 2 * j);
  int row = tile.thread / kPieces;
  const unsigned short* from =
      run.x + (1LL * tile.image * run.positions + first + row) * config.channels + 8 * piece;
  unsigned to = tile.smem + kAt.x + place_of<config>(row, piece, config.x_bytes(run.dilation));
#pragma unroll 1
  for (; row < rows; row += kAtOnce * kRows) {
    unsigned words[kAtOnce][4];
    for_constants<0, kAtOnce>([&](auto i) {
      const int at = row + i.value * kRows, position = first + at;
      ptx::ld_global_v4_if<2LL * i.value * kRows * config.channels>(
          words[i.value], from, at < rows && position >= 0 && position < run.positions);
    });
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = row + i * kRows, output = at - pads;
      if (at >= rows) continue;
      if (is_own && output >= 0 && output < config.outputs())
        ptx::st_shared_v4(staging + place_of<config>(output, own_piece, config.staging_bytes()), words[i]);
#pragma unroll
      for (int j = 0; j < 4; ++j) words[i][j] = activated<config>(run, snakes[j], words[i][j]);
      ptx::st_shared_v4(to + i * kRows * config.row_bytes(), words[i]);
    }
    from += kAtOnce * kRows * config.channels, to += kAtOnce * kRows * config.row_bytes();
  }
}

// As above, where somebody has activated it: nothing passes through registers.
template <PairSm90 config>
__device__ __forceinline__ void copy_x(const Run& run, const Tile<config>& tile) {
  constexpr auto kAt = config.smem();
  constexpr int kPieces = config.channels / 8, kRows = config.loading_rows();
  const int pads = config.first_pad(run.dilation) + config.second_pad();
  const int rows = config.x_rows(run.dilation), first = tile.first - pads;
  const int piece = tile.thread % kPieces, own_piece = piece - tile.first_filter() / 8;
  const unsigned staging = tile.smem + kAt.staging;
  const bool is_own = own_piece >= 0 && own_piece < config.filters() / 8;
  int row = tile.thread / kPieces;
  const unsigned short* from =
      run.x + (1LL * tile.image * run.positions + first + row) * config.channels + 8 * piece;
  const long long behind = 1LL * gridDim.y * run.positions * config.channels;
  unsigned to = tile.smem + kAt.x + place_of<config>(row, piece, config.x_bytes(run.dilation));
#pragma unroll 4
  for (; row < rows; row += kRows) {
    const int position = first + row, output = row - pads;
    const bool is_inside = position >= 0 && position < run.positions;
    ptx::cp_async_16(to, is_inside ? from + behind : run.x, is_inside ? 16 : 0);
    if (is_own && output >= 0 && output < config.outputs())
      ptx::cp_async_16(staging + place_of<config>(output, own_piece, config.staging_bytes()),
                       is_inside ? from : run.x, is_inside ? 16 : 0);
    from += kRows * config.channels, to += kRows * config.row_bytes();
  }
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
}

// By one warp, of which one thread does it. `filled()` is called once all stages are under way, before others
// are waited for.
template <PairSm90 config, class Filled>
__device__ __forceinline__ void load_weights(const Run& run, unsigned smem, int part, const Filled& filled) {
  constexpr auto kAt = config.smem();
  constexpr int kBytes = config.stage_bytes();
  const bool mine = threadIdx.x % 32 == 0;
  const char* from = reinterpret_cast<const char*>(run.packed) + 1LL * part * config.all_steps() * kBytes;
  Ring<config.stages> ring;
#pragma unroll 1
  for (int step = 0; step < config.all_steps(); ++step) {
    if constexpr (!config.weights_stay()) {
      if (step == config.stages) filled();
      ring.wait_empty(smem + kAt.empty);
    }
    const unsigned full = ring.barrier(smem + kAt.full);
    ptx::mbarrier_arrive_expect_if(full, kBytes, mine);
    ptx::bulk_copy_to_shared_if(smem + kAt.weights + ring.slot * kBytes, from, kBytes, full, mine);
    from += kBytes;
    ring.next();
  }
  if constexpr (config.weights_stay()) filled();
}

}  // namespace convtune::pair_sm90
