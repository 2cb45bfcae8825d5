// See cpu_fit.h.
#include "cpu_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cpu/model/cpu_costs.h"

namespace convtune {
namespace {

using cpu::CpuCosts;

// How far the logarithms of estimates are from those of the times, but for one factor that all share: the
// clock, which estimates do not know. Candidates count the less the further they are from the best of their
// case, since a search has no use for the order of slow ones.
double distance(const std::vector<TimedCandidate>& timed, const std::vector<double>& weights,
                const DeviceInfo& info, const CpuCosts& costs) {
  cpu::set_cpu_costs(costs);
  double all = 0, mean = 0, squares = 0;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const TimedCandidate& one = timed[i];
    const double estimate = one.algorithm->estimated_us(one.problem, info, one.config).value_or(0);
    const double error = std::log(estimate / one.measured_us);
    all += weights[i], mean += weights[i] * error, squares += weights[i] * error * error;
  }
  mean /= all;
  return std::sqrt(std::max(squares / all - mean * mean, 0.0));
}

}  // namespace

void fit_cpu_costs(const std::vector<TimedCandidate>& timed, const DeviceInfo& info) {
  std::map<std::string, double> best_us;
  for (const TimedCandidate& one : timed) {
    const auto [at, first] = best_us.try_emplace(one.name, one.measured_us);
    if (!first) at->second = std::min(at->second, one.measured_us);
  }
  std::vector<double> weights;
  for (const TimedCandidate& one : timed)
    weights.push_back(std::pow(best_us.at(one.name) / one.measured_us, 2));

  CpuCosts costs;
  const double before = distance(timed, weights, info, costs);
  double least = before;
  // A row that gains less than this is left alone: it would follow the noise of the times.
  constexpr double kLeastGain = 5e-4, kLeastStep = 1.03;
  for (double step = 1.5; step > kLeastStep;) {
    bool better = false;
    for (const cpu::CpuCostRow& row : cpu::cpu_cost_rows())
      for (const double factor : {step, 1 / step}) {
        CpuCosts other = costs;
        other.*row.value *= factor;
        const double now = distance(timed, weights, info, other);
        if (now > least - kLeastGain) continue;
        costs = other, least = now, better = true;
        break;
      }
    if (!better) step = std::sqrt(step);
  }
  cpu::set_cpu_costs(CpuCosts{});

  for (const cpu::CpuCostRow& row : cpu::cpu_cost_rows()) {
    const double was = CpuCosts{}.*row.value, is = costs.*row.value;
    fmt::print("ROW({}, {:.4g}, \"{}\", \"{}\", \"{}\"){}\n", row.name, is, row.machine, row.date,
               row.meaning, is == was ? "" : fmt::format("  // was {:.4g}", was));
  }
  fmt::print("{} candidates of {} cases: estimates off by a factor of {:.3f} before, {:.3f} by these rows\n",
             timed.size(), best_us.size(), std::exp(before), std::exp(least));
}

}  // namespace convtune
