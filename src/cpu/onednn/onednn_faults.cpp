// See onednn_faults.h.
#include "cpu/onednn/onednn_faults.h"

namespace convtune::cpu {
namespace {

// Whether a window along one axis is longer than the image, or one of them sees nothing of it.
bool mostly_padding(std::int64_t outputs, std::int64_t size, std::int64_t filter, std::int64_t stride,
                    std::int64_t dilation, std::int64_t padding) {
  if ((filter - 1) * dilation >= size) return true;
  for (std::int64_t output = 0; output < outputs; ++output) {
    bool sees = false;
    for (std::int64_t tap = 0; tap < filter; ++tap) {
      const std::int64_t at = output * stride + tap * dilation - padding;
      sees = sees || (at >= 0 && at < size);
    }
    if (!sees) return true;
  }
  return false;
}
bool mostly_padding(const ConvProblem& a) {
  return mostly_padding(a.z(), a.d, a.t, a.stride_d, a.dilation_d, a.pad_front) ||
         mostly_padding(a.p(), a.h, a.r, a.stride_h, a.dilation_h, a.pad_top) ||
         mostly_padding(a.q(), a.w, a.s, a.stride_w, a.dilation_w, a.pad_left);
}

bool depthwise(const ConvProblem& a) {
  return a.groups > 1 && a.groups == a.c;
}

// Of one channel both layouts are the same.
bool channels_last(const ConvProblem& a) {
  return a.layout == Layout::nhwc || (a.c == 1 && a.k == 1);
}

struct Fault {
  const char* what;
  bool (*concerns)(const ConvProblem&);
  int from_major, until_major;  // versions, the second not included
};

constexpr Fault kFaults[] = {
    // The JIT kernels add another image's residual (binary post-op), or crash (sum).
    {"beside a residual, it is wrong where a window sees little but padding",
     [](const ConvProblem& a) { return a.residual && mostly_padding(a); }, 2, 3},
    {"beside a residual, its depthwise kernels are wrong at the image's edge",
     [](const ConvProblem& a) { return a.residual && depthwise(a); }, 2, 3},
    // Where its JIT kernels do not take a problem (wide padding, groups of few channels), its GEMM adds
    // another
    // pixel's: seen of 2.6.3 with AVX2.
    {"beside a residual, its kernels for channels last add another pixel's",
     [](const ConvProblem& a) { return a.residual && channels_last(a); }, 2, 3},
};

}  // namespace

std::string onednn_fault(const ConvProblem& problem, const OnednnVersion& version) {
  for (const Fault& fault : kFaults)
    if (version.major >= fault.from_major && version.major < fault.until_major && fault.concerns(problem))
      return fault.what;
  return {};
}

}  // namespace convtune::cpu
