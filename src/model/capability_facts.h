// THE table of what a compute capability has: limits, rates, and the rules of thumb that the model of time
// and the search spaces go by. Nothing else in the tree knows any of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "convtune/capability.h"

namespace convtune {

// The least that convtune runs on, and the table's first.
constexpr ComputeCapability kLeastCapability = {8, 0};

// Numbers of a multiprocessor, if nothing else is said.
struct CapabilityFacts {
  ComputeCapability capability;
  std::string_view architecture;
  int threads = 0, blocks = 0;        // at once
  int smem_kib = 0;                   // a block may have one KiB less: the driver's own, of every block
  int fp32_lanes = 0;                 // multiply-adds a clock cycle without tensor cores
  int tf32_flop_per_cycle = 0;        // of its tensor cores, dense with fp32 sums; fp16 and bf16: twice that
  bool halved_in_geforce = false;     // consumer boards sum in fp32 at half that rate
  double mma_sync_share = 1;          // of that rate, which mma.sync reaches
  double l2_bytes_per_cycle = 0;      // from the L2, and to it
  double tma_bytes_per_cycle = 0;     // from the L2, of bulk copies; 0 where there are none
  double copied_bytes_per_cycle = 0;  // from memory and to it, when all multiprocessors copy
  // Registers that ptxas wants beyond what direct_stem_sm80 counts, where 8 filters a thread are stored from
  // registers.
  int spare_registers = 0;
  // Instructions that this capability alone has are compiled for its name with this suffix: "a" in "sm_90a".
  std::string_view isa_suffix;
  bool wgmma = false;        // among those instructions: products of whole warpgroups
  std::string_view typical;  // the built-in target with rates like those of its GPUs

  std::int64_t smem_per_multiprocessor() const { return std::int64_t{smem_kib} << 10; }
  std::int64_t smem_per_block() const { return std::int64_t{smem_kib - 1} << 10; }
};

// Every row, from the least capability on.
std::span<const CapabilityFacts> capability_table();

// A capability that has no row gets what the nearest below it has, without the instructions that are that
// one's alone; one below all rows gets what the first has.
CapabilityFacts capability_facts(ComputeCapability capability);

// "8.9"; nothing where it is not so written.
std::optional<ComputeCapability> parse_capability(std::string_view text);

// Bytes that a block may have on every GPU of the table.
std::int64_t smem_per_block_anywhere();

// Returns the architecture that NVRTC compiles for: "sm_89", "sm_90a".
std::string isa_of(ComputeCapability capability);
// Returns nvcc's virtual architecture of the capability: "compute_90a".
std::string virtual_isa_of(ComputeCapability capability);

}  // namespace convtune
