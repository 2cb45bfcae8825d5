// See onednn_special.h.
#include "cpu/onednn/onednn_special.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu/backend/cpu_backend.h"
#include "cpu/base/parallel.h"
#include "cpu/reference/padding_repair.h"
#include "cpu/reference/reference.h"
#include "problem/element.h"
#include "problem/epilogue.h"

namespace convtune::cpu {
namespace {

constexpr std::int64_t kLanes = 16;                  // elements looked at together, in whole vectors
constexpr std::int64_t kBytesOfOneThread = 1 << 17;  // up to which others would cost more than they save
constexpr float kMostAdded = std::numeric_limits<float>::max() / 4;  // bias and residual together

// Leaky ReLU multiplies by its slope, and that keeps NaN; a slope of 0 is ReLU.
bool hides_nan(const ConvProblem& a) {
  return a.activation != Activation::none && !(a.activation == Activation::leaky_relu && a.alpha != 0);
}

// Pairs of half-precision channels are multiplied at once: behind the last of an odd number a weight of 0
// meets the next pixel's, and makes NaN of an infinity there (3.2, AVX512-BF16).
bool pairs_pixels(const ConvProblem& a) {
  return size_of(a.dtype.x) == 2 && a.c / a.groups % 2 != 0;
}

bool is_padded(const ConvProblem& a) {
  const std::array pads = {a.pad_front, a.pad_back, a.pad_top, a.pad_bottom, a.pad_left, a.pad_right};
  return std::ranges::any_of(pads, [](std::int64_t pad) { return pad > 0; });
}

// True where all of the numbers, as bits without their signs, are at most `limit`.
template <class Bits>
bool within(const Bits* values, std::int64_t count, Bits limit) {
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max();  // signed: all bits but the sign
  std::array<Bits, kLanes> most{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto bits = static_cast<Bits>(values[i + lane] & kMagnitude);
      most[lane] = most[lane] > bits ? most[lane] : bits;
    }
  for (; i < count; ++i) most[0] = std::max(most[0], static_cast<Bits>(values[i] & kMagnitude));
  return std::ranges::max(most) <= limit;
}

// True where no element's magnitude is above `limit`, which is finite: NaN is, and so are infinities.
bool within(DType type, const void* tensor, std::int64_t count, float limit, int threads) {
  if (limit < 0) return false;
  // One or all: a team of another size than oneDNN's would be built anew.
  const int used = count * size_of(type) <= kBytesOfOneThread ? 1 : threads;
  // A part of the numbers beside the largest of the type that is no larger than the limit.
  const auto right = [&](std::int64_t first, std::int64_t part) {
    const auto bits = std::bit_cast<std::int32_t>(limit);
    switch (type) {
      case DType::f32:
        return within(static_cast<const std::int32_t*>(tensor) + first, part, bits);
      case DType::f16:
        return within(static_cast<const std::int16_t*>(tensor) + first, part,
                      static_cast<std::int16_t>(limit >= 65504 ? 0x7bff : 0));
      case DType::bf16:
        return within(static_cast<const std::int16_t*>(tensor) + first, part,
                      static_cast<std::int16_t>(bits >> 16));
    }
    return false;
  };
  std::atomic<bool> all = true;
  parallel_for(used, (count + kLanes - 1) / kLanes, [&](std::int64_t begin, std::int64_t end) {
    if (!right(begin * kLanes, std::min(end * kLanes, count) - begin * kLanes)) all = false;
  });
  return all;
}

// The largest |x| for which no sum of it, added up in any order, leaves what a float holds; negative where a
// weight or a bias is not finite.
float largest_input(const ConvProblem& a, const void* w, const void* bias) {
  const std::int64_t in_filter = a.weight_elements() / a.k;
  double limit = std::numeric_limits<float>::max();
  for (std::int64_t k = 0; k < a.k; ++k) {
    double sum = 0;
    for (std::int64_t i = k * in_filter; i < (k + 1) * in_filter; ++i)
      sum += std::abs(static_cast<double>(load(a.dtype.w, w, i)));
    const double added = a.bias ? std::abs(static_cast<double>(load(a.dtype.bias, bias, k))) : 0;
    if (!std::isfinite(sum) || !(added <= kMostAdded)) return -1;
    if (sum > 0) limit = std::min(limit, kMostAdded / sum);
  }
  return static_cast<float>(limit);
}

class OnednnSpecial final : public Executable {
 public:
  OnednnSpecial(const ConvProblem& problem, std::unique_ptr<OnednnConvolution> convolution,
                const DeviceInfo& device)
      : problem_(problem),
        convolution_(std::move(convolution)),
        device_(device),
        looks_at_x_(hides_nan(problem) || pairs_pixels(problem)) {}

  // The convolution's, then the largest input.
  std::size_t packed_bytes() const override { return limit_offset() + sizeof(float); }

  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    convolution_->pack(w, bias, packed, stream);
    const float limit = largest_input(problem_, w, bias);
    std::memcpy(static_cast<unsigned char*>(packed) + limit_offset(), &limit, sizeof limit);
  }

  void give_way() override { convolution_->give_way(); }

  void run(const Tensors& tensors, const void* packed, Stream stream) const override {
    float limit = 0;
    std::memcpy(&limit, static_cast<const unsigned char*>(packed) + limit_offset(), sizeof limit);
    if (is_ordinary(tensors, limit))
      convolution_->run(tensors, packed, stream);
    else
      run_sums(tensors, packed, limit < 0);
  }

 private:
  std::size_t limit_offset() const { return (convolution_->packed_bytes() + 63) / 64 * 64; }

  bool is_ordinary(const Tensors& tensors, float limit) const {
    const ConvProblem& a = problem_;
    if (!looks_at_x_) return limit >= 0;
    return within(a.dtype.x, tensors.x, a.input_elements(), limit, device_.units) &&
           (!a.residual ||
            within(a.dtype.y, tensors.residual, a.output_elements(), kMostAdded, device_.units));
  }

  // Sums as floats: oneDNN's, or where they would be wrong or it has none of these types the oracle's.
  std::vector<float> sums_of(const Tensors& tensors, const void* w) const {
    ConvProblem sum = problem_;
    sum.dtype.y = DType::f32;
    sum.bias = sum.residual = false;
    sum.activation = Activation::none;
    std::vector<float> sums(static_cast<std::size_t>(sum.output_elements()));
    const auto executable = [&]() -> std::unique_ptr<Executable> {
      if (pairs_pixels(problem_)) return reference().build(sum, device_, {});
      const ThreadCount scope(device_.units);
      for (const std::int64_t blocked : {0, 1}) try {
          return onednn_executable(sum, describe_convolution(sum, {.blocked = blocked}), device_.units);
        } catch (const Error& error) {
          if (error.kind() != ErrorKind::unsupported) throw;
        }
      return reference().build(sum, device_, {});
    }();
    const std::shared_ptr<void> packed = backend().allocate(executable->packed_bytes());
    executable->pack(w, nullptr, packed.get(), nullptr);
    executable->run({.x = tensors.x, .y = sums.data()}, packed.get(), nullptr);
    return sums;
  }

  void run_sums(const Tensors& tensors, const void* packed, bool unusual_weights) const {
    const ConvProblem& a = problem_;
    std::vector<unsigned char> w_bytes(static_cast<std::size_t>(a.weight_elements() * size_of(a.dtype.w)));
    std::vector<unsigned char> bias_bytes(static_cast<std::size_t>(a.k * size_of(a.dtype.bias)));
    convolution_->unpack(packed, w_bytes.data(), bias_bytes.data());
    const std::vector<float> sums = sums_of(tensors, w_bytes.data());
    const std::vector<float> bias = to_floats(a.dtype.bias, bias_bytes.data(), a.bias ? a.k : 0);
    // A copy: the residual may be y itself.
    const std::vector<float> residual =
        to_floats(a.dtype.y, tensors.residual, a.residual ? a.output_elements() : 0);
    const std::int64_t plane = a.layout == Layout::nchw ? a.z() * a.p() * a.q() : 1;
    parallel_for(device_.units, a.output_elements(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const auto k = static_cast<std::size_t>(i / plane % a.k);
        store(a.dtype.y, tensors.y, i,
              epilogue(a, static_cast<double>(sums[at]), a.bias ? static_cast<double>(bias[k]) : 0,
                       a.residual ? static_cast<double>(residual[at]) : 0));
      }
    });
    if (!unusual_weights || !is_padded(a)) return;
    const std::vector<float> x = to_floats(a.dtype.x, tensors.x, a.input_elements());
    const std::vector<float> w = to_floats(a.dtype.w, w_bytes.data(), a.weight_elements());
    repair_padded_outputs(a, {.x = x.data(), .w = w.data(), .bias = bias.data(), .residual = residual.data()},
                          tensors.y);
  }

  const ConvProblem problem_;
  const std::unique_ptr<OnednnConvolution> convolution_;
  const DeviceInfo device_;
  const bool looks_at_x_;
};

}  // namespace

std::unique_ptr<Executable> keep_special_numbers(const ConvProblem& problem,
                                                 std::unique_ptr<OnednnConvolution> convolution,
                                                 const DeviceInfo& device) {
  if (!hides_nan(problem) && !pairs_pixels(problem) && !is_padded(problem)) return convolution;
  return std::make_unique<OnednnSpecial>(problem, std::move(convolution), device);
}

}  // namespace convtune::cpu
