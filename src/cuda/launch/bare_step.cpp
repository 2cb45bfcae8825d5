// See bare_step.h.
#include "cuda/launch/bare_step.h"

#include <fmt/format.h>

#include <array>

#include "problem/epilogue.h"
#include "problem/forward_parts.h"

namespace convtune::cuda {
namespace {

std::string bare_kernel(const BareResidues& what) {
  return fmt::format("convtune::store_bare_residues<{}>", to_cuda(what));
}

}  // namespace

BareResidues bare_residues_of(const ConvProblem& problem, const Computed& first) {
  static_assert(BareResidues::kMostStride == kMostBareStride);
  const ConvExtents plain = extents_of(problem), part = extents_of(first);
  const std::array<std::uint64_t, 3> met = met_residues(problem);
  const auto bits = [](std::uint64_t some) { return static_cast<long long>(some); };
  ConvExtents dx = plain;
  dx.c = plain.k, dx.k = plain.c;
  dx.z = plain.d, dx.p = plain.h, dx.q = plain.w;
  dx.y_type = plain.x_type;
  dx.eager = part.eager;
  return {.conv = dx,
          .stride_d = plain.stride_d,
          .stride_h = plain.stride_h,
          .stride_w = plain.stride_w,
          .pad_d = plain.pad_front,
          .pad_h = plain.pad_top,
          .pad_w = plain.pad_left,
          .met_d = bits(met[0]),
          .met_h = bits(met[1]),
          .met_w = first.fills_rows ? -1 : bits(met[2]),
          .group_filters = part.group_filters()};
}

CompileJob StoreBare::job(const BareResidues& what, const std::string& arch) {
  return kernel_job(kFile, bare_kernel(what), arch);
}

StoreBare::StoreBare(const DeviceInfo& device, const BareResidues& what)
    : blocks_(static_cast<unsigned>(what.blocks())),
      kernel_(device.device.index, compile(job(what, device.isa)), bare_kernel(what),
              {.waits_for_earlier_grids = true}) {}

void StoreBare::run(const void* bias, const void* residual, void* y, Stream stream) const {
  kernel_.launch({blocks_}, {BareResidues::kThreads}, 0, stream, bias, residual, y);
}

}  // namespace convtune::cuda
