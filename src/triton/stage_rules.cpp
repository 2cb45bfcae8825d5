// See stage_rules.h.
#include "triton/stage_rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace convtune {
namespace {

// Three answers: it holds, it does not, or nothing tells.
using Answer = std::optional<bool>;

Answer both(const Answer& a, const Answer& b) {
  if ((a && !*a) || (b && !*b)) return false;
  return a && b ? Answer(true) : std::nullopt;
}

Answer either(const Answer& a, const Answer& b) {
  if ((a && *a) || (b && *b)) return true;
  return a && b ? Answer(false) : std::nullopt;
}

Answer answer(const StageCondition& condition, const StageFacts& facts) {
  Answer holds = true;
  const auto less = [](double a, double b) { return a < b; };
  const auto compared = [&](const std::optional<double>& a, const std::optional<double>& b) {
    return a && b ? Answer(less(*a, *b)) : std::nullopt;
  };
  if (condition.registers_above) {
    const Answer above = compared(condition.registers_above, facts.registers);
    holds = condition.limited_by_registers ? either(above, facts.limited_by_registers) : above;
  } else if (condition.limited_by_registers) {
    holds = facts.limited_by_registers;
  }
  if (condition.registers_below) holds = both(holds, compared(facts.registers, condition.registers_below));
  if (condition.without_spills && facts.spills) holds = both(holds, !*facts.spills);
  if (condition.least_loads)
    holds = both(holds, facts.loads ? Answer(*facts.loads >= *condition.least_loads) : std::nullopt);
  if (condition.compute_bound) holds = both(holds, facts.compute_bound);
  return holds;
}

void keep_only(std::vector<std::int64_t>& values, std::int64_t value) {
  values = {value};
}

}  // namespace

StageFacts facts_of(const KnownMetrics& metrics) {
  StageFacts facts;
  if (metrics.registers) facts.registers = *metrics.registers;
  if (metrics.local_loads) facts.spills = *metrics.local_loads > 0;
  if (metrics.by_registers && metrics.by_smem)
    facts.limited_by_registers = *metrics.by_registers < *metrics.by_smem;
  if (metrics.sm_share && metrics.memory_share)
    facts.compute_bound = *metrics.sm_share > *metrics.memory_share;
  facts.stall_share = metrics.memory_stall_share;
  return facts;
}

AppliedStage apply_stage(const RefineStage& stage, const StageConfig& original, const StageFacts& facts) {
  AppliedStage applied;
  StageParameters& parameters = applied.parameters;
  parameters.warps = stage.warps, parameters.stages = stage.stages;
  parameters.most_steps = stage.most_steps;
  parameters.fewest = std::min<std::size_t>(2, static_cast<std::size_t>(stage.fewest));
  parameters.most = static_cast<std::size_t>(stage.most);

  std::vector<std::int64_t> offered;
  std::string why_offered, why_only;
  for (const StageCondition& condition : stage.conditions) {
    const Answer holds = answer(condition, facts);
    if (!holds) {
      applied.notes.push_back(fmt::format(
          "not taken into account, since the metrics do not tell whether it holds: {}", condition.text));
      continue;
    }
    if (!*holds) continue;
    applied.notes.push_back(fmt::format("it holds: {}", condition.text));
    if (condition.required && condition.warps) {
      keep_only(parameters.warps, *condition.warps);
      offered = {*condition.warps}, why_only = condition.text;
    } else if (condition.warps && why_only.empty() && *condition.warps != original.warps) {
      offered.push_back(*condition.warps), why_offered = condition.text;
    }
    if (condition.required && condition.stages) keep_only(parameters.stages, *condition.stages);
  }
  std::erase(offered, original.warps);
  const std::string stays = fmt::format("num_warps stays {}: ", original.warps);
  if (stage.warps.empty())
    parameters.asked_warps = {{}, stays + "the stage does not name it"};
  else if (!why_only.empty())
    parameters.asked_warps = {
        offered, (offered.empty() ? stays : fmt::format("num_warps may become {}: ", offered[0])) + why_only};
  else if (!offered.empty())
    parameters.asked_warps = {offered, fmt::format("num_warps may become {}: {}", offered[0], why_offered)};

  if (stage.baseline_stages)
    parameters.baseline = StageConfig{stage.baseline_warps.value_or(original.warps), *stage.baseline_stages};
  if (stage.raise_above_stalls) {
    const double asked = *stage.raise_above_stalls;
    if (!facts.stall_share)
      applied.notes.push_back(
          fmt::format("whether memory stalls are above {:.3g} % is not in the metrics: num_stages "
                      "may rise on trial",
                      100 * asked));
    const bool no_stalls = facts.stall_share && *facts.stall_share <= asked;
    const bool is_full =
        stage.raise_below_registers && facts.registers && *facts.registers > *stage.raise_below_registers;
    const std::string why =
        no_stalls
            ? fmt::format("is more, and memory stalls are {:.3g} % of a warp's cycles, not above {:.3g} %",
                          100 * *facts.stall_share, 100 * asked)
        : is_full ? fmt::format("is more, and a thread has {:g} registers, not {:g} at most",
                                *facts.registers, *stage.raise_below_registers)
                  : std::string();
    if (!why.empty())
      parameters.forbidden = [why, original](const StageConfig& config) {
        return config.stages <= original.stages ? std::string() : why;
      };
  }
  return applied;
}

}  // namespace convtune
