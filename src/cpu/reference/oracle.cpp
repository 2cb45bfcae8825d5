// See reference.h. Simple enough to be believed: each element on its own, every coordinate by name.
#include "cpu/reference/oracle.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "problem/element.h"
#include "problem/epilogue.h"
#include "problem/rewrite.h"

namespace convtune::cpu {
namespace {

using std::int64_t;

// A place in an activation tensor.
struct Place {
  int64_t n, c, d, h, w;
};

// An activation tensor's extents, and where its elements lie.
struct Shape {
  Layout layout;
  int64_t c, d, h, w;

  int64_t offset(const Place& at) const {
    return layout == Layout::nchw ? (((at.n * c + at.c) * d + at.d) * h + at.h) * w + at.w
                                  : (((at.n * d + at.d) * h + at.h) * w + at.w) * c + at.c;
  }
  Place place(int64_t offset) const {
    if (layout == Layout::nchw)
      return {offset / (c * d * h * w), offset / (d * h * w) % c, offset / (h * w) % d, offset / w % h,
              offset % w};
    return {offset / (d * h * w * c), offset % c, offset / (h * w * c) % d, offset / (w * c) % h,
            offset / c % w};
  }
};

Shape input_shape(const ConvProblem& a) {
  return {a.layout, a.c, a.d, a.h, a.w};
}
Shape output_shape(const ConvProblem& a) {
  return {a.layout, a.k, a.z(), a.p(), a.q()};
}

// A place in the weights.
struct Tap {
  int64_t k, c, t, r, s;
};
int64_t offset_of(const ConvProblem& a, const Tap& tap) {
  return (((tap.k * (a.c / a.groups) + tap.c) * a.t + tap.t) * a.r + tap.r) * a.s + tap.s;
}
Tap tap_of(const ConvProblem& a, int64_t offset) {
  const int64_t c = a.c / a.groups;
  return {offset / (a.s * a.r * a.t * c), offset / (a.s * a.r * a.t) % c, offset / (a.s * a.r) % a.t,
          offset / a.s % a.r, offset % a.s};
}

// The input that tap `tap` meets at output `at`: may lie outside.
Place input_of(const ConvProblem& a, const Place& at, const Tap& tap) {
  return {at.n, tap.k / (a.k / a.groups) * (a.c / a.groups) + tap.c,
          at.d * a.stride_d + tap.t * a.dilation_d - a.pad_front,
          at.h * a.stride_h + tap.r * a.dilation_h - a.pad_top,
          at.w * a.stride_w + tap.s * a.dilation_w - a.pad_left};
}
bool is_inside(const ConvProblem& a, const Place& x) {
  return x.d >= 0 && x.d < a.d && x.h >= 0 && x.h < a.h && x.w >= 0 && x.w < a.w;
}

// A sum and the sum of its terms' magnitudes.
struct Sum {
  double value = 0, magnitude = 0;
  void add(double term) {
    value += term;
    magnitude += std::abs(term);
  }
  void add_product(float one, float other) { add(static_cast<double>(one) * static_cast<double>(other)); }
};

template <class Visit>
void for_each_position(const ConvProblem& a, Visit&& visit) {
  for (int64_t t = 0; t < a.t; ++t)
    for (int64_t r = 0; r < a.r; ++r)
      for (int64_t s = 0; s < a.s; ++s) visit(t, r, s);
}

Sum forward(const ConvProblem& a, const HostValues& values, const Place& y) {
  Sum sum;
  for (int64_t c = 0; c < a.c / a.groups; ++c)
    for_each_position(a, [&](int64_t t, int64_t r, int64_t s) {
      const Tap tap{y.c, c, t, r, s};
      if (const Place x = input_of(a, y, tap); is_inside(a, x))
        sum.add_product(values.x[input_shape(a).offset(x)], values.w[offset_of(a, tap)]);
    });
  return sum;
}

// The output along one axis whose window's tap `tap` lies on `x`, or -1.
int64_t output_on(int64_t x, int64_t tap, int64_t stride, int64_t dilation, int64_t padding, int64_t size) {
  const int64_t distance = x + padding - tap * dilation;
  return distance >= 0 && distance % stride == 0 && distance / stride < size ? distance / stride : -1;
}

Sum backward_data(const ConvProblem& a, const HostValues& values, const Place& x) {
  const Shape out = output_shape(a);
  const int64_t filters = a.k / a.groups, channels = a.c / a.groups, group = x.c / channels;
  Sum sum;
  for (int64_t k = group * filters; k < (group + 1) * filters; ++k)
    for_each_position(a, [&](int64_t t, int64_t r, int64_t s) {
      const Place y{x.n, k, output_on(x.d, t, a.stride_d, a.dilation_d, a.pad_front, out.d),
                    output_on(x.h, r, a.stride_h, a.dilation_h, a.pad_top, out.h),
                    output_on(x.w, s, a.stride_w, a.dilation_w, a.pad_left, out.w)};
      if (y.d >= 0 && y.h >= 0 && y.w >= 0)
        sum.add_product(values.dy[out.offset(y)], values.w[offset_of(a, {k, x.c % channels, t, r, s})]);
    });
  return sum;
}

template <class Visit>
void for_each_output(const ConvProblem& a, int64_t k, Visit&& visit) {
  const Shape out = output_shape(a);
  for (int64_t n = 0; n < a.n; ++n)
    for (int64_t d = 0; d < out.d; ++d)
      for (int64_t h = 0; h < out.h; ++h)
        for (int64_t w = 0; w < out.w; ++w) visit(Place{n, k, d, h, w});
}

Sum backward_weights(const ConvProblem& a, const HostValues& values, const Tap& tap) {
  Sum sum;
  for_each_output(a, tap.k, [&](const Place& y) {
    if (const Place x = input_of(a, y, tap); is_inside(a, x))
      sum.add_product(values.x[input_shape(a).offset(x)], values.dy[output_shape(a).offset(y)]);
  });
  return sum;
}

Sum backward_bias(const ConvProblem& a, const HostValues& values, int64_t k) {
  Sum sum;
  for_each_output(
      a, k, [&](const Place& y) { sum.add(static_cast<double>(values.dy[output_shape(a).offset(y)])); });
  return sum;
}

}  // namespace

ResultShape result_of(const ConvProblem& a) {
  const int64_t taps = a.t * a.r * a.s;
  switch (a.direction) {
    case Direction::backward_data:
      return {.elements = a.result_elements(), .type = a.result_type(), .terms = a.k / a.groups * taps};
    case Direction::backward_weights:
      return {.elements = a.weight_elements(),
              .bias_elements = a.bias ? a.k : 0,
              .type = a.dtype.w,
              .bias_type = a.dtype.bias,
              .terms = a.n * a.z() * a.p() * a.q()};
    default:
      return {.elements = a.result_elements(), .type = a.dtype.y, .terms = a.c / a.groups * taps};
  }
}

OracleValue oracle(const ConvProblem& a, const HostValues& values, int64_t index) {
  if (a.direction == Direction::backward_weights) {
    const Sum sum = index >= a.weight_elements() ? backward_bias(a, values, index - a.weight_elements())
                                                 : backward_weights(a, values, tap_of(a, index));
    return {sum.value, sum.magnitude, sum.value, sum.value};
  }
  const bool is_forward = a.direction == Direction::forward;
  const int64_t sums = a.residual_elements();  // behind them what a Snake beside them makes
  const bool has_snake = a.snake == Snake::after || index >= sums;
  if (index >= sums) index -= sums;
  const Place at = (is_forward ? output_shape(a) : input_shape(a)).place(index);
  const Sum sum = is_forward ? forward(a, values, at) : backward_data(a, values, at);
  const double bias = a.bias ? values.bias[at.c] : 0, residual = a.residual ? values.residual[index] : 0;
  if (has_snake) {
    const int64_t channels = a.bias_elements() / 3;
    const double alpha = values.bias[channels + at.c], scale = values.bias[2 * channels + at.c];
    const auto of = [&](double total) { return snaked(a, epilogue(a, total, bias, residual), alpha, scale); };
    const double slope = 1 + std::abs(alpha * scale);  // its greatest
    return {of(sum.value), slope * (sum.magnitude + std::abs(bias) + std::abs(residual)) + std::abs(scale),
            sum.value, of(rounded(a.result_type(), sum.value))};
  }
  return {epilogue(a, sum.value, bias, residual), sum.magnitude + std::abs(bias) + std::abs(residual),
          sum.value, epilogue(a, rounded(a.result_type(), sum.value), bias, residual)};
}

std::vector<float> join_frames(const ConvProblem& a, const std::vector<float>& cache,
                               const std::vector<float>& x) {
  const FrameRuns runs = frame_runs(a);
  std::vector<float> whole;
  whole.reserve(cache.size() + x.size());
  for (int64_t run = 0; run < runs.count; ++run)
    for (const auto& [from, frames] : {std::pair{&cache, a.cache}, {&x, a.d}}) {
      const auto first = from->begin() + run * frames * runs.frame;
      whole.insert(whole.end(), first, first + frames * runs.frame);
    }
  return whole;
}

std::string name_of_element(const ConvProblem& a, int64_t index) {
  const std::string_view depths[] = {a.has_depth() ? "d" : "", a.has_depth() ? "z" : ""};
  const auto activation = [&](std::string_view tensor, std::string_view letters, std::string_view depth,
                              const Place& at) {
    return fmt::format("{}[n={}, {}={}{}, {}={}, {}={}]", tensor, at.n, letters[0], at.c,
                       depth.empty() ? "" : fmt::format(", {}={}", depth, at.d), letters[1], at.h, letters[2],
                       at.w);
  };
  if (a.direction == Direction::forward)
    return activation("y", "kpq", depths[1], output_shape(a).place(index));
  if (a.direction == Direction::backward_data)
    return activation("dx", "chw", depths[0], input_shape(a).place(index));
  if (index >= a.weight_elements()) return fmt::format("dbias[k={}]", index - a.weight_elements());
  const Tap tap = tap_of(a, index);
  return fmt::format("dw[k={}, c={}{}, r={}, s={}]", tap.k, tap.c,
                     a.has_depth() ? fmt::format(", t={}", tap.t) : "", tap.r, tap.s);
}

}  // namespace convtune::cpu
