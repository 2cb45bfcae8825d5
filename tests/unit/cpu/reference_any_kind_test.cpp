// The reference on everything that a problem may ask, against one loop over all products that adds each to
// the output, to the input's gradient or to the weights' (the oracle gathers; this scatters).
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cpu/backend/cpu_backend.h"
#include "cpu/reference/oracle.h"
#include "cpu/reference/reference.h"
#include "problem/element.h"
#include "problem/random_problem.h"

namespace convtune::reference_any_kind_test {
namespace {

using std::int64_t;

struct AllTensors {
  std::vector<float> x, w, bias, residual, dy;
};

// Small integers: exact in every type, and so are their sums.
AllTensors draw_tensors(const ConvProblem& a, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto fill = [&](int64_t elements) {
    std::vector<float> values(static_cast<std::size_t>(elements));
    for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 7) - 3);
    return values;
  };
  return {fill(a.input_elements()), fill(a.weight_elements()), fill(a.bias_elements()),
          fill(a.result_elements()), fill(a.output_elements())};
}

int64_t offset(Layout layout, int64_t n, int64_t c, int64_t d, int64_t h, int64_t w, int64_t channels,
               int64_t depth, int64_t height, int64_t width) {
  return layout == Layout::nchw ? (((n * channels + c) * depth + d) * height + h) * width + w
                                : (((n * depth + d) * height + h) * width + w) * channels + c;
}

struct Results {
  std::vector<double> y, dx, dw, dbias;
};

Results scatter(const ConvProblem& a, const AllTensors& t) {
  Results to{std::vector<double>(t.dy.size()), std::vector<double>(t.x.size()),
             std::vector<double>(t.w.size()), std::vector<double>(static_cast<std::size_t>(a.k))};
  const int64_t group_c = a.c / a.groups, group_k = a.k / a.groups;
  for (int64_t n = 0; n < a.n; ++n)
    for (int64_t k = 0; k < a.k; ++k)
      for (int64_t z = 0; z < a.z(); ++z)
        for (int64_t p = 0; p < a.p(); ++p)
          for (int64_t q = 0; q < a.q(); ++q) {
            const auto out =
                static_cast<std::size_t>(offset(a.layout, n, k, z, p, q, a.k, a.z(), a.p(), a.q()));
            to.dbias[static_cast<std::size_t>(k)] += t.dy[out];
            std::size_t weight = static_cast<std::size_t>(k * group_c * a.t * a.r * a.s);
            for (int64_t c = 0; c < group_c; ++c)
              for (int64_t u = 0; u < a.t; ++u)
                for (int64_t r = 0; r < a.r; ++r)
                  for (int64_t s = 0; s < a.s; ++s, ++weight) {
                    const int64_t d = z * a.stride_d + u * a.dilation_d - a.pad_front,
                                  h = p * a.stride_h + r * a.dilation_h - a.pad_top,
                                  w = q * a.stride_w + s * a.dilation_w - a.pad_left;
                    if (d < 0 || d >= a.d || h < 0 || h >= a.h || w < 0 || w >= a.w) continue;
                    const auto in = static_cast<std::size_t>(
                        offset(a.layout, n, k / group_k * group_c + c, d, h, w, a.c, a.d, a.h, a.w));
                    to.y[out] += static_cast<double>(t.x[in] * t.w[weight]);
                    to.dx[in] += static_cast<double>(t.dy[out] * t.w[weight]);
                    to.dw[weight] += static_cast<double>(t.dy[out] * t.x[in]);
                  }
          }
  return to;
}

// PyTorch's formulas, written down once more.
double activated(const ConvProblem& a, double v) {
  const double low = static_cast<double>(a.alpha), high = static_cast<double>(a.beta);
  switch (a.activation) {
    case Activation::relu:
      return std::max(v, 0.0);
    case Activation::clip:
      return std::min(std::max(v, low), high);
    case Activation::silu:
      return v * (1 / (1 + std::exp(-v)));
    case Activation::gelu_erf:
      return v * 0.5 * std::erfc(-v / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return v *
             (1 - 1 / (1 + std::exp(2 * std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * std::pow(v, 3)))));
    case Activation::hardswish:
      return v <= -3 ? 0 : v >= 3 ? v : v * (v + 3) / 6;
    case Activation::leaky_relu:
      return std::max(v, 0.0) + low * std::min(v, 0.0);
    case Activation::sigmoid:
      return 0.5 * (1 + std::tanh(v / 2));
    default:
      return v;
  }
}

double finished(const ConvProblem& a, const AllTensors& t, double sum, int64_t at, int64_t k) {
  const auto step = [&](double v) { return a.rounding == Rounding::eager ? rounded(a.result_type(), v) : v; };
  double v = step(sum);
  if (a.bias) v = step(v + static_cast<double>(t.bias[static_cast<std::size_t>(k)]));
  if (a.residual) v = step(v + static_cast<double>(t.residual[static_cast<std::size_t>(at)]));
  return activated(a, v);
}

// One unit in the last place apart at most where a function of the library's is in between, else equal.
void expect_values(const ConvProblem& a, DType type, const std::vector<unsigned char>& got,
                   const std::vector<double>& want) {
  const bool exact = a.activation == Activation::none || a.activation == Activation::relu ||
                     a.activation == Activation::clip || a.activation == Activation::leaky_relu;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double value = load(type, got.data(), static_cast<int64_t>(i)), expected = rounded(type, want[i]);
    if (exact)
      ASSERT_EQ(value, expected) << to_string(a) << " at " << i;
    else
      ASSERT_NEAR(value, expected, 2 * unit_roundoff(type) * std::abs(expected) + 1e-12) << to_string(a);
  }
}

TEST(Reference, EqualsScatterOnProblemsOfAnyKind) {
  const DeviceInfo& device = cpu::backend().info();
  int kinds[3] = {}, transposed = 0;
  for (std::uint64_t i = 0; i < 1500; ++i) {
    ConvProblem a = random_problem_of_any_kind(17, i, 3e4);
    a.cache = 0;  // has a test of its own
    const AllTensors t = draw_tensors(a, i);
    const auto executable = cpu::reference().build(a, device, {});
    const auto bytes = [](DType type, const std::vector<float>& values) { return to_bytes(type, values); };
    const auto empty = [](DType type, std::size_t elements) {
      return std::vector<unsigned char>(elements * static_cast<std::size_t>(size_of(type)), 0xFF);
    };
    const auto x = bytes(a.dtype.x, t.x), w = bytes(a.dtype.w, t.w), bias = bytes(a.dtype.bias, t.bias),
               residual = bytes(a.result_type(), t.residual), dy = bytes(a.dtype.y, t.dy);
    const Results want = scatter(a, t);
    std::vector<std::byte> packed(executable->packed_bytes());
    if (a.direction != Direction::backward_weights)
      executable->pack(w.data(), a.bias ? bias.data() : nullptr, packed.data(), nullptr);
    ++kinds[static_cast<int>(a.direction)];
    if (a.direction == Direction::forward) {
      auto y = empty(a.dtype.y, want.y.size());
      executable->run({.x = x.data(), .residual = residual.data(), .y = y.data()}, packed.data(), nullptr);
      std::vector<double> all(want.y.size());
      for (std::size_t at = 0; at < all.size(); ++at) {
        const auto place = static_cast<int64_t>(at);
        const int64_t k = a.layout == Layout::nchw ? place / (a.z() * a.p() * a.q()) % a.k : place % a.k;
        all[at] = finished(a, t, want.y[at], place, k);
      }
      expect_values(a, a.dtype.y, y, all);
    } else if (a.direction == Direction::backward_data) {
      auto dx = empty(a.dtype.x, want.dx.size());
      executable->run({.residual = residual.data(), .dy = dy.data(), .dx = dx.data()}, packed.data(),
                      nullptr);
      std::vector<double> all(want.dx.size());
      for (std::size_t at = 0; at < all.size(); ++at) {
        const auto place = static_cast<int64_t>(at);
        const int64_t c = a.layout == Layout::nchw ? place / (a.d * a.h * a.w) % a.c : place % a.c;
        all[at] = finished(a, t, want.dx[at], place, c);
      }
      expect_values(a, a.dtype.x, dx, all);
      transposed += a.bias || a.residual || a.activation != Activation::none;
    } else {
      auto dw = empty(a.dtype.w, want.dw.size());
      auto dbias = empty(a.dtype.bias, want.dbias.size());
      executable->run(
          {.x = x.data(), .dy = dy.data(), .dw = dw.data(), .dbias = a.bias ? dbias.data() : nullptr},
          packed.data(), nullptr);
      expect_values(a, a.dtype.w, dw, want.dw);
      if (a.bias) expect_values(a, a.dtype.bias, dbias, want.dbias);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(kinds[0], 1000);
  EXPECT_GT(kinds[1], 50);
  EXPECT_GT(transposed, 20);
  EXPECT_GT(kinds[2], 50);
}

TEST(Reference, ActivationsKeepPyTorchsNaNs) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {nan, inf, -inf};
  const float one = 1;
  const auto run = [&](const char* text) {
    const ConvProblem a = parse_problem(std::string("mb1ic1ih1iw3oc1kh1 bias=0 ") + text);
    const auto executable = cpu::reference().build(a, cpu::backend().info(), {});
    std::vector<float> packed(2), y(3);
    executable->pack(&one, nullptr, packed.data(), nullptr);
    executable->run({.x = x.data(), .y = y.data()}, packed.data(), nullptr);
    EXPECT_TRUE(std::isnan(y[0])) << text;
    return std::pair(y[1], y[2]);
  };
  EXPECT_EQ(run("act=relu"), std::pair(inf, 0.0F));
  EXPECT_EQ(run("act=clip:-1:6"), std::pair(6.0F, -1.0F));
  EXPECT_EQ(run("act=leaky_relu:0.5"), std::pair(inf, -inf));
  EXPECT_EQ(run("act=sigmoid"), std::pair(1.0F, 0.0F));
  for (const char* text : {"act=silu", "act=gelu_erf", "act=gelu_tanh", "act=hardswish"}) {
    EXPECT_EQ(run(text).first, inf) << text;
    EXPECT_TRUE(std::isnan(run(text).second)) << text;  // -inf * 0
  }
}

}  // namespace
}  // namespace convtune::reference_any_kind_test
