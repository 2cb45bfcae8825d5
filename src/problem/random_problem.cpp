// Draws problems until one is small enough, from smaller and smaller limits. Integer arithmetic of our
// own only: the distributions of <random> differ from one standard library to the next.
#include "problem/random_problem.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/random_bits.h"
#include "problem/activation.h"

namespace convtune {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 20;

class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}

  // Uniform in [low, high], but for a bias of under 2^-20 that no test can see.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>((random_bits(seed_, drawn_++) >> 32) %
                                           static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t count) { return between(1, count) == 1; }
  template <std::size_t count>
  std::int64_t pick(const std::array<std::int64_t, count>& values) {
    return values[static_cast<std::size_t>(between(0, count - 1))];
  }

 private:
  std::uint64_t seed_, drawn_ = 0;
};

// 1, a power of two or a neighbour of one, a prime, or anything small: where tiles and vectors end.
std::int64_t draw_extent(Random& random, std::int64_t limit) {
  constexpr std::array<std::int64_t, 12> kPowers = {2, 4, 4, 8, 8, 16, 16, 16, 32, 32, 64, 128};
  constexpr std::array<std::int64_t, 12> kPrimes = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  std::int64_t extent = 1;
  switch (random.between(0, 9)) {
    case 0:
      break;
    case 1:
    case 2:
    case 3:
      extent = random.pick(kPowers);
      extent += random.between(-1, 1);  // its own statement: the order of draws must not be the compiler's
      break;
    case 4:
    case 5:
      extent = random.pick(kPrimes);
      break;
    case 6:
    case 7:
      extent = random.between(1, 8);
      break;
    default:
      extent = random.between(1, limit);
      break;
  }
  return std::min(extent, limit);
}

struct DrawnAxis {
  std::int64_t size, filter, stride, dilation, before, after;
};

DrawnAxis draw_axis(Random& random, std::int64_t limit, bool pointwise) {
  constexpr std::array<std::int64_t, 10> kFilters = {1, 2, 3, 3, 3, 4, 5, 6, 7, 11};
  DrawnAxis axis{};
  axis.size = draw_extent(random, limit);
  axis.filter = random.one_in(12) ? axis.size : std::min(random.pick(kFilters), limit);
  if (pointwise) axis.filter = 1;

  constexpr std::array<std::int64_t, 8> kStrides = {1, 1, 1, 1, 1, 2, 2, 3};
  axis.stride = random.one_in(12) ? axis.filter + random.between(1, 2) : random.pick(kStrides);

  constexpr std::array<std::int64_t, 8> kDilations = {1, 1, 1, 1, 1, 2, 2, 3};
  const bool one_tap = random.one_in(16);  // no two taps inside the image at once
  axis.dilation = one_tap ? axis.size + random.between(0, 1) : random.pick(kDilations);

  const std::int64_t span = axis.dilation * (axis.filter - 1) + 1;
  switch (random.between(0, 7)) {
    case 0:
    case 1:
      break;
    case 2:
    case 3:
    case 4:
      axis.before = axis.after = (span - 1) / 2;
      break;  // "same"
    case 5:
      axis.before = axis.after = random.between(0, 3);
      break;
    case 6:
      axis.before = axis.after = axis.filter + random.between(0, 2);
      break;  // whole windows of padding
    default:
      axis.before = random.between(0, axis.filter);
      axis.after = random.between(0, axis.filter);
      break;
  }
  // A filter that does not fit gets the padding that it lacks.
  const std::int64_t missing = std::max<std::int64_t>(span - (axis.size + axis.before + axis.after), 0);
  const std::int64_t before = random.between(0, missing);
  axis.before += before;
  axis.after += missing - before;
  return axis;
}

void draw_channels(Random& random, std::int64_t limit, ConvProblem& problem) {
  switch (random.between(0, 7)) {
    case 0:
    case 1:  // depthwise, at times with a channel multiplier
      problem.groups = draw_extent(random, limit);
      problem.c = problem.groups;
      problem.k = problem.groups * (random.one_in(4) ? random.between(2, 3) : 1);
      break;
    case 2:  // groups of a few channels
      problem.groups = std::min(random.between(2, 8), limit);
      problem.c = problem.groups * std::min(random.between(1, 9), limit);
      problem.k = problem.groups * std::min(random.between(1, 17), limit);
      break;
    default:
      problem.c = draw_extent(random, limit);
      problem.k = draw_extent(random, limit);
      break;
  }
}

// Draws features that most kernels do not support yet.
void draw_rarities(Random& random, std::int64_t limit, ConvProblem& problem) {
  constexpr std::array<std::int64_t, 4> kBounds = {-1, 0, 1, 6};
  if (random.one_in(3)) {
    const DrawnAxis planes = draw_axis(random, std::min<std::int64_t>(limit, 6), false);
    problem.d = planes.size, problem.t = planes.filter;
    problem.pad_front = planes.before, problem.pad_back = planes.after;
    if (problem.has_depth()) problem.stride_d = planes.stride, problem.dilation_d = planes.dilation;
  }
  switch (random.between(0, 7)) {
    case 0:
    case 1:
      problem.dtype = DType::bf16;
      break;
    case 2:
    case 3:
      problem.dtype = DType::f16;
      break;
    case 4: {
      const auto pick = [&] {
        return static_cast<DType>(random.between(0, static_cast<std::int64_t>(kLastDType)));
      };
      const DType x = pick(), w = pick(), y = pick();  // in this order: arguments have none
      problem.dtype = {x, w, y, random.one_in(2) ? w : DType::f32};
      break;
    }
    default:
      break;
  }
  if (random.one_in(4)) {
    problem.direction = random.one_in(2) ? Direction::backward_data : Direction::backward_weights;
    if (problem.direction == Direction::backward_weights || random.one_in(2)) {  // a gradient
      problem.activation = Activation::none;
      if (problem.direction == Direction::backward_data) problem.bias = false;
      return;
    }
  }
  if (problem.has_depth() && problem.direction == Direction::forward && random.one_in(2))
    problem.cache = random.between(0, problem.pad_front);
  problem.residual = random.one_in(2);
  if (random.one_in(4)) problem.rounding = Rounding::eager;
  if (!random.one_in(3)) return;
  // None and ReLU are drawn elsewhere.
  const std::span rows = activation_rows().subspan(2);
  const ActivationRow& row = rows[static_cast<std::size_t>(random.between(0, std::ssize(rows) - 1))];
  problem.activation = row.activation;
  if (row.parameters() == 1) problem.alpha = 0.125F * static_cast<float>(random.between(0, 8));
  if (problem.activation == Activation::clip) {
    const std::int64_t low = random.pick(kBounds);
    problem.alpha = static_cast<float>(low), problem.beta = static_cast<float>(low + random.between(0, 6));
  }
}

ConvProblem draw(Random& random, std::int64_t limit) {
  ConvProblem problem;
  constexpr std::array<std::int64_t, 12> kBatches = {1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5};
  problem.n = random.one_in(32) ? 0 : std::min(random.pick(kBatches), limit);
  draw_channels(random, limit, problem);

  const bool pointwise = random.one_in(8);
  const DrawnAxis rows = draw_axis(random, limit, pointwise);
  const DrawnAxis columns = random.one_in(3) ? rows : draw_axis(random, limit, pointwise);
  problem.h = rows.size, problem.w = columns.size;
  problem.r = rows.filter, problem.s = columns.filter;
  problem.stride_h = rows.stride, problem.stride_w = columns.stride;
  problem.dilation_h = rows.dilation, problem.dilation_w = columns.dilation;
  problem.pad_top = rows.before, problem.pad_left = columns.before;
  problem.pad_bottom = rows.after, problem.pad_right = columns.after;

  problem.layout = random.one_in(4) ? Layout::nhwc : Layout::nchw;
  problem.bias = !random.one_in(4);
  problem.activation = random.one_in(3) ? Activation::relu : Activation::none;
  return problem;
}

bool small_enough(const ConvProblem& problem, double max_macs) {
  ConvProblem filled = problem;
  filled.n = std::max<std::int64_t>(problem.n, 1);  // a batch of 0 must not hide a large image
  return filled.flops() / 2 <= max_macs && filled.input_elements() <= kMaxElements &&
         filled.weight_elements() <= kMaxElements && filled.output_elements() <= kMaxElements;
}

template <class Draw>
ConvProblem small_problem(std::uint64_t seed, std::uint64_t index, double max_macs, Draw&& draw) {
  // Mixed once before the index goes in, so that neighbouring seeds do not share problems.
  Random random(random_bits(seed, 0) + index * 0xd1342543de82ef95);
  // Small problems fit more often: without a lower bound for some, few would fill a tile.
  const double min_macs = random.one_in(3) ? max_macs / 16 : 0;
  for (std::int64_t limit = 256;; limit = std::max<std::int64_t>(limit * 7 / 8, 1)) {
    ConvProblem problem = draw(random, limit);
    const bool large_enough = problem.flops() / 2 >= min_macs || limit < 32;
    if (limit == 1 || (large_enough && small_enough(problem, max_macs))) return problem;
  }
}

}  // namespace

ConvProblem random_problem(std::uint64_t seed, std::uint64_t index, double max_macs) {
  return small_problem(seed, index, max_macs, draw);
}

ConvProblem random_problem_of_any_kind(std::uint64_t seed, std::uint64_t index, double max_macs) {
  return small_problem(seed, index, max_macs, [](Random& random, std::int64_t limit) {
    ConvProblem problem = draw(random, limit);
    if (random.one_in(2)) draw_rarities(random, limit, problem);
    return problem;
  });
}

ConvProblem random_problem_like(const ConvProblem& layer, std::uint64_t seed, std::uint64_t index,
                                double max_macs) {
  const ConvProblem drawn = random_problem_of_any_kind(seed, index);
  const auto eights = [](std::int64_t extent) { return (extent + 7) / 8 * 8; };
  ConvProblem problem = layer;
  problem.name.clear();
  problem.n = drawn.n, problem.dtype = drawn.dtype, problem.layout = drawn.layout;
  problem.direction = drawn.direction, problem.precision = drawn.precision, problem.bias = drawn.bias;
  problem.residual = drawn.residual, problem.rounding = drawn.rounding;
  problem.activation = drawn.activation, problem.alpha = drawn.alpha, problem.beta = drawn.beta;
  if (layer.groups > 1) {
    problem.groups = eights(drawn.groups);
    problem.c = problem.groups * (layer.c / layer.groups),
    problem.k = problem.groups * (layer.k / layer.groups);
  } else {
    problem.c = layer.c < 8 ? layer.c : eights(drawn.c), problem.k = eights(drawn.k);
  }
  // The least image has one output.
  const std::int64_t least_h = std::max<std::int64_t>(
      problem.dilation_h * (problem.r - 1) + 1 - problem.pad_top - problem.pad_bottom, 1);
  const std::int64_t least_w = std::max<std::int64_t>(
      problem.dilation_w * (problem.s - 1) + 1 - problem.pad_left - problem.pad_right, 1);
  if (problem.has_depth())
    problem.d = std::max<std::int64_t>(
                    problem.dilation_d * (problem.t - 1) + 1 - problem.pad_front - problem.pad_back, 1) +
                drawn.d;
  const bool even = index % 2 == 0;
  const auto resize = [&](std::int64_t h, std::int64_t w) {
    problem.h = std::max(even ? eights(h) : h, least_h), problem.w = std::max(even ? eights(w) : w, least_w);
  };
  resize(least_h + drawn.h, least_w + drawn.w);
  while (!small_enough(problem, max_macs) && (problem.h > least_h + 8 || problem.w > least_w + 8))
    resize(problem.h / 2, problem.w / 2);
  return problem;
}

}  // namespace convtune
