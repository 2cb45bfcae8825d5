// `direct_body_half_sm90`: inner layers in half precision, channels last, on compute capability 9.0
// (direct_body_half_sm90.cuh). Which problems it takes.
#include <fmt/format.h>

#include "base/fork_gate.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_body_half_sm90/body_half.h"
#include "cuda/launch/extents.h"

namespace convtune::cuda {
namespace {

class DirectBodyHalfSm90Algorithm final : public DirectBodyHalf {
 public:
  DirectBodyHalfSm90Algorithm() : DirectBodyHalf("direct_body_half_sm90") {}

 private:
  bool stores_between() const override { return true; }
  Cut cut() const override { return {.joined = true, .bare = true, .late = true}; }
  ChannelsLast channels_last() const override { return {.x = true}; }
  ChannelsLast channels_last_of(const ConvProblem& a) const override {
    return {.x = plain(Computed{a}).conv.nhwc};
  }
  // An x in NCHW is taken as it lies where that is possible.
  Kernel plain(const Computed& problem) const override {
    Kernel kernel{.conv = extents_of(problem),
                  .cache = static_cast<int>(problem.cache),
                  .nchw = problem.layout == Layout::nchw};
    if (!kernel.can_load()) kernel.conv.nhwc = true;
    return kernel;
  }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = DirectBodyHalf::takes(a, device); !support) return support;
    const Kernel kernel = plain(a);
    if (kernel.depth() % 8 != 0)
      return Support::no(fmt::format("it is for multiples of 8 input channels, not for {}", a.c));
    if (!kernel.can_load())
      return Support::no(
          "TMA steps over at most 8 columns, rows and frames, or over more rows where these are patches that "
          "divide the image; frames are of one group");
    return Support::yes();
  }
};

}  // namespace

const Algorithm& direct_body_half_sm90() {
  return once([] { return DirectBodyHalfSm90Algorithm(); });
}

}  // namespace convtune::cuda
