// A pair: two convolutions over positions and what surrounds them as one kernel, as vocoders and codecs of
// audio have them by dozens, where launches and what moves between them are the cost:
//
//   y = x + second(act(first(act(x))))
//
//   auto pair = convtune::plan_pair({.c = 128, .t = 6400, .first_taps = 11, .dilation = 5, .second_taps =
//   11}); pair.pack({.first = w1, .first_bias = b1, .second = w2, .second_bias = b2}, packed); pair.run(x,
//   packed, y);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convtune/config.h"
#include "convtune/device.h"

namespace convtune {

// In front of both convolutions: v where it is above 0, else slope * v; or, with numbers a channel,
// v + scale * sin(alpha * v)^2.
enum class PairActivation { leaky_relu, snake };

// x and y are [n][t][c], in half precision. Both convolutions have as many filters as channels, a stride of 1
// and as much padding as keeps the positions. An activation's result is rounded to the element type, and y
// once, as by two convolutions with an epilogue. Channels are a multiple of 32 of up to 512, which up to 8
// blocks share in multiples of 32 up to 256 (not 352 and 416); filters have up to 63 and 31 taps, a dilation
// up to 256, and a tile with its halos has to fit into shared memory.
struct PairProblem {
  DType dtype = DType::bf16;
  std::int64_t n = 1, c = 32, t = 1;
  std::int64_t first_taps = 3, dilation = 1, second_taps = 3;  // taps are odd; the second has no dilation
  PairActivation activation = PairActivation::leaky_relu;
  float slope = 0;
  // One more Snake behind the sum, of what is stored, where the activation is Snake, too; convtune/tensor.h
  // says where its values are.
  Snake snake = Snake::none;
  bool activated = false;  // behind x lies what the first activation makes of it, as `beside` stores it

  double flops() const;
  bool operator==(const PairProblem&) const = default;
};
std::string to_string(const PairProblem&);  // "1x128x6400 bf16 11d5 11 leaky_relu:0.1"

// Device pointers. Weights are [C][C][taps] and biases [C] of the problem's type; a bias may be null. What
// Snake has in front of each convolution is [C] in float, and null elsewhere.
struct PairWeights {
  const void *first = nullptr, *first_bias = nullptr, *second = nullptr, *second_bias = nullptr;
  const float *first_alpha = nullptr, *first_scale = nullptr;
  const float *second_alpha = nullptr, *second_scale = nullptr;
  const float *behind_alpha = nullptr, *behind_scale = nullptr;
};

// Planned once, run often, by any number of threads. A copy is another name of the same.
class Pair {
 public:
  const PairProblem& problem() const;
  const DeviceInfo& device() const;
  const Config& config() const;
  double estimated_us() const;
  // Names the order of packed weights: those of an equal one on the same device serve this one, too.
  std::string packed_order() const;
  std::size_t packed_bytes() const;

  // In memory of the caller's on the device, aligned to 256 bytes, kept until what reads it is done. Written
  // by pack(), or by a copy that no kernel overlaps: a run reads it before kernels in front of it have ended.
  void pack(const PairWeights& weights, void* packed, Stream stream = nullptr) const;
  // x and y begin at multiples of 16 bytes and do not overlap: what one block stores others read. Throws
  // Error{invalid_argument} where y is x.
  void run(const void* x, const void* packed, void* y, Stream stream = nullptr) const;

 private:
  friend Pair plan_pair(const PairProblem&, Device, const Config&);
  struct State;
  std::shared_ptr<const State> state_;
};

// All configs for a problem, the one that should be fastest first. Throws Error{unsupported} with the reason
// where there is none, Error{invalid_argument} for numbers that make no pair.
std::vector<Config> pair_configs(const PairProblem& problem, Device device = best_device());
// Takes the first of pair_configs() where no config is given. Compiles; throws what pair_configs() throws.
Pair plan_pair(const PairProblem& problem, Device device = best_device(), const Config& config = {});

}  // namespace convtune
