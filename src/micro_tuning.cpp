// The rules of micro_tuning.h. R1 is the one that thinks: fewer warps than a multiprocessor holds are no
// reason by themselves, since a block with more warps only helps where the blocks are what is scarce.
#include "micro_tuning.h"

#include <fmt/format.h>

#include <algorithm>

#include "convtune/error.h"

namespace convtune {
namespace {

constexpr double kEnoughOccupancy = 0.5;  // from here on, latency is hidden by what is there
constexpr double kReachesTheoretical =
    0.8;  // achieved below this share of it: warps are missing for other reasons
constexpr std::size_t kFewest = 3, kMost = 6;
constexpr double kEnoughBusy = 0.9;  // of the threads; more tasks a tile cost each a window of its own
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

}  // namespace

WarpsAnswer suggested_warps(std::int64_t warps, const OccupancyEvidence& evidence, const Target& target,
                            const StageParameters& parameters) {
  const std::string stays = fmt::format("{} stays {}: ", parameters.warps_name, warps);
  const auto [bound, certain] = known_occupancy(warps, evidence, target);
  const std::string achieved =
      evidence.achieved ? fmt::format("{:.4g} % of the warps were active", 100 * *evidence.achieved)
                        : "how many warps were active was not measured";
  const std::string theoretical =
      fmt::format("{} blocks of {} warps fit a multiprocessor, {:.1f} % of its warps, limited by {}",
                  bound.blocks, warps, 100 * bound.share, to_string(bound.limiter));
  if (!certain && bound.share >= kEnoughOccupancy)
    return {{},
            fmt::format("{}{}, and from that alone no change follows: it would if registers or shared "
                        "memory were what limits, and neither is known",
                        stays, achieved)};
  if (bound.blocks == 0) return {{}, stays + "not one block fits the target"};
  if (bound.share >= kEnoughOccupancy)
    return {{}, fmt::format("{}{}, which is enough to hide latency; {}", stays, theoretical, achieved)};
  if (evidence.achieved && *evidence.achieved < kReachesTheoretical * bound.share)
    return {{},
            fmt::format("{}{}, but {}: what keeps them away is not {}", stays, theoretical, achieved,
                        to_string(bound.limiter))};
  const std::int64_t more = 2 * warps;
  if (!holds(parameters.warps, more) || more * target.warp_size > target.threads_per_block)
    return {{}, fmt::format("{}{}, and {} is not a value of this stage", stays, theoretical, more)};
  // The tile is spread over twice the threads: at best each of them needs half the registers.
  const BlockNeeds spread{static_cast<int>(more * target.warp_size),
                          std::max((evidence.registers.value_or(0) + 1) / 2, kLeastRegisters),
                          evidence.smem_bytes.value_or(0)};
  const int blocks = std::min(occupancy(target, spread).blocks, bound.blocks);
  const double share = static_cast<double>(blocks * more) / target.warps_per_multiprocessor;
  if (share <= bound.share)
    return {{}, fmt::format("{}{}, and {} would fit no more warps", stays, theoretical, more)};
  return {more, fmt::format("{} may become {}: {}; {}; the same blocks with {} warps each would be {:.1f} %",
                            parameters.warps_name, more, theoretical, achieved, more, 100 * share)};
}

WarpsAnswer suggested_sharers(std::int64_t sharers, std::int64_t tasks, std::int64_t threads,
                              const StageParameters& parameters) {
  const auto busy = [&](std::int64_t count) {
    const std::int64_t turns = (count + threads - 1) / threads;
    return static_cast<double>(count) / static_cast<double>(turns * threads);
  };
  const std::int64_t more = 2 * sharers;
  const std::string found =
      fmt::format("{} tasks keep {} threads {:.1f} % busy", tasks, threads, 100 * busy(tasks));
  const std::string stays = fmt::format("{} stays {}: {}", parameters.warps_name, sharers, found);
  if (busy(tasks) >= kEnoughBusy) return {{}, stays + ", which is enough"};
  if (!holds(parameters.warps, more))
    return {{}, fmt::format("{}, and {} is not a value of this stage", stays, more)};
  if (busy(2 * tasks) <= busy(tasks)) return {{}, stays + ", and twice the tasks would be no better"};
  return {more, fmt::format("{} may become {}: {}; twice the tasks would be {:.1f} %", parameters.warps_name,
                            more, found, 100 * busy(2 * tasks))};
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
                       const std::vector<StageConfig>& listed, const StageParameters& parameters,
                       const std::function<std::string(const StageConfig&)>& refusal) {
  StageList list;
  list.warps_suggested = warps.warps.has_value();

  std::vector<StageList::Entry> entries = {{original, "the original", true}};
  std::string steps, left_out, fewer_workers;  // of R2's verdict; of R1's
  const auto consider = [&](StageConfig config, const std::string& reason) {
    const bool known = std::find(listed.begin(), listed.end(), config) != listed.end();
    const bool one_step = config.stages != original.stages, same_warps = config.warps == original.warps;
    if (config.stages < 1 && !known) return;
    const std::string stage = fmt::format("{}", config.stages);
    if (one_step && !known && !holds(parameters.stages, config.stages)) {
      if (same_warps) left_out += fmt::format("; {} is not a value of this stage", stage);
      return;
    }
    if (const std::string why = refusal(config); !why.empty()) {
      if (same_warps)
        left_out += fmt::format("; {} {}", stage, why);
      else if (!one_step)
        fewer_workers = fmt::format("; but it {}", why);
      return;
    }
    if (same_warps) steps += (steps.empty() ? "" : " and ") + stage;
    entries.push_back({config, reason, known});
  };
  const std::string more = fmt::format("one {} more", parameters.step),
                    less = fmt::format("one {} less", parameters.step),
                    twice = fmt::format("twice the {}", parameters.workers);
  consider({original.warps, original.stages + 1}, more);
  consider({original.warps, original.stages - 1}, less);
  if (warps.warps) {
    consider({*warps.warps, original.stages}, twice);
    consider({*warps.warps, original.stages + 1}, twice + ", " + more);
    consider({*warps.warps, original.stages - 1}, twice + ", " + less);
  }

  list.verdicts.push_back("R1: " + warps.why + fewer_workers);
  list.verdicts.push_back(fmt::format("R2: {} {} -> {}{}", parameters.stages_name, original.stages,
                                      steps.empty() ? "no neighbour" : steps, left_out));
  list.verdicts.push_back(fmt::format("R3: grid and block sizes stay: {} and {} are all that differs",
                                      parameters.warps_name, parameters.stages_name));
  if (entries.size() < kFewest || entries.size() > kMost) {
    list.none =
        fmt::format("{} nearby configs are all that the rules leave, and the stage wants {} to {}: {} stays",
                    entries.size(), kFewest, kMost, to_string(original, parameters));
    list.verdicts.push_back("R4: no list: " + list.none);
  } else {
    list.configs = std::move(entries);
    list.verdicts.push_back(fmt::format("R4: {} configs", list.configs.size()));
  }
  list.verdicts.push_back(fmt::format("R5: {} is {}", to_string(original, parameters),
                                      list.configs.empty() ? "all that stays" : "among them"));
  list.verdicts.emplace_back("R6: not measured yet: the original stays unless a gain is proven and stable");
  return list;
}

StageList micro_tuning(const StageConfig& original, const OccupancyEvidence& evidence, const Target& target,
                       const std::vector<StageConfig>& listed, const StageParameters& parameters) {
  if (original.warps < 1 || original.warps * target.warp_size > target.threads_per_block ||
      original.stages < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} is no config for {}, which has at most {} threads a block",
                            to_string(original, parameters), target.name, target.threads_per_block));
  return micro_tuning(
      original, suggested_warps(original.warps, evidence, target, parameters), listed, parameters,
      [&](const StageConfig& config) { return too_large(config, original, evidence, target); });
}

}  // namespace convtune
