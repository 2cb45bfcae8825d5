// See convtune/pair.h.
#include "convtune/pair.h"

#include <fmt/format.h>

#include "cuda/pairs/pair_executable.h"
#include "plan/algorithms.h"
#include "problem/config_fields.h"

namespace convtune {
namespace {

void check(const PairProblem& a) {
  const bool counts =
      a.n >= 0 && a.c > 0 && a.t > 0 && a.first_taps > 0 && a.second_taps > 0 && a.dilation > 0;
  if (!counts || a.first_taps % 2 == 0 || a.second_taps % 2 == 0)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("a pair has channels, positions, odd taps and a dilation, and not {}", to_string(a)));
  if (a.snake != Snake::none && a.activation != PairActivation::snake)
    throw Error(ErrorKind::invalid_argument, "a Snake stands behind pairs with Snakes");
}

// The device, where it takes the pair.
const DeviceInfo& device_for(const PairProblem& problem, Device device) {
  check(problem);
  const DeviceInfo& info = backend(device).info();
  if (const Support support = cuda::supports_pair(problem, info); !support)
    throw Error(ErrorKind::unsupported, support.reason());
  return info;
}

void check_pointer(const char* what, const void* pointer, std::uintptr_t alignment) {
  if (pointer && reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0) [[likely]]
    return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("pair: {} is {}", what,
                          pointer ? fmt::format("not aligned to {} bytes", alignment) : "null"));
}

}  // namespace

double PairProblem::flops() const {
  return 2.0 * static_cast<double>(n * t) * static_cast<double>(c * c * (first_taps + second_taps));
}

std::string to_string(const PairProblem& a) {
  const std::string activation =
      a.activation == PairActivation::snake ? "snake" : fmt::format("leaky_relu:{}", a.slope);
  std::string text = fmt::format("{}x{}x{} {} {}d{} {} {}", a.n, a.c, a.t, to_string(a.dtype), a.first_taps,
                                 a.dilation, a.second_taps, activation);
  if (a.snake != Snake::none) text += fmt::format(" snake={}", to_string(a.snake));
  if (a.activated) text += " activated=1";
  return text;
}

struct Pair::State {
  State(const PairProblem& a, const DeviceInfo& info, const PairSm90& one)
      : problem(a), device(info), kernel(one), config(to_config(one)), executable(a, one, info) {}
  PairProblem problem;
  DeviceInfo device;
  PairSm90 kernel;
  Config config;
  cuda::PairExecutable executable;
};

std::vector<Config> pair_configs(const PairProblem& problem, Device device) {
  return to_configs(cuda::pair_kernels(problem, device_for(problem, device)));
}

Pair plan_pair(const PairProblem& problem, Device device, const Config& config) {
  const DeviceInfo& info = device_for(problem, device);
  Pair pair;
  pair.state_ = std::make_shared<const Pair::State>(
      problem, info,
      config.values.empty() ? cuda::pair_kernels(problem, info).front() : cuda::pair_kernel(problem, config));
  return pair;
}

const PairProblem& Pair::problem() const {
  return state_->problem;
}
const DeviceInfo& Pair::device() const {
  return state_->device;
}
const Config& Pair::config() const {
  return state_->config;
}
double Pair::estimated_us() const {
  return cuda::estimated_us(state_->problem, state_->kernel, state_->device.units);
}

std::string Pair::packed_order() const {
  const PairSm90& a = state_->kernel;
  return fmt::format("pair {} {} {} {} {} parts={} depth={}", to_string(state_->problem.dtype), a.channels,
                     a.first_taps, a.second_taps,
                     state_->problem.activation == PairActivation::leaky_relu ? "leaky_relu"
                     : state_->problem.snake == Snake::none                   ? "snake"
                                                                              : "three snakes",
                     a.parts, a.depth);
}
std::size_t Pair::packed_bytes() const {
  return state_->executable.packed_bytes();
}

void Pair::pack(const PairWeights& weights, void* packed, Stream stream) const {
  check_pointer("the first convolution's weights", weights.first, 2);
  check_pointer("the second convolution's weights", weights.second, 2);
  for (const void* bias : {weights.first_bias, weights.second_bias})
    if (bias) check_pointer("a bias", bias, 2);
  if (state_->problem.activation == PairActivation::snake)
    for (const float* numbers :
         {weights.first_alpha, weights.first_scale, weights.second_alpha, weights.second_scale})
      check_pointer("a number of Snake's", numbers, 4);
  if (state_->problem.snake != Snake::none)
    for (const float* numbers : {weights.behind_alpha, weights.behind_scale})
      check_pointer("a number of the Snake behind", numbers, 4);
  check_pointer("packed", packed, 256);
  state_->executable.pack(weights, packed, stream);
}

void Pair::run(const void* x, const void* packed, void* y, Stream stream) const {
  if (state_->problem.n == 0) return;
  check_pointer("x", x, 16);
  check_pointer("packed", packed, 256);
  check_pointer("y", y, 16);
  if (x == y) throw Error(ErrorKind::invalid_argument, "pair: y is x, which other blocks read");
  state_->executable.run(x, packed, y, stream);
}

}  // namespace convtune
