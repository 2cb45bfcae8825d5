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

// The input along one axis that tap `tap` of output `y` lies on, or a number below 0 where it lies outside.
int64_t input_on(int64_t y, int64_t tap, int64_t stride, int64_t dilation, int64_t padding, int64_t size) {
  const int64_t x = y * stride + tap * dilation - padding;
  return x < size ? x : -1;
}
// The output along one axis whose window's tap `tap` lies on `x`, or -1.
int64_t output_on(int64_t x, int64_t tap, int64_t stride, int64_t dilation, int64_t padding, int64_t size) {
  const int64_t distance = x + padding - tap * dilation;
  return distance >= 0 && distance % stride == 0 && distance / stride < size ? distance / stride : -1;
}

// visit(i, on(i)) for each i of one axis that lies on something. What lies beside an image along an axis is
// left with all that follows from it: a filter as large as the image meets one element of 20,000.
template <class On, class Visit>
void along(int64_t count, On&& on, Visit&& visit) {
  for (int64_t i = 0; i < count; ++i)
    if (const int64_t at = on(i); at >= 0) visit(i, at);
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

Sum forward(const ConvProblem& a, const HostValues& values, const Place& y) {
  const int64_t channels = a.c / a.groups, group = y.c / (a.k / a.groups);
  const auto d_of = [&](int64_t t) { return input_on(y.d, t, a.stride_d, a.dilation_d, a.pad_front, a.d); };
  const auto h_of = [&](int64_t r) { return input_on(y.h, r, a.stride_h, a.dilation_h, a.pad_top, a.h); };
  const auto w_of = [&](int64_t s) { return input_on(y.w, s, a.stride_w, a.dilation_w, a.pad_left, a.w); };
  Sum sum;
  for (int64_t c = 0; c < channels; ++c)
    along(a.t, d_of, [&](int64_t t, int64_t d) {
      along(a.r, h_of, [&](int64_t r, int64_t h) {
        along(a.s, w_of, [&](int64_t s, int64_t w) {
          const Place x{y.n, group * channels + c, d, h, w};
          sum.add_product(values.x[input_shape(a).offset(x)], values.w[offset_of(a, {y.c, c, t, r, s})]);
        });
      });
    });
  return sum;
}

Sum backward_data(const ConvProblem& a, const HostValues& values, const Place& x) {
  const Shape out = output_shape(a);
  const int64_t filters = a.k / a.groups, channels = a.c / a.groups, group = x.c / channels;
  const auto d_of = [&](int64_t t) {
    return output_on(x.d, t, a.stride_d, a.dilation_d, a.pad_front, out.d);
  };
  const auto h_of = [&](int64_t r) { return output_on(x.h, r, a.stride_h, a.dilation_h, a.pad_top, out.h); };
  const auto w_of = [&](int64_t s) { return output_on(x.w, s, a.stride_w, a.dilation_w, a.pad_left, out.w); };
  Sum sum;
  for (int64_t k = group * filters; k < (group + 1) * filters; ++k)
    along(a.t, d_of, [&](int64_t t, int64_t d) {
      along(a.r, h_of, [&](int64_t r, int64_t h) {
        along(a.s, w_of, [&](int64_t s, int64_t w) {
          sum.add_product(values.dy[out.offset({x.n, k, d, h, w})],
                          values.w[offset_of(a, {k, x.c % channels, t, r, s})]);
        });
      });
    });
  return sum;
}

Sum backward_weights(const ConvProblem& a, const HostValues& values, const Tap& tap) {
  const Shape in = input_shape(a), out = output_shape(a);
  const int64_t channel = tap.k / (a.k / a.groups) * (a.c / a.groups) + tap.c;
  const auto d_of = [&](int64_t z) { return input_on(z, tap.t, a.stride_d, a.dilation_d, a.pad_front, a.d); };
  const auto h_of = [&](int64_t p) { return input_on(p, tap.r, a.stride_h, a.dilation_h, a.pad_top, a.h); };
  const auto w_of = [&](int64_t q) { return input_on(q, tap.s, a.stride_w, a.dilation_w, a.pad_left, a.w); };
  Sum sum;
  for (int64_t n = 0; n < a.n; ++n)
    along(out.d, d_of, [&](int64_t z, int64_t d) {
      along(out.h, h_of, [&](int64_t p, int64_t h) {
        along(out.w, w_of, [&](int64_t q, int64_t w) {
          sum.add_product(values.x[in.offset({n, channel, d, h, w})],
                          values.dy[out.offset({n, tap.k, z, p, q})]);
        });
      });
    });
  return sum;
}

Sum backward_bias(const ConvProblem& a, const HostValues& values, int64_t k) {
  const Shape out = output_shape(a);
  Sum sum;
  for (int64_t n = 0; n < a.n; ++n)
    for (int64_t d = 0; d < out.d; ++d)
      for (int64_t h = 0; h < out.h; ++h)
        for (int64_t w = 0; w < out.w; ++w)
          sum.add(static_cast<double>(values.dy[out.offset({n, k, d, h, w})]));
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
