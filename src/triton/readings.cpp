// See readings.h.
#include "triton/readings.h"

#include <fmt/format.h>

#include <algorithm>

namespace convtune {
namespace {

// Passes of a profiler differ by a little, and so do clocks.
constexpr double kSlack = 1.1, kSlackShare = 0.02;

bool exceeds(double value, double most) {
  return value > most * kSlack + kSlackShare;
}

}  // namespace

OccupancyEvidence evidence_of(const KnownMetrics& metrics) {
  OccupancyEvidence evidence;
  evidence.achieved = metrics.achieved_occupancy;
  evidence.registers = metrics.registers;
  evidence.smem_bytes = metrics.smem_bytes;
  evidence.by_registers = metrics.by_registers, evidence.by_smem = metrics.by_smem;
  evidence.grid = metrics.grid;
  return evidence;
}

std::string contradiction(const KnownMetrics& metrics, std::int64_t warps, const Target& target) {
  const std::string elsewhere =
      fmt::format("; they are of several launches, or of another GPU than {}", target.name);
  if (!metrics.impossible.empty()) return metrics.impossible;
  const auto more = [&](const char* what, std::int64_t has, std::int64_t most) {
    return fmt::format("{} {} are more than the {} that {} has{}", has, what, most, target.name, elsewhere);
  };
  if (metrics.registers.value_or(0) > target.registers_per_thread)
    return more("registers a thread", *metrics.registers, target.registers_per_thread);
  if (metrics.block.value_or(0) > target.threads_per_block)
    return more("threads a block", *metrics.block, target.threads_per_block);
  if (metrics.smem_bytes.value_or(0) > target.smem_per_block + target.smem_reserved)
    return more("bytes of shared memory a block", *metrics.smem_bytes, target.smem_per_block);
  if (metrics.memory_bytes && metrics.time_us.value_or(0) > 0)
    if (const double rate = *metrics.memory_bytes / (1e3 * *metrics.time_us);
        rate > target.bandwidth_gb_s * kSlack)
      return fmt::format("{:.0f} MB in {:.1f} us are {:.0f} GB/s, more than the {:.0f} GB/s of {}{}",
                         *metrics.memory_bytes / 1e6, *metrics.time_us, rate, target.bandwidth_gb_s,
                         target.name, elsewhere);
  if (!metrics.achieved_occupancy || warps <= 0) return {};
  const double achieved = *metrics.achieved_occupancy;
  const int most = target.warps_per_multiprocessor;
  if (metrics.grid) {
    const std::int64_t blocks = (*metrics.grid + target.multiprocessors - 1) / target.multiprocessors;
    const double share = static_cast<double>(blocks * warps) / most;
    if (exceeds(achieved, share))
      return fmt::format(
          "a grid of {} {} is at most {} of {} warps on a multiprocessor, {:.1f} % of its warps, and "
          "{:.1f} % are said to have been active{}",
          *metrics.grid, *metrics.grid == 1 ? "block" : "blocks", blocks, warps, 100 * share, 100 * achieved,
          elsewhere);
  }
  const Occupancy limit = known_occupancy(warps, evidence_of(metrics), target).bound;
  if (exceeds(achieved, limit.share))
    return fmt::format(
        "{} blocks of {} warps fit at most, limited by {}, {:.1f} % of the warps, and {:.1f} % are said to "
        "have been active{}",
        limit.blocks, warps, to_string(limit.limiter), 100 * limit.share, 100 * achieved, elsewhere);
  return {};
}

}  // namespace convtune
