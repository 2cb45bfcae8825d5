// What the rooms above need of targets beside the face: find_target() is made of these.
#pragma once

#include <optional>

#include "convtune/target.h"

namespace convtune {

// A built-in target, or nothing.
std::optional<Target> known_target(std::string_view name);

// What a device of this capability is like of which no more is known: a built-in one of it, or of a
// capability near it, with its rates divided among so many multiprocessors.
Target typical_target(int major, int minor, int multiprocessors);

// What the limits of a compute capability are, and the products that a multiprocessor's tensor cores
// finish in a clock cycle, in flop of dense tf32 with fp32 sums (fp16 and bf16: twice that).
struct CapabilityFacts {
  std::string_view architecture;
  int threads_per_multiprocessor = 0, blocks_per_multiprocessor = 0;
  int smem_per_multiprocessor_kib = 0;  // a block may have one KiB less
  int tf32_flop_per_cycle = 0;
  bool halved_in_geforce = false;  // consumer boards sum in fp32 at half that rate
};
std::optional<CapabilityFacts> capability_facts(int major, int minor);
// What a product's tensor cores can do: TFLOPS of dense tf32.
double tf32_tflops_of(const CapabilityFacts& facts, std::string_view product, int multiprocessors,
                      double clock_mhz);

// What NVRTC compiles for: "sm_89". From 9.0 on a GPU has instructions of its own, which only the name
// with an 'a' allows.
std::string isa_of(int major, int minor);

}  // namespace convtune
