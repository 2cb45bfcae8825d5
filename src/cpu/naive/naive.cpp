// Loops as one would write them first: forward, 2-D, f32, NCHW, in double precision. It shows what a new
// algorithm costs.
#include "contract/abilities.h"
#include "cpu/cpu.h"
#include "problem/epilogue.h"

namespace convtune::cpu {
namespace {

class NaiveExecutable final : public Executable {
 public:
  explicit NaiveExecutable(const ConvProblem& problem) : problem_(problem) {}

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(problem_.weight_elements() + problem_.k) * sizeof(float);
  }
  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    auto* to =
        std::copy_n(static_cast<const float*>(w), problem_.weight_elements(), static_cast<float*>(packed));
    for (std::int64_t k = 0; k < problem_.k; ++k)
      to[k] = problem_.bias ? static_cast<const float*>(bias)[k] : 0;
  }
  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const ConvProblem& a = problem_;
    const auto* const x = static_cast<const float*>(tensors.x);
    const auto* const weights = static_cast<const float*>(packed);
    auto* y = static_cast<float*>(tensors.y);
    const std::int64_t channels = a.c / a.groups;
    for (std::int64_t n = 0; n < a.n; ++n)
      for (std::int64_t k = 0; k < a.k; ++k)
        for (std::int64_t p = 0; p < a.p(); ++p)
          for (std::int64_t q = 0; q < a.q(); ++q, ++y) {
            double sum = 0;
            const float* w = weights + k * channels * a.r * a.s;
            for (std::int64_t c = 0; c < channels; ++c)
              for (std::int64_t r = 0; r < a.r; ++r)
                for (std::int64_t s = 0; s < a.s; ++s, ++w) {
                  const std::int64_t h = p * a.stride_h + r * a.dilation_h - a.pad_top;
                  const std::int64_t v = q * a.stride_w + s * a.dilation_w - a.pad_left;
                  if (h < 0 || h >= a.h || v < 0 || v >= a.w) continue;
                  const std::int64_t channel = n * a.c + k / (a.k / a.groups) * channels + c;
                  sum += static_cast<double>(*w) * static_cast<double>(x[(channel * a.h + h) * a.w + v]);
                }
            *y = static_cast<float>(
                epilogue(a, sum, static_cast<double>(weights[a.weight_elements() + k]), 0));
          }
  }

 private:
  const ConvProblem problem_;
};

class Naive final : public Algorithm {
 public:
  std::string_view name() const override { return "naive"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }
  Support supports(const ConvProblem& problem, const DeviceInfo&) const override {
    if (problem.layout != Layout::nchw) return Support::no("it is for NCHW");
    return within({.activations = {Activation::none, Activation::relu, Activation::clip}}, problem);
  }
  std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& device) const override {
    return supports(problem, device) ? std::vector{Config{}} : std::vector<Config>{};
  }
  Support accepts(const ConvProblem& problem, const DeviceInfo& device, const Config& config) const override {
    if (!config.values.empty()) return Support::no("it has nothing to configure");
    return supports(problem, device);
  }
  std::unique_ptr<Executable> build(const ConvProblem& problem, const DeviceInfo& device,
                                    const Config& config) const override {
    if (const Support support = accepts(problem, device, config); !support)
      throw Error(ErrorKind::unsupported, "naive cannot run this problem: " + support.reason());
    return std::make_unique<NaiveExecutable>(problem);
  }
  std::string source_hash() const override { return "naive-1"; }
};

}  // namespace

const Algorithm& naive() {
  static const Naive algorithm;
  return algorithm;
}

}  // namespace convtune::cpu
