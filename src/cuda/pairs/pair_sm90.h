// Two convolutions and what surrounds them as one kernel (pair_sm90.cuh, which draws it): numbers that it is
// compiled for, choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/smem.h"

namespace convtune {

// In front of both convolutions: v where it is above 0, else v times a slope; or v + scale * sin(alpha * v)^2
// with an alpha and a scale a channel.
enum class PairSm90Activation { leaky_relu, snake };

// The packed weights, in words of 4 bytes: weights as halves; biases; alphas and scales, in front of the
// first convolution and of the second, and behind it; a flag that is not 0 where a weight is not finite; and
// a word that is written last (pair_executable.cpp says why).
struct PackedPair {
  long long weights = 0;  // words of both convolutions
  int channels = 0;
  bool snake = false, behind = false;  // alphas and scales, also those behind the second convolution
  constexpr long long bias_at(int second) const { return weights + second * channels; }
  constexpr long long alpha_at(int second) const { return weights + (2 + 2 * second) * channels; }
  constexpr long long scale_at(int second) const { return alpha_at(second) + channels; }
  constexpr long long behind_at() const { return weights + (snake ? 6 : 2) * channels; }
  constexpr long long flag_at() const { return behind_at() + (behind ? 2 : 0) * channels; }
  constexpr long long last_at() const { return flag_at() + 1; }
  constexpr long long words() const { return flag_at() + 2; }
  constexpr long long threads() const { return weights / 4 + flag_at() - weights; }
};

struct PairSm90 {
  ElementType type = ElementType::bf16;
  PairSm90Activation activation = PairSm90Activation::leaky_relu;
  int channels = 64, first_taps = 3, second_taps = 3;
  int snake = 0;      // 1: y is what one more Snake makes of it, 2: and what it was, in front of that
  int activated = 0;  // 1: what the first activation makes of x lies behind x
  int consumers = 2, parts = 1, depth = 64, stages = 4;
  static constexpr const char* kName = "PairSm90";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("type", self.type), field("activation", self.activation);
    field("channels", self.channels);
    field("first_taps", self.first_taps), field("second_taps", self.second_taps);
    if (self.snake > 0) field("snake", self.snake);
    if (self.activated > 0) field("activated", self.activated);
    field("consumers", self.consumers, 1, 4, "warpgroups that multiply, 64 positions each");
    field("parts", self.parts, 1, 8, "blocks that share a tile, each with so many-th of the channels");
    field("depth", self.depth, 32, 512, "input channels of a stage of weights");
    field("stages", self.stages, 1, 32, "stages of weights kept at once, of a tap each");
  }

  // ---- A tile: positions of the intermediate, of which the outside ones have no output ----
  constexpr int positions() const { return 64 * consumers; }
  constexpr int outputs() const { return positions() - (second_taps - 1); }
  constexpr int first_pad(int dilation) const { return (first_taps - 1) / 2 * dilation; }
  constexpr int second_pad() const { return (second_taps - 1) / 2; }
  constexpr int x_rows(int dilation) const { return positions() + (first_taps - 1) * dilation; }
  constexpr int consumer_threads() const { return 128 * consumers; }
  // Threads that load x, of which the first are the consumers: activating it is as much work as products.
  // Each has one piece of 16 bytes of every so many-th position, a multiple of 8.
  constexpr int loading_threads() const { return kMostLoading / channels * channels; }
  constexpr int loading_rows() const { return loading_threads() / (channels / 8); }
  static constexpr int kMostLoading = 512;
  constexpr int threads() const { return loading_threads() + 32; }

  // ---- Channels in chunks, each a matrix of its own in shared memory with rows of 64 or 128 bytes ----
  constexpr int filters() const { return channels / parts; }  // output channels of a block
  constexpr int chunk() const { return filters() % 64 == 0 && depth % 64 == 0 ? 64 : 32; }
  constexpr int chunks() const { return channels / chunk(); }
  constexpr int row_bytes() const { return 2 * chunk(); }
  constexpr int pieces() const { return chunk() / 8; }  // 16 bytes each, exchanged as wgmma has it
  constexpr int exchanged(int row, int piece) const { return piece ^ (row * pieces() / 8 % pieces()); }

  // ---- Weights: [part][convolution][step][chunk][filter][piece, exchanged][8] ----
  constexpr int step_chunks() const { return depth / chunk(); }
  constexpr int tap_steps() const { return channels / depth; }
  constexpr int steps(bool second) const { return (second ? second_taps : first_taps) * tap_steps(); }
  constexpr int all_steps() const { return steps(false) + steps(true); }
  constexpr bool weights_stay() const { return stages >= all_steps(); }
  constexpr int chunk_bytes() const { return filters() * row_bytes(); }
  constexpr int stage_bytes() const { return step_chunks() * chunk_bytes(); }
  constexpr PackedPair packed() const {
    return {1LL * parts * all_steps() * stage_bytes() / 4, channels, activation == PairSm90Activation::snake,
            snake > 0};
  }
  // The place of eight weights: which filter, which channels, which tap of which convolution.
  struct Weights {
    bool second;
    int filter, channel, tap;
  };
  constexpr Weights weights_of(long long unit) const {
    const auto unit_of_part = static_cast<int>(unit % (packed().weights / 4 / parts));
    const int part = static_cast<int>(unit / (packed().weights / 4 / parts));
    const int row = unit_of_part / pieces() % filters();
    const int chunk_at = unit_of_part / pieces() / filters(), step = chunk_at / step_chunks();
    const bool is_second = step >= steps(false);
    const int own_step = is_second ? step - steps(false) : step;
    return {is_second, part * filters() + row,
            own_step % tap_steps() * depth + chunk_at % step_chunks() * chunk() +
                8 * exchanged(row, unit_of_part % pieces()),
            own_step / tap_steps()};
  }
  // The place of one weight, in halves: the inverse.
  constexpr long long half_of(bool second, int filter, int channel, int tap) const {
    const int row = filter % filters();
    const int step = (second ? steps(false) : 0) + tap * tap_steps() + channel / depth;
    const long long chunk_at =
        (1LL * (filter / filters()) * all_steps() + step) * step_chunks() + channel % depth / chunk();
    return ((chunk_at * filters() + row) * pieces() + exchanged(row, channel % chunk() / 8)) * 8 +
           channel % 8;
  }

  // ---- Shared memory ----
  // Rows of the intermediate behind a tile's last are read for outputs that are dropped.
  constexpr int middle_bytes() const {  // a chunk
    return round_up((positions() + second_taps - 1) * row_bytes(), 1024);
  }
  constexpr int sent_bytes() const { return 2 * positions() * (channels - filters()); }  // to each block
  constexpr int staging_bytes() const { return positions() * row_bytes(); }  // one of the block's own chunks
  constexpr int own_chunks() const { return filters() / chunk(); }
  constexpr int x_bytes(int dilation) const {  // a chunk
    return round_up(x_rows(dilation) * row_bytes(), 1024);
  }
  struct Smem {
    int weights, middle, staging, full, empty, middle_full, numbers, x;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    Smem at{};
    at.weights = plan.take(stages * stage_bytes());
    at.middle = plan.take(chunks() * middle_bytes());
    at.staging = plan.take(own_chunks() * staging_bytes());
    at.full = plan.take(8 * stages);
    at.empty = plan.take(8 * stages);
    at.middle_full = plan.take(16);
    at.numbers = plan.take(numbers_bytes());
    at.x = static_cast<int>(round_up(plan.end, 1024LL));
    return at;
  }
  // Biases of the block's filters in both convolutions; where the activation has numbers, those in front of
  // the second of these filters, and in front of the first of all channels. In floats.
  constexpr int alpha_at(bool second) const { return (second ? 2 : 4) * filters(); }
  constexpr int scale_at(bool second) const { return alpha_at(second) + (second ? filters() : channels); }
  constexpr int behind_at() const {
    return activation == PairSm90Activation::snake ? 4 * filters() + 2 * channels : 2 * filters();
  }
  constexpr int numbers_bytes() const { return 4 * (behind_at() + (snake > 0 ? 2 * filters() : 0)); }
  constexpr int smem_bytes(int dilation) const { return smem().x + chunks() * x_bytes(dilation); }

  constexpr bool valid(int dilation, long long smem_limit) const {
    return is_in_range(*this) && channels % 32 == 0 && loading_threads() >= consumer_threads() &&
           channels % parts == 0 && filters() % 32 == 0 && filters() <= 256 && channels % depth == 0 &&
           depth % chunk() == 0 && first_taps % 2 == 1 && second_taps % 2 == 1 && outputs() >= 32 &&
           (stages > 1 || all_steps() == 1) && sums_fit() && smem_bytes(dilation) <= smem_limit;
  }
  constexpr bool sums_fit() const { return filters() / 2 + 48 <= registers_for(threads(), 1); }
};

}  // namespace convtune
