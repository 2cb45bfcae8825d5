// Conv2dProblem's arithmetic, validation and equality. After validate() every extent, element count
// and byte count, and every index into the padded image, fits in 64 bits.
#include "convtune/problem.h"

#include <algorithm>
#include <initializer_list>
#include <tuple>

#include "base/quoted.h"
#include "convtune/error.h"

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

// One axis of the image, and what its fields are called in a message.
struct Axis {
  const char *extent, *size_name, *filter_name, *stride_name, *dilation_name, *before_name, *after_name;
  std::int64_t size, filter, stride, dilation, before, after;
};

void check_axis(const Axis& axis) {
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
auto fields(const Conv2dProblem& x) {
  return std::tie(x.n, x.c, x.h, x.w, x.k, x.r, x.s, x.groups, x.stride_h, x.stride_w, x.dilation_h,
                  x.dilation_w, x.pad_top, x.pad_left, x.pad_bottom, x.pad_right, x.dtype, x.layout,
                  x.precision, x.activation, x.bias);
}

}  // namespace

std::int64_t output_size(std::int64_t size, std::int64_t filter, std::int64_t stride, std::int64_t dilation,
                         std::int64_t pad_before, std::int64_t pad_after) {
  const Wide padded = Wide{size} + pad_before + pad_after;
  const Wide span = Wide{dilation} * (Wide{filter} - 1) + 1;
  if (stride < 1 || span > padded) return 0;
  return static_cast<std::int64_t>((padded - span) / stride + 1);
}

std::int64_t Conv2dProblem::p() const {
  return output_size(h, r, stride_h, dilation_h, pad_top, pad_bottom);
}
std::int64_t Conv2dProblem::q() const {
  return output_size(w, s, stride_w, dilation_w, pad_left, pad_right);
}

std::int64_t Conv2dProblem::input_elements() const {
  return n * c * h * w;
}
std::int64_t Conv2dProblem::weight_elements() const {
  return k * (c / groups) * r * s;
}
std::int64_t Conv2dProblem::output_elements() const {
  return n * k * p() * q();
}

double Conv2dProblem::flops() const {
  return 2.0 * static_cast<double>(output_elements()) * static_cast<double>(c / groups) *
         static_cast<double>(r) * static_cast<double>(s);
}

double Conv2dProblem::bytes() const {
  const double elements = static_cast<double>(input_elements()) + static_cast<double>(weight_elements()) +
                          static_cast<double>(output_elements()) + (bias ? static_cast<double>(k) : 0.0);
  return elements * static_cast<double>(size_of(dtype));
}

bool Conv2dProblem::operator==(const Conv2dProblem& other) const {
  return fields(*this) == fields(other);
}

void validate(const Conv2dProblem& problem) {
  const Conv2dProblem& x = problem;
  check_range("n (mb)", x.n, 0, kMaxTensorBytes);
  check_range("c (ic)", x.c, 1, kMaxTensorBytes);
  check_range("k (oc)", x.k, 1, kMaxTensorBytes);
  check_range("groups (g)", x.groups, 1, kMaxTensorBytes);
  check_groups("c (ic)", x.c, x.groups);
  check_groups("k (oc)", x.k, x.groups);
  check_axis({"height", "h (ih)", "r (kh)", "stride_h (sh)", "dilation_h (dh + 1)", "pad_top (ph)",
              "pad_bottom", x.h, x.r, x.stride_h, x.dilation_h, x.pad_top, x.pad_bottom});
  check_axis({"width", "w (iw)", "s (kw)", "stride_w (sw)", "dilation_w (dw + 1)", "pad_left (pw)",
              "pad_right", x.w, x.s, x.stride_w, x.dilation_w, x.pad_left, x.pad_right});
  const std::int64_t element_bytes = size_of(x.dtype);
  check_bytes("input", "n*c*h*w", {x.n, x.c, x.h, x.w}, element_bytes);
  check_bytes("filter", "k*(c/groups)*r*s", {x.k, x.c / x.groups, x.r, x.s}, element_bytes);
  check_bytes("output", "n*k*p*q", {x.n, x.k, x.p(), x.q()}, element_bytes);
  check_name(x.name);
}

}  // namespace convtune
