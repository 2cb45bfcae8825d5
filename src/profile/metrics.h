// The metrics that convtune reads, by meaning instead of by name. Who asks: analysis and refine.
#pragma once

#include "convtune/refine.h"

namespace convtune {

// Each is nothing where the metrics do not hold it. Shares are of 1.
struct KnownMetrics {
  std::optional<double> sm_share, tensor_share, memory_share, l2_hit_share;
  std::optional<double> achieved_occupancy;
  std::optional<double> load_sector_share, store_sector_share;  // bytes used of the bytes moved
  std::optional<double> bank_conflict_share;                    // of the shared-memory wavefronts
  std::optional<std::int64_t> grid, block;                      // blocks; threads of one
  std::optional<int> registers, by_registers, by_smem;          // a thread; blocks on a multiprocessor
  std::optional<std::int64_t> smem_bytes;                       // a block
  std::optional<double> time_us;
  std::optional<double> memory_bytes;        // read from memory and written to it
  std::optional<double> memory_stall_share;  // of a warp's cycles, for what loads have not brought yet
  std::optional<double> local_loads;  // instructions that load from local memory: registers that spilled
};

// Throws Error{invalid_argument} for a number that its metric cannot have: -3 registers, half a block.
KnownMetrics known_metrics(const KernelMetrics& metrics);

}  // namespace convtune
