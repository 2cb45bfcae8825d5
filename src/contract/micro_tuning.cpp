// The rules of micro_tuning.h. R1 is the one that thinks: fewer warps than a multiprocessor holds are no
// reason by themselves, since a block with more warps only helps where the blocks are what is scarce.
#include "contract/micro_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "convtune/error.h"

namespace convtune {
namespace {

constexpr double kEnoughOccupancy = 0.5;  // from here on, latency is hidden by what is there
constexpr double kReachesTheoretical =
    0.8;                             // achieved below this share of it: warps are missing for other reasons
constexpr int kLeastRegisters = 24;  // what a thread needs however small its part of the tile is

bool holds(const std::vector<std::int64_t>& values, std::int64_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// A pipeline of more stages keeps more tiles in shared memory: about one of `stages` equal parts each.
std::string too_large(const StageConfig& config, const StageConfig& original,
                      const OccupancyEvidence& evidence, const Target& target) {
  if (!evidence.smem_bytes || original.stages < 1 || config.stages <= original.stages) return {};
  const double needed = static_cast<double>(*evidence.smem_bytes) / static_cast<double>(original.stages) *
                        static_cast<double>(config.stages);
  if (needed <= static_cast<double>(target.smem_per_block)) return {};
  return fmt::format("would need more than the {} bytes of shared memory that a block has",
                     target.smem_per_block);
}

// Returns the share of a multiprocessor's warps that the blocks take: those that fit, or those that the grid
// has for it.
Occupancy resident(Occupancy fit, std::int64_t warps, const OccupancyEvidence& evidence,
                   const Target& target) {
  if (!evidence.grid || target.multiprocessors < 1) return fit;
  const std::int64_t a_share = (*evidence.grid + target.multiprocessors - 1) / target.multiprocessors;
  if (a_share >= fit.blocks) return fit;
  fit.blocks = static_cast<int>(a_share);
  fit.warps = static_cast<int>(a_share * warps);
  fit.share = static_cast<double>(fit.warps) / target.warps_per_multiprocessor;
  return fit;
}

bool fits_block(std::int64_t warps, const Target& target) {
  return warps * target.warp_size <= target.threads_per_block;
}

std::string blocks_of(int blocks, std::int64_t warps) {
  return fmt::format("{} {} of {} warps", blocks, blocks == 1 ? "block" : "blocks", warps);
}

std::string blocks_in_words(const Occupancy& has, std::int64_t warps) {
  return fmt::format("{} {} a multiprocessor, {:.1f} % of its warps", blocks_of(has.blocks, warps),
                     has.blocks == 1 ? "fits" : "fit", 100 * has.share);
}

std::string numbers(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t value : values) text += fmt::format("{}{}", text.empty() ? "" : " or ", value);
  return text;
}

std::string achieved_in_words(const OccupancyEvidence& evidence) {
  return evidence.achieved ? fmt::format("{:.4g} % of the warps were active", 100 * *evidence.achieved)
                           : "how many warps were active was not measured";
}

// Nothing says what limits: what was achieved, and what warps and slots would allow, decide.
WarpsAnswer inferred_warps(std::int64_t warps, const Occupancy& bound, const OccupancyEvidence& evidence,
                           const Target& target, const StageParameters& parameters) {
  const std::string stays = fmt::format("{} stays {}: ", parameters.warps_name, warps),
                    achieved = achieved_in_words(evidence);
  if (!evidence.achieved)
    return {{}, fmt::format("{}{}, and registers and shared memory are not known", stays, achieved)};
  if (*evidence.achieved >= kEnoughOccupancy)
    return {{}, fmt::format("{}{}, which is enough to hide latency", stays, achieved)};
  const double resident_warps = *evidence.achieved * target.warps_per_multiprocessor;
  const int blocks = static_cast<int>(std::ceil(resident_warps / static_cast<double>(warps) - 0.05));
  if (blocks >= bound.blocks)
    return {{},
            fmt::format("{}{}, and {} a multiprocessor is what warps and slots allow", stays, achieved,
                        blocks_of(bound.blocks, warps))};
  std::vector<std::int64_t> more;
  for (const std::int64_t factor : {2, 4})
    if (holds(parameters.warps, factor * warps) && fits_block(factor * warps, target))
      more.push_back(factor * warps);
  if (more.empty())
    return {{}, fmt::format("{}{}, and {} is not a value of this stage", stays, achieved, 2 * warps)};
  return {more, fmt::format(
                    "{} may become {}, which is inferred: {}, {} a multiprocessor "
                    "where warps and slots allow {}; what keeps the others away was not measured, and "
                    "more warps a block need no more blocks",
                    parameters.warps_name, numbers(more), achieved, blocks_of(blocks, warps), bound.blocks)};
}

}  // namespace

WarpsAnswer suggested_warps(std::int64_t warps, const OccupancyEvidence& evidence, const Target& target,
                            const StageParameters& parameters) {
  const std::string stays = fmt::format("{} stays {}: ", parameters.warps_name, warps);
  const auto [fit, certain] = known_occupancy(warps, evidence, target);
  if (fit.blocks == 0) return {{}, stays + "not one block fits the target"};
  const Occupancy bound = resident(fit, warps, evidence, target);
  const bool few_blocks = bound.blocks < fit.blocks;
  const std::string achieved = achieved_in_words(evidence);
  if (!certain && bound.share >= kEnoughOccupancy)
    return inferred_warps(warps, bound, evidence, target, parameters);
  const std::string limit =
      few_blocks ? fmt::format("since the grid has {} {} for {} of them", *evidence.grid,
                               *evidence.grid == 1 ? "block" : "blocks", target.multiprocessors)
                 : fmt::format("limited by {}", to_string(bound.limiter));
  const std::string theoretical = few_blocks
                                      ? fmt::format("a multiprocessor gets {}, {:.1f} % of its warps, {}",
                                                    blocks_of(bound.blocks, warps), 100 * bound.share, limit)
                                      : fmt::format("{}, {}", blocks_in_words(bound, warps), limit);
  if (bound.share >= kEnoughOccupancy)
    return {{}, fmt::format("{}{}, which is enough to hide latency; {}", stays, theoretical, achieved)};
  if (evidence.achieved && *evidence.achieved < kReachesTheoretical * bound.share)
    return {{},
            fmt::format("{}{}, but {}: what keeps them away is not {}", stays, theoretical, achieved,
                        few_blocks ? "the grid" : to_string(bound.limiter))};
  const std::int64_t more = 2 * warps;
  if (!holds(parameters.warps, more) || !fits_block(more, target))
    return {{}, fmt::format("{}{}, and {} is not a value of this stage", stays, theoretical, more)};
  // The tile is spread over twice the threads: at best each of them needs half the registers.
  const BlockNeeds spread{static_cast<int>(more * target.warp_size),
                          std::max((evidence.registers.value_or(0) + 1) / 2, kLeastRegisters),
                          evidence.smem_bytes.value_or(0)};
  const int blocks = std::min(occupancy(target, spread).blocks, bound.blocks);
  const double share = static_cast<double>(blocks * more) / target.warps_per_multiprocessor;
  if (share <= bound.share)
    return {{}, fmt::format("{}{}, and {} would fit no more warps", stays, theoretical, more)};
  return {{more},
          fmt::format("{} may become {}: {}; {}; the same blocks with {} warps each would be {:.1f} %",
                      parameters.warps_name, more, theoretical, achieved, more, 100 * share)};
}

WarpsAnswer compiled_warps(const StageConfig& original, const OccupancyEvidence& evidence,
                           const Target& target, const StageParameters& parameters,
                           const std::function<CompiledConfig(const StageConfig&)>& compiled) {
  const std::string stays = fmt::format("{} stays {}: ", parameters.warps_name, original.warps);
  const auto occupied = [&](std::int64_t warps, const CompiledConfig& made) {
    OccupancyEvidence facts;
    facts.registers = made.registers, facts.smem_bytes = made.smem_bytes, facts.grid = evidence.grid;
    return resident(known_occupancy(warps, facts, target).bound, warps, facts, target);
  };
  const CompiledConfig own = compiled(original);
  const Occupancy has = occupied(original.warps, own);
  if (has.blocks == 0) return {{}, stays + "not one block fits the target"};
  const std::string found = fmt::format(
      "compiled, it has {} registers a thread and {} bytes of shared memory: {}, "
      "limited by {}; {}",
      own.registers, own.smem_bytes, blocks_in_words(has, original.warps), to_string(has.limiter),
      achieved_in_words(evidence));
  if (has.share >= kEnoughOccupancy) return {{}, fmt::format("{}{}: enough to hide latency", stays, found)};
  if (evidence.achieved && *evidence.achieved < kReachesTheoretical * has.share)
    return {{},
            fmt::format("{}{}: what keeps the others away is not {}", stays, found, to_string(has.limiter))};
  struct Other {
    std::int64_t warps;
    double share;
  };
  std::vector<Other> better;
  std::string others;
  for (const std::int64_t warps : parameters.warps) {
    if (warps == original.warps || !fits_block(warps, target)) continue;
    const CompiledConfig made = compiled({warps, original.stages});
    if (!made.failure.empty()) {
      others += fmt::format("; {} warps: {}", warps, made.failure);
      continue;
    }
    const Occupancy would = occupied(warps, made);
    others += fmt::format(
        "; {} warps: {} registers{}, {:.1f} %", warps, made.registers,
        made.spilled_bytes > own.spilled_bytes ? fmt::format(", spills {} bytes", made.spilled_bytes) : "",
        100 * would.share);
    if (would.share > has.share && made.spilled_bytes <= own.spilled_bytes)
      better.push_back({warps, would.share});
  }
  if (better.empty())
    return {{}, fmt::format("{}{}; no other value would have more warps at once{}", stays, found, others)};
  const auto distance = [&](std::int64_t warps) {
    return warps > original.warps ? warps / original.warps
                                  : original.warps / std::max<std::int64_t>(warps, 1);
  };
  std::stable_sort(better.begin(), better.end(),
                   [&](const Other& a, const Other& b) { return distance(a.warps) < distance(b.warps); });
  std::vector<std::int64_t> warps;
  for (const Other& one : better) warps.push_back(one.warps);
  return {warps, fmt::format("{} may become {}: {}{}", parameters.warps_name, numbers(warps), found, others)};
}

std::string to_string(const StageConfig& config, const StageParameters& names) {
  return fmt::format("{}={} {}={}", names.warps_name, config.warps, names.stages_name, config.stages);
}

KnownOccupancy known_occupancy(std::int64_t warps, const OccupancyEvidence& evidence, const Target& target) {
  KnownOccupancy known;
  known.bound = occupancy(target, {static_cast<int>(warps * target.warp_size), evidence.registers.value_or(0),
                                   evidence.smem_bytes.value_or(0)});
  Occupancy& bound = known.bound;
  const auto lower = [&](const std::optional<int>& limit, int& by, Limiter limiter) {
    if (!limit) return;
    by = *limit;
    if (by >= bound.blocks) return;
    bound.blocks = by, bound.limiter = limiter;
    bound.warps = static_cast<int>(by * warps);
    bound.share = static_cast<double>(bound.warps) / target.warps_per_multiprocessor;
  };
  lower(evidence.by_registers, bound.by_registers, Limiter::registers);
  lower(evidence.by_smem, bound.by_smem, Limiter::shared_memory);
  known.certain = (evidence.registers || evidence.by_registers) && (evidence.smem_bytes || evidence.by_smem);
  return known;
}

StageList micro_tuning(const StageConfig& original, const WarpsAnswer& warps,
                       const StageParameters& parameters,
                       const std::function<std::string(const StageConfig&)>& refusal) {
  StageList list;
  list.warps_suggested = !warps.warps.empty();

  std::vector<StageList::Entry> entries = {{original, "the original"}};
  std::string steps, left_out, other_warps;  // texts of R2's verdict (two) and of R1's
  const auto why_not = [&](const StageConfig& config) {
    const std::string why = parameters.forbidden ? parameters.forbidden(config) : std::string();
    return why.empty() ? refusal(config) : why;
  };
  std::string baseline_verdict;
  if (const auto& baseline = parameters.baseline; baseline && *baseline != original) {
    const std::string why = refusal(*baseline);
    if (why.empty()) entries.push_back({*baseline, "the stage's baseline"});
    baseline_verdict = fmt::format("; the baseline {} {}", to_string(*baseline, parameters),
                                   why.empty() ? "is too" : "is not: it " + why);
  }
  const auto consider = [&](StageConfig config, const std::string& reason) {
    if (entries.size() >= parameters.most || config == parameters.baseline) return;
    const bool step = config.stages != original.stages, same_warps = config.warps == original.warps;
    if (config.stages < 1) return;
    const std::string stage = fmt::format("{}", config.stages);
    if (step && !holds(parameters.stages, config.stages)) {
      if (same_warps) left_out += fmt::format("; {} is not a value of this stage", stage);
      return;
    }
    if (const std::string why = why_not(config); !why.empty()) {
      if (same_warps)
        left_out += fmt::format("; {} {}", stage, why);
      else if (!step)
        other_warps +=
            fmt::format("; but {} {}", warps.warps.size() > 1 ? fmt::format("{}", config.warps) : "it", why);
      return;
    }
    if (same_warps) steps += (steps.empty() ? "" : " and ") + stage;
    entries.push_back({config, reason});
  };
  const auto stepped = [&](std::int64_t by) {
    return fmt::format("{} stage{} {}", std::abs(by) == 1 ? "one" : fmt::format("{}", std::abs(by)),
                       std::abs(by) == 1 ? "" : "s", by > 0 ? "more" : "less");
  };
  const auto shared = [&](std::int64_t value) {
    return value == 2 * original.warps ? "twice the warps" : fmt::format("{} warps", value);
  };
  const auto with_steps = [&](std::int64_t value, const std::string& reason) {
    for (std::int64_t by = 1; by <= parameters.most_steps; ++by)
      for (const std::int64_t step : {by, -by})
        consider({value, original.stages + step}, reason + stepped(step));
  };
  with_steps(original.warps, "");
  if (!warps.warps.empty()) {
    consider({warps.warps[0], original.stages}, shared(warps.warps[0]));
    with_steps(warps.warps[0], shared(warps.warps[0]) + ", ");
  }
  for (std::size_t i = 1; i < warps.warps.size(); ++i)
    consider({warps.warps[i], original.stages}, shared(warps.warps[i]));

  list.verdicts.push_back("R1: " + warps.why + other_warps);
  list.verdicts.push_back(fmt::format("R2: {} {} -> {}{}", parameters.stages_name, original.stages,
                                      steps.empty() ? "no neighbour" : steps, left_out));
  list.verdicts.push_back(fmt::format("R3: grid and block sizes stay: {} and {} are all that differs",
                                      parameters.warps_name, parameters.stages_name));
  if (entries.size() < parameters.fewest) {
    list.none = fmt::format("{} nearby {} all that the rules leave, and the stage wants {} to {}: {} stays",
                            entries.size(), entries.size() == 1 ? "config is" : "configs are",
                            parameters.fewest, parameters.most, to_string(original, parameters));
    list.verdicts.push_back("R4: keep: " + list.none);
  } else {
    list.configs = std::move(entries);
    list.verdicts.push_back(fmt::format("R4: {} configs", list.configs.size()));
  }
  list.verdicts.push_back(fmt::format("R5: {} is {}{}", to_string(original, parameters),
                                      list.configs.empty() ? "all that stays" : "among them",
                                      list.configs.empty() ? "" : baseline_verdict));
  list.verdicts.emplace_back("R6: not measured yet: the original stays unless a gain is proven and stable");
  return list;
}

namespace {

void check_original(const StageConfig& original, const Target& target, const StageParameters& parameters) {
  if (original.warps < 1 || !fits_block(original.warps, target) || original.stages < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} is no config for {}, which has at most {} threads a block",
                            to_string(original, parameters), target.name, target.threads_per_block));
}

}  // namespace

StageList micro_tuning(const StageConfig& original, const OccupancyEvidence& evidence, const Target& target,
                       const StageParameters& parameters, const std::string& same_code) {
  check_original(original, target, parameters);
  const WarpsAnswer warps = parameters.asked_warps
                                ? *parameters.asked_warps
                                : suggested_warps(original.warps, evidence, target, parameters);
  return micro_tuning(original, warps, parameters, [&](const StageConfig& config) {
    return config.stages != original.stages && !same_code.empty()
               ? same_code
               : too_large(config, original, evidence, target);
  });
}

StageList micro_tuning(const StageConfig& original, const OccupancyEvidence& evidence, const Target& target,
                       const StageParameters& parameters,
                       const std::function<CompiledConfig(const StageConfig&)>& compiled) {
  check_original(original, target, parameters);
  const CompiledConfig own = compiled(original);
  std::vector<std::pair<std::string, StageConfig>> codes = {{own.code, original}};
  const WarpsAnswer warps = parameters.asked_warps
                                ? *parameters.asked_warps
                                : compiled_warps(original, evidence, target, parameters, compiled);
  return micro_tuning(original, warps, parameters, [&](const StageConfig& config) -> std::string {
    const CompiledConfig made = compiled(config);
    if (!made.failure.empty()) return "does not compile: " + made.failure;
    if (made.smem_bytes > target.smem_per_block)
      return fmt::format("needs {} bytes of shared memory, and a block has {}", made.smem_bytes,
                         target.smem_per_block);
    if (made.spilled_bytes > own.spilled_bytes) return fmt::format("spills {} bytes", made.spilled_bytes);
    for (const auto& [code, same] : codes)
      if (code == made.code) return "is the same machine code as " + to_string(same, parameters);
    codes.emplace_back(made.code, config);
    return {};
  });
}

std::vector<StageConfig> stage_candidates(const StageConfig& original, const Target& target,
                                          const StageParameters& parameters) {
  std::vector<StageConfig> all = {original};
  if (parameters.baseline && *parameters.baseline != original) all.push_back(*parameters.baseline);
  const auto add = [&](const StageConfig& config) {
    const bool allowed = config.stages == original.stages || holds(parameters.stages, config.stages);
    if (allowed && config.stages > 0 && std::find(all.begin(), all.end(), config) == all.end())
      all.push_back(config);
  };
  std::vector<std::int64_t> warps = {original.warps};
  for (const std::int64_t value : parameters.warps)
    if (fits_block(value, target)) warps.push_back(value);
  for (const std::int64_t value : warps) add({value, original.stages});
  for (std::int64_t by = 1; by <= parameters.most_steps; ++by)
    for (const std::int64_t value : warps)
      add({value, original.stages + by}), add({value, original.stages - by});
  return all;
}

}  // namespace convtune
