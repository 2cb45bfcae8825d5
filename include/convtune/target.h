// A GPU as a description: what a kernel is held against when the GPU itself may not be here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convtune/capability.h"

namespace convtune {

// A GPU's limits and peak rates. Rates are dense: without sparsity.
struct Target {
  std::string name;          // "rtx4090"; of a device in this machine, "cuda:0"
  std::string product;       // "NVIDIA GeForce RTX 4090"
  std::string architecture;  // "Ada Lovelace"
  ComputeCapability capability;
  int multiprocessors = 0;
  double clock_mhz = 0;  // boost
  double bandwidth_gb_s = 0;
  double tf32_tflops = 0, bf16_tflops = 0, fp16_tflops = 0;  // tensor cores, sums in fp32
  int registers_per_thread = 255;
  int registers_per_multiprocessor = 65536;
  int threads_per_block = 1024;
  int threads_per_multiprocessor = 0;
  int warp_size = 32;
  int warps_per_multiprocessor = 0;
  int blocks_per_multiprocessor = 0;
  std::int64_t smem_per_multiprocessor = 0, smem_per_block = 0;  // bytes
  std::int64_t smem_reserved = 1024;                             // bytes that each block costs beside its own
  std::int64_t l2_bytes = 0;

  double fp32_tflops() const;  // for the ordinary multiply-add units
  bool operator==(const Target&) const = default;
};

// The built-in ones.
const std::vector<Target>& known_targets();
// A built-in name, a device ("cuda", "cuda:1"), or a path that ends in ".json". Throws Error that lists
// the names, says what is wrong in the file, or that there is no such device.
Target find_target(const std::string& name);

// The text of a target file, both ways: a flat JSON object of the fields above, "capability" being "8.9".
// parse throws Error{invalid_argument} that names the field; every field must be there, and no other.
std::string to_json(const Target& target);
Target parse_target(std::string_view json);

// Describes the resources of one block of a kernel.
struct BlockNeeds {
  int threads = 0;
  int registers = 0;            // a thread; 0: not known, and then they limit nothing
  std::int64_t smem_bytes = 0;  // static and dynamic
};

// Names the resource that keeps a further block from a multiprocessor.
enum class Limiter { warps, registers, shared_memory, block_slots };
std::string_view to_string(Limiter limiter);  // "shared memory"

struct Occupancy {
  int blocks = 0;    // on a multiprocessor at once; 0: no block fits
  int warps = 0;     // of those blocks
  double share = 0;  // of the multiprocessor's warps
  Limiter limiter = Limiter::warps;
  int by_warps = 0, by_registers = 0, by_smem = 0, by_slots = 0;  // blocks that each would allow
};

// Describes the resources of a GPU's kernel, by its compiler, and how much of a multiprocessor they fill.
struct Resources {
  int registers = 0, threads = 0;                // a thread; of a block
  std::int64_t spill_bytes = 0, smem_bytes = 0;  // a thread; a block
  std::int64_t blocks = 0;
  Occupancy occupancy;
};

// The hardware's own rules: registers are handed out by warp in steps of 256 from four equal parts,
// shared memory in steps of 128 bytes. Throws Error{invalid_argument} for negative needs or no threads.
Occupancy occupancy(const Target& target, const BlockNeeds& block);

}  // namespace convtune
