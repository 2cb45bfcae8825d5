// The metrics that convtune reads, by meaning instead of by name. Who asks: analysis and refine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "convtune/error.h"
#include "convtune/metrics.h"

namespace convtune {

// Each is nothing where the metrics do not hold it. Shares are of 1.
struct KnownMetrics {
  std::optional<double> sm_share, tensor_share, memory_share, l2_hit_share;
  std::optional<double> busiest_memory_share, l1_share, l2_share;  // the first: of L1, L2 and DRAM
  std::optional<double> achieved_occupancy, theoretical_occupancy;
  std::optional<double> load_sector_share, store_sector_share;  // bytes used of the bytes moved
  std::optional<double> bank_conflicts, bank_conflict_share;  // the share is of the shared-memory wavefronts
  std::optional<std::int64_t> grid, block;                    // blocks; threads of one
  std::optional<int> registers, by_registers, by_smem;        // a thread; blocks on a multiprocessor
  std::optional<std::int64_t> smem_bytes;                     // a block
  std::optional<double> time_us;
  std::optional<double> memory_bytes;        // read from memory and written to it
  std::optional<double> memory_stall_share;  // of a warp's cycles, for what loads have not brought yet
  std::optional<double>
      local_loads;  // instructions or requests that load from local memory: spilled registers
  std::optional<double> local_bytes;  // bytes of local memory, loaded and stored
  std::string impossible;             // a metric that is there with a number that cannot be, in words

  // A reason that warps wait for, with its share of their cycles.
  struct Stall {
    std::string reason, on;  // "long_scoreboard"; in words
    double share;
    bool operator==(const Stall&) const = default;
  };
  std::vector<Stall> stalls = {};
  bool operator==(const KnownMetrics&) const = default;
};

// Throws Error{invalid_argument} for a number that its metric cannot have: -3 registers, half a block.
KnownMetrics known_metrics(const KernelMetrics& metrics);

// Metrics that cannot be read.
Error bad_metrics(const std::string& why);

}  // namespace convtune
