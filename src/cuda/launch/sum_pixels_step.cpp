// See sum_pixels_step.h.
#include "cuda/launch/sum_pixels_step.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/launch/extents.h"
#include "cuda/tile/arithmetic.h"

namespace convtune::cuda {
namespace {

constexpr long long kBlocksOfUnit = 2;

std::string sums_kernel(std::string_view name, const SumPixels& what) {
  return fmt::format("convtune::{}<{}>", name, to_cuda(what));
}

}  // namespace

CompileJob PixelSums::job(const SumPixels& what, const std::string& arch) {
  CompileJob job = kernel_job(kFile, sums_kernel("sum_pixels", what), arch);
  job.kernels.push_back(sums_kernel("add_up_pixels", what));
  return job;
}

PixelSums::PixelSums(const DeviceInfo& device, const SumPixels& what, std::int64_t pixels)
    : what_(what),
      pixels_(pixels),
      rows_(static_cast<int>(std::clamp<long long>(
          kBlocksOfUnit * device.units * SumPixels::kThreads / what.columns(), 1, std::max(pixels_, 1LL)))),
      module_(compile(job(what, device.isa))),
      sum_(device.device.index, module_, sums_kernel("sum_pixels", what), {.waits_for_earlier_grids = true}),
      add_up_(device.device.index, module_, sums_kernel("add_up_pixels", what),
              {.waits_for_earlier_grids = true}) {}

std::size_t PixelSums::workspace_bytes() const {
  return sizeof(float) * static_cast<std::size_t>(rows_) * static_cast<std::size_t>(what_.channels);
}

void PixelSums::run(const void* from, void* workspace, void* to, Stream stream) const {
  const long long threads = 1LL * rows_ * what_.columns();
  sum_.launch({static_cast<unsigned>(ceil_div(threads, static_cast<long long>(SumPixels::kThreads)))},
              {SumPixels::kThreads}, 0, stream, from, pixels_, rows_, workspace);
  add_up_.launch({static_cast<unsigned>(ceil_div(what_.channels, SumPixels::kAdded))},
                 {SumPixels::kAddThreads}, 0, stream, workspace, rows_, to);
}

SumPixels sums_of_dy(const ConvProblem& problem) {
  return {.channels = static_cast<int>(problem.k),
          .type = element_type_of(problem.dtype.y),
          .sum_type = element_type_of(problem.dtype.bias)};
}

}  // namespace convtune::cuda
