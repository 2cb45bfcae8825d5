// Findings about memory and what waits for it; see kernel_analysis.h.
#include <fmt/format.h>

#include <algorithm>

#include "triton/kernel_analysis.h"

namespace convtune {
namespace {

constexpr double kReadAgain = 1.5;  // times the bytes that must be moved once

}  // namespace

void KernelAnalysis::stalls() {
  if (metrics_.stalls.empty())
    return missing("stalls",
                   "smsp__average_warp_latency_per_inst_issued.ratio and "
                   "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio");
  std::vector<KnownMetrics::Stall> most = metrics_.stalls;
  std::stable_sort(most.begin(), most.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, most.size()); ++i)
    text += fmt::format("{}{:.1f} % {} {}", i == 0 ? "" : ", ", 100 * most[i].share,
                        i == 0 ? "of a warp's cycles wait for" : "for", most[i].on);
  say("stalls", text, most[0].share >= kManyStalls ? 0.8 * most[0].share : 0);
}

void KernelAnalysis::spills() {
  if (!metrics_.local_loads) return missing("spills", "smsp__inst_executed_op_local_ld.sum");
  if (*metrics_.local_loads <= 0) return say("spills", "none: nothing is loaded from local memory");
  std::string text = fmt::format(
      "{:.6g} loads are from local memory: registers that spilled, or arrays whose index is not known "
      "when it compiles",
      *metrics_.local_loads);
  double stake = 0.5;
  if (metrics_.local_bytes) text += fmt::format("; {:.1f} MB of it moved", *metrics_.local_bytes / 1e6);
  if (metrics_.local_bytes && metrics_.memory_bytes.value_or(0) > 0) {
    const double part = *metrics_.local_bytes / *metrics_.memory_bytes;
    text += fmt::format(", {:.3g} times what memory moved", part);
    stake = std::min(0.5, part);
  }
  say("spills",
      text +
          "; more warps a block leave each thread a smaller part of the tile, and fewer registers "
          "to spill",
      stake);
}

void KernelAnalysis::cache() {
  const double needed = options_.problem ? options_.problem->bytes() : 0;
  std::optional<double> moved = metrics_.memory_bytes;
  if (!moved && metrics_.memory_share && metrics_.time_us)
    moved = *metrics_.memory_share * target_.bandwidth_gb_s * 1e3 * *metrics_.time_us;
  if (!metrics_.l2_hit_share && !metrics_.memory_bytes) return missing("cache", "lts__t_sector_hit_rate.pct");
  std::string text;
  if (metrics_.l2_hit_share)
    text = fmt::format("{:.1f} % of the sectors asked of L2 were there; ", 100 * *metrics_.l2_hit_share);
  double stake = 0;
  if (moved && needed > 0) {
    const bool again = *moved > kReadAgain * needed;
    text += fmt::format("memory moved {:.0f} MB, {:.2f} times the {:.0f} MB that must be moved once: {}",
                        *moved / 1e6, *moved / needed, needed / 1e6,
                        again ? "much is read from memory again" : "next to nothing is read again");
    if (again) stake = metrics_.memory_share.value_or(0.5) * (1 - needed / *moved);
  } else if (metrics_.l2_hit_share.value_or(0) > kSaturated) {
    text += "what is asked again is caught on the chip";
  } else {
    text += moved ? fmt::format("memory moved {:.1f} MB: more than the tensors together is read again",
                                *moved / 1e6)
                  : "whether the others are read again or are a single pass over the data, the bytes would "
                    "say (dram__bytes_read.sum, dram__bytes_write.sum)";
  }
  if (options_.problem) {
    const double input = 4.0 * static_cast<double>(options_.problem->input_elements());
    text += fmt::format("; the input is {:.0f} MB, L2 {:.0f} MB", input / (1 << 20),
                        static_cast<double>(target_.l2_bytes) / (1 << 20));
  }
  say("cache", text, stake);
}

void KernelAnalysis::sectors() {
  if (!metrics_.load_sector_share && !metrics_.store_sector_share)
    return missing("sectors",
                   "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct and ..._op_st.pct");
  std::string text;
  double wasted = 0;
  const auto add = [&](const std::optional<double>& share, const char* what) {
    if (!share) return;
    text += fmt::format("{}{:.1f} % of the bytes that {} move are wasted", text.empty() ? "" : "; ",
                        std::max(0.0, 100 * (1 - *share)), what);
    wasted += (1 - *share) / 2;
  };
  add(metrics_.load_sector_share, "loads");
  add(metrics_.store_sector_share, "stores");
  say("sectors", text + "; that is the access pattern's, not the two parameters'",
      wasted * std::max(metrics_.memory_share.value_or(0), metrics_.busiest_memory_share.value_or(0)));
}

void KernelAnalysis::bank_conflicts() {
  if (metrics_.bank_conflict_share)
    return say("bank conflicts",
               fmt::format("{:.1f} % of the shared-memory wavefronts are conflicts",
                           100 * *metrics_.bank_conflict_share),
               0.5 * *metrics_.bank_conflict_share);
  if (metrics_.bank_conflicts)
    return say("bank conflicts",
               fmt::format("{:.6g}{}", *metrics_.bank_conflicts,
                           *metrics_.bank_conflicts > 0 ? "; of how many wavefronts is not in the metrics "
                                                          "(l1tex__data_pipe_lsu_wavefronts_mem_shared.sum)"
                                                        : ""));
  missing("bank conflicts",
          "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum and "
          "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum");
}

}  // namespace convtune
