// ConvProblem's arithmetic, validation and equality. After validate() every extent, element count
// and byte count, and every index into the padded image, fits in 64 bits.
#include "convtune/problem.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <tuple>

#include "base/quoted.h"
#include "convtune/error.h"
#include "problem/activation.h"

namespace convtune {
namespace {

__extension__ typedef __int128 Wide;  // holds any sum of products of two 64-bit numbers

constexpr std::int64_t kMaxTensorBytes = std::int64_t{1} << 62;
// Keeps tile * stride and position * dilation far from overflow in every kernel's index arithmetic.
constexpr std::int64_t kMaxStep = (std::int64_t{1} << 31) - 1;
constexpr std::size_t kMaxNameBytes = 2048;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::invalid_argument, message);
}

// `name` is the field's, with the letters that a problem line has for it.
void check_range(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low) refuse(fmt::format("{} is {}; it must be at least {}", name, value, low));
  if (value > high) refuse(fmt::format("{} is {}; it must be at most {}", name, value, high));
}

void check_groups(const char* name, std::int64_t channels, std::int64_t groups) {
  if (channels % groups != 0)
    refuse(fmt::format("groups (g) is {}; it must divide {}, which is {}", groups, name, channels));
}

// The windows of all outputs on one axis of the image, and the elements that they touch.
struct Windows {
  std::int64_t size, filter, stride, dilation, pad, outputs;

  // Elements from the image's first to the last that one touches.
  std::int64_t spanned() const {
    const Wide end = Wide{outputs - 1} * stride + Wide{filter - 1} * dilation - pad + 1;
    return static_cast<std::int64_t>(std::clamp<Wide>(end, 0, size));
  }
  // Elements that one touches.
  std::int64_t touched() const {
    constexpr std::int64_t kMostTaps = 1 << 16;  // more are as good as dense
    if ((dilation == 1 && filter >= stride) || filter > kMostTaps) return spanned();
    // A tap's elements are a stride apart. The tap `before` places earlier has them
    // too, but for the last outputs'.
    const std::int64_t common = std::gcd(stride, dilation), before = stride / common;
    std::int64_t all = 0;
    for (std::int64_t tap = 0; tap < filter; ++tap)
      all += inside(Wide{tap} * dilation - pad, tap < before ? 0 : outputs - dilation / common);
    return all;
  }

 private:
  // Follows a tap that the first output has at `at`, for the outputs from `first` on.
  std::int64_t inside(Wide at, std::int64_t first) const {
    const Wide begin = std::max<Wide>({0, first, (stride - 1 - at) / stride});
    const Wide end = at < size ? std::min<Wide>(outputs, (size - 1 - at) / stride + 1) : 0;
    return static_cast<std::int64_t>(std::max<Wide>(end - begin, 0));
  }
};

// One axis of the image, and what its fields are called in a message.
struct SpatialAxis {
  const char *extent, *size_name, *filter_name, *stride_name, *dilation_name, *before_name, *after_name;
  std::int64_t size, filter, stride, dilation, before, after;
};

void check_axis(const SpatialAxis& axis) {
  check_range(axis.size_name, axis.size, 1, kMaxTensorBytes);
  check_range(axis.filter_name, axis.filter, 1, kMaxTensorBytes);
  check_range(axis.stride_name, axis.stride, 1, kMaxStep);
  check_range(axis.dilation_name, axis.dilation, 1, kMaxStep);
  check_range(axis.before_name, axis.before, 0, kMaxStep);
  check_range(axis.after_name, axis.after, 0, kMaxStep);
  if (output_size(axis.size, axis.filter, axis.stride, axis.dilation, axis.before, axis.after) == 0)
    refuse(fmt::format("the output has no {}: {} {} at {} {} spans more than {} {} + {} {} + {} {}",
                       axis.extent, axis.filter_name, axis.filter, axis.dilation_name, axis.dilation,
                       axis.size_name, axis.size, axis.before_name, axis.before, axis.after_name,
                       axis.after));
}

void check_bytes(const char* tensor, const char* formula, std::initializer_list<std::int64_t> extents,
                 std::int64_t element_bytes) {
  std::int64_t bytes = element_bytes;
  bool fits = true;
  for (const std::int64_t extent : extents)
    // A batch of 0 holds nothing, but kernels still compute the size of one image.
    fits = fits && !__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes);
  if (!fits || bytes > kMaxTensorBytes)
    refuse(fmt::format("the {} is too large: {} = {} elements of {} bytes are more than 2^62 bytes", tensor,
                       formula, fmt::join(extents, "*"), element_bytes));
}

void check_name(const std::string& name) {
  if (name.size() > kMaxNameBytes)
    refuse(fmt::format("the name is {} bytes long; it must be at most {}", name.size(), kMaxNameBytes));
  for (const unsigned char c : name)
    if (c < 0x20 || c == 0x7f || c == '"')
      refuse(fmt::format("the name {} holds a double quote or a control character", quoted(name)));
}

// Every field but the name, in one place for equality.
auto fields(const ConvProblem& x) {
  return std::tie(x.n, x.c, x.d, x.h, x.w, x.k, x.t, x.r, x.s, x.groups, x.stride_d, x.stride_h, x.stride_w,
                  x.dilation_d, x.dilation_h, x.dilation_w, x.pad_front, x.pad_top, x.pad_left, x.pad_back,
                  x.pad_bottom, x.pad_right, x.cache, x.dtype, x.layout, x.precision, x.direction, x.bias,
                  x.residual, x.activation, x.alpha, x.beta, x.rounding, x.snake);
}

// A depth that is none has one text form only.
void check_depth(const ConvProblem& x) {
  if (!x.has_depth() && (x.stride_d != 1 || x.dilation_d != 1))
    refuse(fmt::format(
        "stride_d (sd) is {} and dilation_d (dd + 1) is {}, but there is no depth: both must be 1",
        x.stride_d, x.dilation_d));
  check_range("cache", x.cache, 0, kMaxStep);
  if (x.cache > x.pad_front)
    refuse(fmt::format("cache is {}; it must be at most pad_front (pd), which is {}", x.cache, x.pad_front));
  if (x.cache > 0 && x.direction != Direction::forward) refuse("a backward problem has no cache");
}

void check_epilogue(const ConvProblem& x) {
  const ActivationRow& row = activation_row(x.activation);
  switch (x.activation) {
    case Activation::clip:
      if (!(x.alpha <= x.beta))  // NaN is refused too
        refuse(fmt::format("clip's bounds are {} and {}; the first must not be above the second", x.alpha,
                           x.beta));
      break;
    default:
      if (row.parameters() == 1 && (!std::isfinite(x.alpha) || x.beta != 0))
        refuse(
            fmt::format("{} has one parameter, a finite number, not {} and {}", row.usage, x.alpha, x.beta));
      if (row.parameters() == 0 && (x.alpha != 0 || x.beta != 0))
        refuse(fmt::format("{} has no parameters: alpha and beta must be 0, not {} and {}", row.usage,
                           x.alpha, x.beta));
  }
  if (x.snake != Snake::none && (!x.bias || x.activation != Activation::none))
    refuse(
        "a snake has its numbers behind the bias, and stands for the activation: bias must be 1 and act "
        "none");
  if (x.direction != Direction::backward_weights) return;
  if (x.snake != Snake::none) refuse("backward weights (bwd_w) has no snake");
  if (x.activation != Activation::none || x.residual || x.rounding != Rounding::once)
    refuse("backward weights (bwd_w) has no activation, no residual and no eager rounding");
}

}  // namespace

std::int64_t output_size(std::int64_t size, std::int64_t filter, std::int64_t stride, std::int64_t dilation,
                         std::int64_t pad_before, std::int64_t pad_after) {
  const Wide padded = Wide{size} + pad_before + pad_after;
  const Wide span = Wide{dilation} * (Wide{filter} - 1) + 1;
  if (stride < 1 || span > padded) return 0;
  return static_cast<std::int64_t>((padded - span) / stride + 1);
}

bool ConvProblem::has_depth() const {
  return d != 1 || t != 1 || pad_front != 0 || pad_back != 0;
}
std::int64_t ConvProblem::z() const {
  return output_size(d, t, stride_d, dilation_d, pad_front, pad_back);
}
std::int64_t ConvProblem::p() const {
  return output_size(h, r, stride_h, dilation_h, pad_top, pad_bottom);
}
std::int64_t ConvProblem::q() const {
  return output_size(w, s, stride_w, dilation_w, pad_left, pad_right);
}

std::int64_t ConvProblem::input_elements() const {
  return n * c * d * h * w;
}
std::int64_t ConvProblem::cache_elements() const {
  return n * c * cache * h * w;
}
std::int64_t ConvProblem::kept_frames() const {
  return (t - 1) * dilation_d;
}
std::int64_t ConvProblem::weight_elements() const {
  return k * (c / groups) * t * r * s;
}
std::int64_t ConvProblem::output_elements() const {
  return n * k * z() * p() * q();
}

std::int64_t ConvProblem::residual_elements() const {
  if (direction == Direction::backward_data) return input_elements();
  return direction == Direction::backward_weights ? weight_elements() : output_elements();
}
std::int64_t ConvProblem::result_elements() const {
  return residual_elements() * (snake == Snake::beside ? 2 : 1);
}
DType ConvProblem::result_type() const {
  if (direction == Direction::backward_data) return dtype.x;
  return direction == Direction::backward_weights ? dtype.w : dtype.y;
}
std::int64_t ConvProblem::bias_elements() const {
  return (direction == Direction::backward_data ? c : k) * (snake == Snake::none ? 1 : 3);
}

std::int64_t ConvProblem::touched_input_elements() const {
  if (direction == Direction::backward_data) return input_elements();
  const Windows depth = {d, t, stride_d, dilation_d, pad_front, z()};
  const Windows height = {h, r, stride_h, dilation_h, pad_top, p()};
  const Windows width = {w, s, stride_w, dilation_w, pad_left, q()};
  std::int64_t rows = height.touched(), columns = width.touched();
  if (layout == Layout::nchw) {
    // Windows that begin less than a sector apart leave none out; others have sectors of their own.
    const std::int64_t sector = 32 / size_of(dtype.x);
    columns =
        stride_w < sector ? width.spanned() : std::max(columns, std::min(width.spanned(), q() * sector));
    if (w < sector) rows = height.spanned();
  }
  return n * c * depth.touched() * rows * columns;
}

double ConvProblem::flops() const {
  return 2.0 * static_cast<double>(output_elements()) * static_cast<double>(c / groups) *
         static_cast<double>(t) * static_cast<double>(r) * static_cast<double>(s);
}

double ConvProblem::bytes() const {
  const auto of = [](std::int64_t elements, DType type) {
    return static_cast<double>(elements) * static_cast<double>(size_of(type));
  };
  return of(touched_input_elements() + cache_elements(), dtype.x) + of(weight_elements(), dtype.w) +
         of(output_elements(), dtype.y) + (residual ? of(residual_elements(), result_type()) : 0.0) +
         (bias ? of(bias_elements(), dtype.bias) : 0.0) +
         of(result_elements() - residual_elements(), result_type());
}

bool ConvProblem::operator==(const ConvProblem& other) const {
  return fields(*this) == fields(other);
}

void validate(const ConvProblem& problem) {
  const ConvProblem& x = problem;
  check_range("n (mb)", x.n, 0, kMaxTensorBytes);
  check_range("c (ic)", x.c, 1, kMaxTensorBytes);
  check_range("k (oc)", x.k, 1, kMaxTensorBytes);
  check_range("groups (g)", x.groups, 1, kMaxTensorBytes);
  check_groups("c (ic)", x.c, x.groups);
  check_groups("k (oc)", x.k, x.groups);
  check_axis({"depth", "d (id)", "t (kd)", "stride_d (sd)", "dilation_d (dd + 1)", "pad_front (pd)",
              "pad_back", x.d, x.t, x.stride_d, x.dilation_d, x.pad_front, x.pad_back});
  check_axis({"height", "h (ih)", "r (kh)", "stride_h (sh)", "dilation_h (dh + 1)", "pad_top (ph)",
              "pad_bottom", x.h, x.r, x.stride_h, x.dilation_h, x.pad_top, x.pad_bottom});
  check_axis({"width", "w (iw)", "s (kw)", "stride_w (sw)", "dilation_w (dw + 1)", "pad_left (pw)",
              "pad_right", x.w, x.s, x.stride_w, x.dilation_w, x.pad_left, x.pad_right});
  check_depth(x);
  check_bytes("input", "n*c*d*h*w", {x.n, x.c, x.d, x.h, x.w}, size_of(x.dtype.x));
  check_bytes("cache", "n*c*cache*h*w", {x.n, x.c, x.cache, x.h, x.w}, size_of(x.dtype.x));
  check_bytes("filter", "k*(c/groups)*t*r*s", {x.k, x.c / x.groups, x.t, x.r, x.s}, size_of(x.dtype.w));
  check_bytes("output", "n*k*z*p*q", {x.n, x.k, x.z(), x.p(), x.q()}, size_of(x.dtype.y));
  check_epilogue(x);
  check_name(x.name);
}

}  // namespace convtune
