// One axis of a window of the input that is kept by phases of the stride (direct_geometry.h draws it).
#pragma once

#include <cstdint>
#include <vector>

namespace convtune::cpu {

// The phases that the taps use, and where each tap lands.
struct AxisPhases {
  std::vector<std::int64_t> phases;     // distinct (tap * dilation) mod stride, ascending
  std::vector<std::int64_t> tap_phase;  // index into phases, for each tap
  std::vector<std::int64_t> tap_unit;   // (tap * dilation) / stride, for each tap
  std::int64_t halo = 0;                // largest tap_unit
};
AxisPhases axis_phases(std::int64_t taps, std::int64_t stride, std::int64_t dilation);

// Counts of the phases, however many taps there are.
struct AxisExtent {
  AxisExtent(std::int64_t taps, std::int64_t stride, std::int64_t dilation);
  std::int64_t phases, halo;
};

}  // namespace convtune::cpu
