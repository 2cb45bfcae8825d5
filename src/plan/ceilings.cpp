// Ceilings of the devices: each measured once in a process.
#include "convtune/ceilings.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/fork_gate.h"
#include "plan/algorithms.h"

namespace convtune {

double Ceilings::peak(Precision precision) const {
  const auto or_the_usual = [&](double own) { return own > 0 ? own : flops_per_second; };
  switch (precision) {
    case Precision::automatic:
    case Precision::tf32:
      break;
    case Precision::fp32:
      return or_the_usual(fp32_flops_per_second);
    case Precision::fp16:
      return or_the_usual(fp16_flops_per_second);
    case Precision::bf16:
      return or_the_usual(bf16_flops_per_second);
  }
  return flops_per_second;
}

Roofline roofline(const ConvProblem& problem, const Ceilings& ceilings) {
  const double compute_us = 1e6 * problem.flops() / ceilings.peak(problem.precision);
  const double memory_us = 1e6 * problem.bytes() / ceilings.bytes_per_second;
  return {std::max(compute_us, memory_us), compute_us >= memory_us ? "compute" : "memory",
          ceilings.peak(problem.precision), ceilings.bytes_per_second};
}

const Ceilings& measure_ceilings(Device device) {
  Backend& on = backend(device);
  static constinit Mutex mutex;
  // By fingerprint: the number of threads is part of it.
  auto& measured = once([] { return std::map<std::string, Ceilings>(); });
  const std::lock_guard lock(mutex);
  const auto [entry, first] = measured.try_emplace(on.info().fingerprint);
  if (first) entry->second = on.measure_ceilings();
  return entry->second;
}

}  // namespace convtune
