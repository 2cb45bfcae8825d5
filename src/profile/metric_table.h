// THE table of the metrics that convtune reads: what each means, its name in Nsight Compute, and the name
// that ncu's details page has for it. Every reader of a profile and the command for ncu go by it.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace convtune {

enum class Quantity {
  sm_share,
  grid,
  achieved_occupancy,
  memory_share,
  l2_hit_share,
  time,
  block,
  registers,
  smem_static,
  smem_dynamic,
  smem,
  by_registers,
  by_smem,
  theoretical_occupancy,
  tensor_share,
  load_sectors,
  store_sectors,
  bank_conflicts,
  load_bank_conflicts,
  store_bank_conflicts,
  shared_wavefronts,
  memory_bytes,
  read_bytes,
  written_bytes,
  busiest_memory_share,  // the largest of L1, shared memory, L2 and DRAM
  l1_share,
  l2_share,
  issue_cycles,  // per warp from one instruction to its next
  stall,
  local_loads,
  local_load_sectors,
  local_store_sectors,
};

// The unit of a metric once it has been read.
enum class Unit { percent, count, number, nanoseconds, bytes };

struct Metric {
  Quantity is;
  std::string_view name;  // Nsight Compute's
  Unit unit;
  std::string_view display, section;  // on its details page; empty: it does not stand there
  bool asked = false;                 // by ncu_command()
};

// The first metric of a quantity that a profile has is the one that counts.
std::span<const Metric> metric_table();

// A unit as ncu writes it behind a number: "Kbyte/block", "usecond".
struct UnitText {
  enum class Kind { none, percent, plain, time, bytes, other } kind = Kind::none;
  double scale = 1;  // to percent, nanoseconds or bytes
};
UnitText parse_unit(std::string_view text);
bool fits(const Metric& metric, const UnitText& unit);

// By ncu's name; or by the display name, where the unit tells that it is the one: "Memory Throughput" is a
// share in one section and bytes a second in another. Null: none that convtune reads.
const Metric* find_metric(std::string_view name, const UnitText& unit);
// True for a name on the details page, in whatever unit.
bool is_display_name(std::string_view name);
// The length of the longest name, ncu's or on the details page, that begins the line before a blank; 0: none.
std::size_t leading_name(std::string_view line);

}  // namespace convtune
