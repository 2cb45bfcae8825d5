// `direct_body_half_nchw_sm90`: inner layers in half precision, in NCHW as they lie, on compute
// capability 9.0 (direct_body_half_nchw_sm90.cuh). Which problems it takes.
#include <fmt/format.h>

#include "base/fork_gate.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_body_half_sm90/body_half.h"
#include "cuda/launch/extents.h"

namespace convtune::cuda {
namespace {

class DirectBodyHalfNchw final : public DirectBodyHalf {
 public:
  DirectBodyHalfNchw() : DirectBodyHalf("direct_body_half_nchw_sm90") {}

 private:
  Kernel plain(const Computed& problem) const override {
    return {.conv = extents_of(problem),
            .cache = static_cast<int>(problem.cache),
            .nchw = true,
            .transposes = true};
  }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({takes_layout(a, Layout::nchw), DirectBodyHalf::takes(a, device)});
        !support)
      return support;
    const Kernel kernel = plain(a);
    if (kernel.can_load()) return Support::yes();
    if (kernel.pointwise())
      return Support::no("direct_body_half_sm90 reads a 1x1 filter's pixels as they lie");
    if (a.w % BodySlices::kPixels != 0)
      return Support::no(fmt::format("TMA's rows are multiples of 8 pixels, not {}", a.w));
    return Support::no(
        "it is for multiples of 8 input channels (16 where they are of several groups), a stride of 1 along "
        "rows and of at most 8 down and over frames, and frames of one group");
  }
};

}  // namespace

const Algorithm& direct_body_half_nchw_sm90() {
  return once([] { return DirectBodyHalfNchw(); });
}

}  // namespace convtune::cuda
