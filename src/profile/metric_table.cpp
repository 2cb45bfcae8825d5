// See metric_table.h.
#include "profile/metric_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace convtune {
namespace {

constexpr std::string_view kSpeed = "GPU Speed Of Light Throughput", kLaunch = "Launch Statistics",
                           kOccupancy = "Occupancy", kMemory = "Memory Workload Analysis",
                           kWarps = "Warp State Statistics";

// Rows that repeat a name have what older versions of ncu, or its summary page, call the metric.
constexpr Metric kMetrics[] = {
    {Quantity::sm_share, "sm__throughput.avg.pct_of_peak_sustained_elapsed", Unit::percent,
     "Compute (SM) Throughput", kSpeed, true},
    {Quantity::sm_share, "sm__throughput.avg.pct_of_peak_sustained_elapsed", Unit::percent,
     "Compute (SM) [%]", kSpeed},
    {Quantity::sm_share, "sm__throughput.avg.pct_of_peak_sustained_elapsed", Unit::percent,
     "Compute Throughput", ""},
    {Quantity::sm_share, "sm__throughput.avg.pct_of_peak_sustained_elapsed", Unit::percent, "SM [%]", kSpeed},
    {Quantity::sm_share, "sm__throughput.avg.pct_of_peak_sustained_elapsed", Unit::percent, "SOL SM", kSpeed},
    {Quantity::grid, "launch__grid_size", Unit::count, "Grid Size", kLaunch, true},
    {Quantity::achieved_occupancy, "sm__warps_active.avg.pct_of_peak_sustained_active", Unit::percent,
     "Achieved Occupancy", kOccupancy, true},
    {Quantity::memory_share, "dram__throughput.avg.pct_of_peak_sustained_elapsed", Unit::percent, "SOL FB",
     kSpeed, true},
    {Quantity::memory_share, "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", Unit::percent,
     "DRAM Throughput", kSpeed},
    {Quantity::l2_hit_share, "lts__t_sector_hit_rate.pct", Unit::percent, "L2 Hit Rate", kMemory, true},
    {Quantity::time, "gpu__time_duration.sum", Unit::nanoseconds, "Duration", kSpeed, true},
    {Quantity::time, "gpu__time_duration.avg", Unit::nanoseconds, "", ""},
    {Quantity::block, "launch__block_size", Unit::count, "Block Size", kLaunch, true},
    {Quantity::registers, "launch__registers_per_thread", Unit::count, "Registers Per Thread", kLaunch, true},
    {Quantity::registers, "launch__registers_per_thread", Unit::count, "# Registers", ""},
    {Quantity::smem_static, "launch__shared_mem_per_block_static", Unit::bytes,
     "Static Shared Memory Per Block", kLaunch, true},
    {Quantity::smem_dynamic, "launch__shared_mem_per_block_dynamic", Unit::bytes,
     "Dynamic Shared Memory Per Block", kLaunch, true},
    {Quantity::smem, "launch__shared_mem_per_block", Unit::bytes, "", ""},
    {Quantity::by_registers, "launch__occupancy_limit_registers", Unit::count, "Block Limit Registers",
     kOccupancy, true},
    {Quantity::by_smem, "launch__occupancy_limit_shared_mem", Unit::count, "Block Limit Shared Mem",
     kOccupancy, true},
    {Quantity::theoretical_occupancy, "sm__maximum_warps_per_active_cycle_pct", Unit::percent,
     "Theoretical Occupancy", kOccupancy},
    {Quantity::tensor_share, "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", Unit::percent,
     "", "", true},
    {Quantity::tensor_share, "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", Unit::percent,
     "", ""},
    {Quantity::load_sectors, "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct", Unit::percent,
     "", "", true},
    {Quantity::store_sectors, "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct", Unit::percent,
     "", "", true},
    {Quantity::bank_conflicts, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", Unit::count, "", "",
     true},
    {Quantity::load_bank_conflicts, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", Unit::count,
     "", ""},
    {Quantity::store_bank_conflicts, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", Unit::count,
     "", ""},
    {Quantity::shared_wavefronts, "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", Unit::count, "", "",
     true},
    {Quantity::memory_bytes, "dram__bytes.sum", Unit::bytes, "", ""},
    {Quantity::read_bytes, "dram__bytes_read.sum", Unit::bytes, "", "", true},
    {Quantity::written_bytes, "dram__bytes_write.sum", Unit::bytes, "", "", true},
    {Quantity::busiest_memory_share, "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
     Unit::percent, "Memory Throughput", kSpeed},
    {Quantity::busiest_memory_share, "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
     Unit::percent, "Memory [%]", kSpeed},
    {Quantity::busiest_memory_share, "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
     Unit::percent, "SOL Memory", kSpeed},
    {Quantity::l1_share, "l1tex__throughput.avg.pct_of_peak_sustained_active", Unit::percent,
     "L1/TEX Cache Throughput", kSpeed},
    {Quantity::l2_share, "lts__throughput.avg.pct_of_peak_sustained_elapsed", Unit::percent,
     "L2 Cache Throughput", kSpeed},
    {Quantity::issue_cycles, "smsp__average_warp_latency_per_inst_issued.ratio", Unit::number,
     "Warp Cycles Per Issued Instruction", kWarps, true},
    // Shares of a warp's cycles, and cycles from one instruction to the next, of which those are parts.
    {Quantity::stall, "smsp__warp_issue_stalled_memory_dependency_per_warp_active.pct", Unit::percent, "",
     ""},
    {Quantity::stall, "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct", Unit::percent, "", ""},
    {Quantity::stall, "smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct", Unit::percent, "", ""},
    {Quantity::stall, "smsp__warp_issue_stalled_barrier_per_warp_active.pct", Unit::percent, "", ""},
    {Quantity::stall, "smsp__warp_issue_stalled_wait_per_warp_active.pct", Unit::percent, "", ""},
    {Quantity::stall, "smsp__warp_issue_stalled_lg_throttle_per_warp_active.pct", Unit::percent, "", ""},
    {Quantity::stall, "smsp__warp_issue_stalled_mio_throttle_per_warp_active.pct", Unit::percent, "", ""},
    {Quantity::stall, "smsp__warp_issue_stalled_math_pipe_throttle_per_warp_active.pct", Unit::percent, "",
     ""},
    {Quantity::stall, "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
     Unit::number, "Stall Long Scoreboard", kWarps, true},
    {Quantity::stall, "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
     Unit::number, "Stall Short Scoreboard", kWarps, true},
    {Quantity::stall, "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", Unit::number,
     "Stall Barrier", kWarps, true},
    {Quantity::stall, "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", Unit::number,
     "Stall Wait", kWarps, true},
    {Quantity::stall, "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio", Unit::number,
     "Stall LG Throttle", kWarps, true},
    {Quantity::stall, "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio", Unit::number,
     "Stall MIO Throttle", kWarps, true},
    {Quantity::stall, "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",
     Unit::number, "Stall Math Pipe Throttle", kWarps, true},
    {Quantity::stall, "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio", Unit::number,
     "Stall No Instruction", kWarps},
    {Quantity::stall, "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio", Unit::number,
     "Stall Not Selected", kWarps},
    {Quantity::stall, "smsp__average_warps_issue_stalled_imc_miss_per_issue_active.ratio", Unit::number,
     "Stall IMC Miss", kWarps},
    {Quantity::stall, "smsp__average_warps_issue_stalled_branch_resolving_per_issue_active.ratio",
     Unit::number, "Stall Branch Resolving", kWarps},
    {Quantity::stall, "smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio", Unit::number,
     "Stall Dispatch Stall", kWarps},
    {Quantity::stall, "smsp__average_warps_issue_stalled_drain_per_issue_active.ratio", Unit::number,
     "Stall Drain", kWarps},
    {Quantity::stall, "smsp__average_warps_issue_stalled_membar_per_issue_active.ratio", Unit::number,
     "Stall Membar", kWarps},
    {Quantity::stall, "smsp__average_warps_issue_stalled_misc_per_issue_active.ratio", Unit::number,
     "Stall Misc", kWarps},
    {Quantity::stall, "smsp__average_warps_issue_stalled_sleeping_per_issue_active.ratio", Unit::number,
     "Stall Sleeping", kWarps},
    {Quantity::stall, "smsp__average_warps_issue_stalled_tex_throttle_per_issue_active.ratio", Unit::number,
     "Stall Tex Throttle", kWarps},
    {Quantity::stall, "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio", Unit::number,
     "Stall GMMA", kWarps},
    {Quantity::stall, "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio", Unit::number,
     "Selected", kWarps},
    {Quantity::stall, "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.pct", Unit::number,
     "", ""},
    {Quantity::local_loads, "smsp__inst_executed_op_local_ld.sum", Unit::count, "", "", true},
    {Quantity::local_loads, "smsp__sass_inst_executed_op_local_ld.sum", Unit::count, "", ""},
    {Quantity::local_loads, "sass__inst_executed_local_loads", Unit::count, "", ""},
    {Quantity::local_loads, "sass__inst_executed_register_spilling", Unit::count, "", ""},
    {Quantity::local_loads, "derived__local_spilling_requests", Unit::count, "Local Memory Spilling Requests",
     kMemory},
    {Quantity::local_load_sectors, "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", Unit::count, "", "",
     true},
    {Quantity::local_store_sectors, "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", Unit::count, "", "",
     true},
};

// True where a display name alone says what its number is counted in.
bool needs_unit(const Metric& metric) {
  return metric.unit == Unit::nanoseconds || metric.unit == Unit::bytes ||
         metric.display == "Memory Throughput" || metric.display == "DRAM Throughput";
}

bool has_display(const Metric& metric, const UnitText& unit) {
  if (unit.kind == UnitText::Kind::none) return !needs_unit(metric);
  return fits(metric, unit) || (metric.unit == Unit::count && unit.kind == UnitText::Kind::other);
}

}  // namespace

std::span<const Metric> metric_table() {
  return kMetrics;
}

UnitText parse_unit(std::string_view text) {
  using Kind = UnitText::Kind;
  if (text.empty()) return {};
  if (text == "%") return {Kind::percent, 1};
  for (const std::string_view per : {"/block", "/thread"})
    if (text.ends_with(per)) text.remove_suffix(per.size());
  constexpr std::pair<std::string_view, UnitText> kUnits[] = {
      {"byte", {Kind::bytes, 1}},
      {"Kbyte", {Kind::bytes, 1e3}},
      {"Mbyte", {Kind::bytes, 1e6}},
      {"Gbyte", {Kind::bytes, 1e9}},
      {"ns", {Kind::time, 1}},
      {"us", {Kind::time, 1e3}},
      {"ms", {Kind::time, 1e6}},
      {"s", {Kind::time, 1e9}},
      {"nsecond", {Kind::time, 1}},
      {"usecond", {Kind::time, 1e3}},
      {"msecond", {Kind::time, 1e6}},
      {"second", {Kind::time, 1e9}},
      {"block", {Kind::plain, 1}},
      {"thread", {Kind::plain, 1}},
      {"register", {Kind::plain, 1}},
      {"warp", {Kind::plain, 1}},
      {"inst", {Kind::plain, 1}},
      {"request", {Kind::plain, 1}},
      {"sector", {Kind::plain, 1}},
      {"cycle", {Kind::plain, 1}},
      {"cycle/instruction", {Kind::plain, 1}},
      {"cycle/inst", {Kind::plain, 1}},
      {"cycles", {Kind::plain, 1}},
      {"Kinst", {Kind::plain, 1e3}},
      {"Minst", {Kind::plain, 1e6}},
      {"Ksector", {Kind::plain, 1e3}},
      {"Msector", {Kind::plain, 1e6}},
  };
  for (const auto& [known, unit] : kUnits)
    if (known == text ||
        (known.size() > 3 && text.ends_with('s') && known == text.substr(0, text.size() - 1)))
      return unit;
  return {Kind::other, 1};
}

bool fits(const Metric& metric, const UnitText& unit) {
  using Kind = UnitText::Kind;
  switch (metric.unit) {
    case Unit::percent:
      return unit.kind == Kind::none || unit.kind == Kind::percent;
    case Unit::count:
      return unit.kind == Kind::none || unit.kind == Kind::plain;
    case Unit::number:
      return unit.kind == Kind::none || unit.kind == Kind::plain || unit.kind == Kind::percent;
    case Unit::nanoseconds:
      return unit.kind == Kind::none || unit.kind == Kind::time;
    case Unit::bytes:
      return unit.kind == Kind::none || unit.kind == Kind::bytes;
  }
  return false;
}

const Metric* find_metric(std::string_view name, const UnitText& unit) {
  if (name.empty()) return nullptr;
  for (const Metric& metric : kMetrics)
    if (metric.name == name || (metric.display == name && has_display(metric, unit))) return &metric;
  return nullptr;
}

bool is_display_name(std::string_view name) {
  return !name.empty() && std::any_of(std::begin(kMetrics), std::end(kMetrics),
                                      [&](const Metric& metric) { return metric.display == name; });
}

std::size_t leading_name(std::string_view line) {
  std::size_t longest = 0;
  for (const Metric& metric : kMetrics)
    for (const std::string_view name : {metric.name, metric.display})
      if (name.size() > longest && line.size() > name.size() && line.starts_with(name) &&
          line[name.size()] == ' ')
        longest = name.size();
  return longest;
}

}  // namespace convtune
