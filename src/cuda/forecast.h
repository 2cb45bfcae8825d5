// What a config would launch and how long that would take, before anything is compiled: first guesses of
// several algorithms are compared by it, and what the compiler makes of a candidate is held against it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "convtune/convolution.h"

namespace convtune::cuda {

struct LaunchForecast {
  int threads = 0;                   // of a block
  int registers = 0;                 // of a thread, at most: so many let `resident` blocks fit
  std::int64_t smem_bytes = 0;       // of a block, static and dynamic
  double blocks = 0;                 // of the grid
  int resident = 1;                  // blocks that a multiprocessor holds at once
  bool resident_is_a_guess = false;  // no launch bound holds the compiler to it
};
// For a config that the algorithm accepts; nothing for an algorithm that compiles nothing of its own.
std::optional<LaunchForecast> forecast_launch(std::string_view algorithm, const Conv2dProblem& problem,
                                              const DeviceInfo& device, const Config& config);

// By the model (time_model.h), without a spill: no candidate has one.
std::optional<double> forecast_us(std::string_view algorithm, const Conv2dProblem& problem,
                                  const DeviceInfo& device, const Config& config);

}  // namespace convtune::cuda
