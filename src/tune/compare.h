// One table row: what is planned beside every variant of the vendor, measured in one run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "contract/backend.h"
#include "convtune/tuner.h"
#include "measure/testbed.h"

namespace convtune {

// An executable with its place in the table, checked or failed.
struct Contender {
  const Algorithm* algorithm = nullptr;
  Config config;
  std::shared_ptr<Executable> executable;  // null when it could not be built
  double max_error = 0;
  std::string failure;   // not empty: out of the race, and why
  double screen_us = 0;  // 0 until timed

  std::string text() const;  // "direct channels=6 ..."
};

// Builds and checks; never throws for a contender that cannot be built or is wrong, but Error{device_lost}
// for one after which nothing runs any more.
Contender contender(const Algorithm& algorithm, const Config& config, const ConvProblem& problem,
                    const DeviceInfo& device, Testbed& bed);

// Every variant of every vendor algorithm that supports the problem, checked; as many as come before it is
// cancelled.
std::vector<Contender> vendor_contenders(const ConvProblem& problem, const DeviceInfo& device, Testbed& bed,
                                         const std::function<bool()>& cancelled);

// Times `ours` and the vendors in turns and fills everything but plan and decision. Where `ours` is
// one of the vendors' variants the two rows are one measurement. `late`: from then on few rounds must do.
Comparison measure_comparison(const ConvProblem& problem, const DeviceInfo& device, const Contender& ours,
                              const std::vector<Contender>& vendors, Testbed& bed, double seconds,
                              const std::function<bool()>& cancelled, const std::function<bool()>& late = {});

}  // namespace convtune
