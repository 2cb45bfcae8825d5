// See axis_phases.h.
#include "cpu/tile/axis_phases.h"

#include <algorithm>
#include <numeric>

namespace convtune::cpu {

AxisPhases axis_phases(std::int64_t taps, std::int64_t stride, std::int64_t dilation) {
  AxisPhases axis;
  for (std::int64_t tap = 0; tap < taps; ++tap) axis.phases.push_back(tap * dilation % stride);
  std::sort(axis.phases.begin(), axis.phases.end());
  axis.phases.erase(std::unique(axis.phases.begin(), axis.phases.end()), axis.phases.end());
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const auto phase = std::lower_bound(axis.phases.begin(), axis.phases.end(), tap * dilation % stride);
    axis.tap_phase.push_back(phase - axis.phases.begin());
    axis.tap_unit.push_back(tap * dilation / stride);
  }
  axis.halo = axis.tap_unit.back();
  return axis;
}

AxisExtent::AxisExtent(std::int64_t taps, std::int64_t stride, std::int64_t dilation)
    : phases(std::min(taps, stride / std::gcd(stride, dilation))), halo((taps - 1) * dilation / stride) {}

}  // namespace convtune::cpu
