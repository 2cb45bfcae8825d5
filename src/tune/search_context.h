// Defines the context of one search, which tune() hands to each stage.
#pragma once

#include <cstdint>
#include <functional>

#include "measure/testbed.h"
#include "tune/budget.h"
#include "tune/screening.h"

namespace convtune {

struct SearchContext {
  const ConvProblem& problem;
  const DeviceInfo& device;
  double min_gain;
  const Budget& budget;
  Testbed& bed;
  Screening& screening;
  std::function<bool()> cancelled;
  // Progress: `stage` begins, and has `steps` steps.
  std::function<void(const char* stage, std::int64_t steps)> tell = [](const char*, std::int64_t) {};
};

}  // namespace convtune
