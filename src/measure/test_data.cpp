// See test_data.h.
#include "measure/test_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/random_bits.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/base/parallel.h"
#include "problem/element.h"

namespace convtune {
namespace {

// Numbers that the type holds exactly.
std::vector<float> random_values(std::int64_t count, DType type, std::uint64_t seed, TestData data) {
  std::vector<float> values(static_cast<std::size_t>(count));
  cpu::parallel_for(cpu::backend().info().units, count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint64_t bits = random_bits(seed, static_cast<std::uint64_t>(i));
      const double real = static_cast<double>(static_cast<std::int64_t>(bits >> 40) - (1 << 23)) / (1 << 23);
      values[static_cast<std::size_t>(i)] = data == TestData::real
                                                ? static_cast<float>(rounded(type, real))
                                                : static_cast<float>(static_cast<int>(bits % 7) - 3);
    }
  });
  return values;
}

// Random numbers of one problem, one after the other: neighbours of a sweep differ in more than their shapes.
class Draws {
 public:
  Draws(const ConvProblem& problem, std::uint64_t seed) : seed_(random_bits(seed, 6)) {
    for (const char letter : to_string(problem))
      seed_ = random_bits(seed_, static_cast<unsigned char>(letter));
  }
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(random_bits(seed_, next_++) % static_cast<std::uint64_t>(count));
  }
  // The first, the last, or any.
  std::int64_t edge(std::int64_t extent) {
    const std::int64_t which = below(3);
    return which == 0 ? 0 : which == 1 ? extent - 1 : below(extent);
  }

 private:
  std::uint64_t seed_, next_ = 0;
};

// Extents from the outermost axis to the innermost; which of them have edges.
struct Axes {
  std::array<std::int64_t, 5> extents;
  std::array<bool, 5> spatial;
};

Axes activation_axes(Layout layout, std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h,
                     std::int64_t w) {
  if (layout == Layout::nchw) return {{n, c, d, h, w}, {false, false, true, true, true}};
  return {{n, d, h, w, c}, {false, true, true, true, false}};
}

// One to three of them.
void strew(std::vector<float>& values, const Axes& axes, Draws& draws) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr std::array kSpecial = {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity};
  for (std::int64_t left = 1 + draws.below(3); left > 0 && !values.empty(); --left) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < axes.extents.size(); ++i)
      at = at * axes.extents[i] +
           (axes.spatial[i] ? draws.edge(axes.extents[i]) : draws.below(axes.extents[i]));
    values[static_cast<std::size_t>(at)] = kSpecial[static_cast<std::size_t>(draws.below(3))];
  }
}

void strew_all(const ConvProblem& a, TestTensors& tensors, Draws& draws) {
  const Axes inputs = activation_axes(a.layout, a.n, a.c, a.d, a.h, a.w);
  const Axes outputs = activation_axes(a.layout, a.n, a.k, a.z(), a.p(), a.q());
  const Axes& results = a.direction == Direction::backward_data ? inputs : outputs;
  const Axes weights{{a.k, a.c / a.groups, a.t, a.r, a.s}, {false, false, true, true, true}};
  const Axes channels{{1, 1, 1, 1, a.bias_elements()}, {}};
  const Axes frames = activation_axes(a.layout, a.n, a.c, a.cache, a.h, a.w);
  const std::array<std::pair<std::vector<float>*, Axes>, 6> each = {{{&tensors.x, inputs},
                                                                     {&tensors.cache, frames},
                                                                     {&tensors.w, weights},
                                                                     {&tensors.bias, channels},
                                                                     {&tensors.residual, results},
                                                                     {&tensors.dy, outputs}}};
  // One at least; each of the others in one problem of three, so that most outputs stay numbers.
  const std::int64_t present =
      std::ranges::count_if(each, [](const auto& one) { return !one.first->empty(); });
  if (present == 0) return;
  std::int64_t left = draws.below(present);
  for (const auto& [values, axes] : each) {
    if (values->empty()) continue;
    if (left-- == 0 || draws.below(3) == 0) strew(*values, axes, draws);
  }
}

// A number that is denormal in the type even times 3. Of f32 with places to spare for the fractions
// of Winograd's transforms; products of f16 are sums of f32.
float denormal_unit(DType type) {
  return type == DType::f32 ? 0x1p-139F : static_cast<float>(element_row(type).least_denormal());
}

void scale(std::vector<float>& values, DType type, float by) {
  for (float& value : values) value = static_cast<float>(rounded(type, static_cast<double>(value * by)));
}

// The other operand stays as it is.
void make_denormal(const ConvProblem& a, TestTensors& tensors, Draws& draws) {
  struct Operand {
    std::vector<float>* values;
    DType type;
  };
  std::vector<Operand> operands;
  for (const Operand& one :
       {Operand{&tensors.x, a.dtype.x}, {&tensors.w, a.dtype.w}, {&tensors.dy, a.dtype.y}})
    if (!one.values->empty()) operands.push_back(one);
  if (operands.empty()) return;
  const Operand& chosen = operands[static_cast<std::size_t>(draws.below(std::ssize(operands)))];
  const float by = denormal_unit(chosen.type);
  scale(*chosen.values, chosen.type, by);
  if (chosen.values == &tensors.x) scale(tensors.cache, chosen.type, by);
  scale(tensors.bias, a.dtype.bias, by);
  scale(tensors.residual, a.result_type(), by);
}

}  // namespace

TestTensors test_tensors(const ConvProblem& problem, TestData data, std::uint64_t seed) {
  const bool of_weights = problem.direction == Direction::backward_weights;
  const DTypes& types = problem.dtype;
  // Each tensor's numbers come of a seed of its own.
  const auto values = [&](bool used, std::int64_t elements, DType type, std::uint64_t stream) {
    return random_values(used ? elements : 0, type, random_bits(seed, stream), data);
  };
  TestTensors tensors{
      .x = values(problem.direction != Direction::backward_data, problem.input_elements(), types.x, 0),
      .cache = values(problem.cache > 0, problem.cache_elements(), types.x, 6),
      .w = values(!of_weights, problem.weight_elements(), types.w, 1),
      .bias = values(!of_weights && problem.bias, problem.bias_elements(), types.bias, 2),
      .residual = values(problem.residual, problem.residual_elements(), problem.result_type(), 4),
      .dy = values(problem.direction != Direction::forward, problem.output_elements(), types.y, 5)};
  Draws draws(problem, seed);
  if (data == TestData::non_finite) strew_all(problem, tensors, draws);
  if (data == TestData::denormal) make_denormal(problem, tensors, draws);
  return tensors;
}

}  // namespace convtune
