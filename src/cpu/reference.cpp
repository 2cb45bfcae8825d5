// The oracle, and the `reference` algorithm: the same sums, in the same order and in double
// precision, for a whole output. Simple enough to be believed; everything else is judged by it.
#include "cpu/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/cpu.h"
#include "cpu/parallel.h"

namespace convtune::cpu {
namespace {

using std::int64_t;

// Elements between neighbours along each axis of an activation tensor.
struct Strides {
  int64_t n, c, h, w;
};

Strides strides(Layout layout, int64_t c, int64_t h, int64_t w) {
  return layout == Layout::nchw ? Strides{c * h * w, h * w, w, 1} : Strides{h * w * c, 1, w * c, c};
}

// max(v, 0) that returns NaN for NaN.
double activate(Activation activation, double v) {
  return activation == Activation::relu && v < 0 ? 0 : v;
}

// The smallest i >= 0 with i * stride >= distance.
int64_t first_reaching(int64_t distance, int64_t stride) {
  return distance <= 0 ? 0 : (distance + stride - 1) / stride;
}

// Output columns computed together: their sums stay in the first-level cache.
constexpr int64_t kColumns = 128;

class ReferenceExecutable final : public Executable {
 public:
  ReferenceExecutable(const Conv2dProblem& problem, int threads) : problem_(problem), threads_(threads) {}

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(problem_.weight_elements() + problem_.k) * sizeof(float);
  }

  // The weights as they are, then the bias (zeros where the problem has none).
  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    const std::size_t w_bytes = static_cast<std::size_t>(problem_.weight_elements()) * sizeof(float);
    const std::size_t bias_bytes = static_cast<std::size_t>(problem_.k) * sizeof(float);
    auto* bytes = static_cast<unsigned char*>(packed);
    std::memcpy(bytes, w, w_bytes);
    if (problem_.bias)
      std::memcpy(bytes + w_bytes, bias, bias_bytes);
    else
      std::memset(bytes + w_bytes, 0, bias_bytes);
  }

  void run(const void* x, const void* packed, void* y, Stream) const override {
    parallel_for(threads_, problem_.n * problem_.k, [&](int, int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane)
        write_plane(static_cast<const float*>(x), static_cast<const float*>(packed), static_cast<float*>(y),
                    plane / problem_.k, plane % problem_.k);
    });
  }

 private:
  void write_plane(const float* x, const float* w, float* y, int64_t n, int64_t k) const {
    const int64_t p_size = problem_.p(), q_size = problem_.q();
    const Strides to = strides(problem_.layout, problem_.k, p_size, q_size);
    for (int64_t p = 0; p < p_size; ++p) {
      for (int64_t q = 0; q < q_size; q += kColumns) {
        double sums[kColumns];
        const int64_t columns = std::min(kColumns, q_size - q);
        sum_columns(x, w, n, k, p, q, columns, sums);
        for (int64_t i = 0; i < columns; ++i)
          y[n * to.n + k * to.c + p * to.h + (q + i) * to.w] =
              static_cast<float>(activate(problem_.activation, sums[i]));
      }
    }
  }

  // sums[i] = bias + the sum of products of output (n, k, p, q + i), for i < columns.
  void sum_columns(const float* x, const float* w, int64_t n, int64_t k, int64_t p, int64_t q,
                   int64_t columns, double* sums) const {
    const auto& a = problem_;
    const int64_t channels = a.c / a.groups, first_channel = k / (a.k / a.groups) * channels;
    const Strides from = strides(a.layout, a.c, a.h, a.w);
    std::fill_n(sums, columns, w[a.weight_elements() + k]);
    const float* tap = w + k * channels * a.r * a.s;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t r = 0; r < a.r; ++r) {
        const int64_t h = p * a.stride_h + r * a.dilation_h - a.pad_top;
        const bool inside = h >= 0 && h < a.h;
        const float* row = x + n * from.n + (first_channel + c) * from.c + (inside ? h * from.h : 0);
        for (int64_t s = 0; s < a.s; ++s, ++tap) {
          if (!inside) continue;
          // Column q + i reads input column start + i * stride_w: keep those inside the image.
          const int64_t start = q * a.stride_w + s * a.dilation_w - a.pad_left;
          const int64_t begin = first_reaching(-start, a.stride_w);
          const int64_t end = std::min(columns, first_reaching(a.w - start, a.stride_w));
          const double weight = *tap;
          for (int64_t i = begin; i < end; ++i)
            sums[i] += weight * static_cast<double>(row[(start + i * a.stride_w) * from.w]);
        }
      }
    }
  }

  const Conv2dProblem problem_;
  const int threads_;
};

class Reference final : public Algorithm {
 public:
  std::string_view name() const override { return "reference"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }
  bool reference() const override { return true; }

  Support supports(const Conv2dProblem& problem, const DeviceInfo&) const override {
    if (problem.dtype == DType::f32) return Support::yes();
    return Support::no("it computes f32 tensors only, and these are " +
                       std::string(to_string(problem.dtype)));
  }

  std::vector<Config> candidates(const Conv2dProblem&, const DeviceInfo&) const override {
    return {Config{}};
  }

  Support accepts(const Conv2dProblem& problem, const DeviceInfo& device,
                  const Config& config) const override {
    if (!config.values.empty())
      return Support::no("it has nothing to configure, and the config is '" + to_string(config) + "'");
    return supports(problem, device);
  }

  std::unique_ptr<Executable> build(const Conv2dProblem& problem, const DeviceInfo& device,
                                    const Config& config) const override {
    if (const Support support = accepts(problem, device, config); !support)
      throw Error(ErrorKind::unsupported, "reference cannot run this problem: " + support.reason());
    return std::make_unique<ReferenceExecutable>(problem, device.units);
  }

  std::string source_hash() const override { return "reference-1"; }
};

}  // namespace

OracleValue oracle(const Conv2dProblem& problem, const float* x, const float* w, const float* bias, int64_t n,
                   int64_t k, int64_t p, int64_t q) {
  const auto& a = problem;
  const int64_t channels = a.c / a.groups, first_channel = k / (a.k / a.groups) * channels;
  const Strides from = strides(a.layout, a.c, a.h, a.w);
  double sum = a.bias ? bias[k] : 0;
  double magnitude = std::abs(sum);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t r = 0; r < a.r; ++r) {
      const int64_t h = p * a.stride_h + r * a.dilation_h - a.pad_top;
      if (h < 0 || h >= a.h) continue;
      for (int64_t s = 0; s < a.s; ++s) {
        const int64_t column = q * a.stride_w + s * a.dilation_w - a.pad_left;
        if (column < 0 || column >= a.w) continue;
        const double product =
            static_cast<double>(x[n * from.n + (first_channel + c) * from.c + h * from.h + column * from.w]) *
            static_cast<double>(w[((k * channels + c) * a.r + r) * a.s + s]);
        sum += product;
        magnitude += std::abs(product);
      }
    }
  }
  return {activate(a.activation, sum), magnitude};
}

const Algorithm& reference() {
  static const Reference algorithm;
  return algorithm;
}

}  // namespace convtune::cpu
