// The rows, and where each column comes from.
#include "model/capability_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace convtune {
namespace {

// The source of the columns.
// Limits: "CUDA C++ Programming Guide", table "Technical Specifications per Compute Capability", as libcu++
// has them (cuda/__device/arch_traits.h, where 8.8 is 8.6) and CUDA 13.0's cuda_occupancy.h. 10.1 is what
// CUDA 12 calls 11.0.
//
// Lanes, tf32: what the whitepapers' peak figures divide into (peak / multiprocessors / boost clock). For 8.7
// it is the Jetson AGX Orin's 85 TOPS of dense int8, four times its tf32. 8.8, 10.1, 10.3, 11.0 and 12.1 are
// taken to be as 8.6, 10.0 and 12.0.
//
// mma.sync: 62 % on Hopper ("Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via
// Microbenchmarking", Luo et al., 2024), taken for all that came after it. Before, it is all there is.
//
// L2: H100 5.5 TB/s (docs/notebook/), A100 and Ada what their published microbenchmarks come to, the others
// as those. TMA: 14 TB/s of tiles that many SMs read at the same time on an H200; Blackwell's as that.
//
// Copied: about a multiprocessor's share of what its memory can move, as published. 10.0 and 10.3 have the
// H100's.
//
// Spare: 10.0 was seen to spill without them. Its kin are taken to do so too.
// clang-format off
constexpr std::array kTable = {
    //                cc      architecture   threads blocks smem lanes  tf32  GeForce mma.sync  L2 TMA copied spare suffix wgmma  typical
    CapabilityFacts{{8, 0},  "Ampere",         2048,    32, 164,   64, 1024,  false,  1,        30,   0,  10,     0,   "",  false, "a100"},
    CapabilityFacts{{8, 6},  "Ampere",         1536,    16, 100,  128,  512,  true,   1,        15,   0,   3.5,   0,   "",  false, "rtx4090"},
    CapabilityFacts{{8, 7},  "Ampere",         1536,    16, 164,  128, 1024,  false,  1,        30,   0,  10,     0,   "",  false, "a100"},
    CapabilityFacts{{8, 8},  "Ampere",         1536,    16, 100,  128,  512,  true,   1,        15,   0,   3.5,   0,   "",  false, "rtx4090"},
    CapabilityFacts{{8, 9},  "Ada Lovelace",   1536,    24, 100,  128,  512,  true,   1,        15,   0,   3.5,   0,   "",  false, "rtx4090"},
    CapabilityFacts{{9, 0},  "Hopper",         2048,    32, 228,  128, 2048,  false,  0.62,     22,  60,  13,     0,   "a", true,  "h100"},
    CapabilityFacts{{10, 0}, "Blackwell",      2048,    32, 228,  128, 4096,  false,  0.62,     22,  60,  13,    48,   "a", false, "b200"},
    CapabilityFacts{{10, 1}, "Blackwell",      1536,    24, 228,  128, 4096,  false,  0.62,     22,  60,   8,    48,   "a", false, "b200"},
    CapabilityFacts{{10, 3}, "Blackwell",      2048,    32, 228,  128, 4096,  false,  0.62,     22,  60,  13,    48,   "a", false, "b200"},
    CapabilityFacts{{11, 0}, "Blackwell",      1536,    24, 228,  128, 4096,  false,  0.62,     22,  60,   8,    48,   "a", false, "b200"},
    CapabilityFacts{{12, 0}, "Blackwell",      1536,    24, 100,  128,  512,  true,   0.62,     15,  60,   3.5,   0,   "",  false, "rtx5090"},
    CapabilityFacts{{12, 1}, "Blackwell",      1536,    24, 100,  128,  512,  true,   0.62,     15,  60,   2,     0,   "",  false, "rtx5090"},
};
// clang-format on
static_assert(kTable.front().capability == kLeastCapability);
static_assert(std::is_sorted(kTable.begin(), kTable.end(),
                             [](const auto& a, const auto& b) { return a.capability < b.capability; }));

}  // namespace

std::span<const CapabilityFacts> capability_table() {
  return kTable;
}

CapabilityFacts capability_facts(ComputeCapability capability) {
  const auto above = std::find_if(kTable.begin() + 1, kTable.end(),
                                  [&](const CapabilityFacts& row) { return row.capability > capability; });
  CapabilityFacts facts = *(above - 1);
  if (facts.capability != capability) facts.isa_suffix = {}, facts.wgmma = false;
  facts.capability = capability;
  return facts;
}

std::optional<ComputeCapability> parse_capability(std::string_view text) {
  const auto number = [](std::string_view digits) -> std::optional<int> {
    if (digits.empty() || digits.size() > 2 || digits.find_first_not_of("0123456789") != digits.npos)
      return {};
    return std::stoi(std::string(digits));
  };
  const std::size_t dot = text.find('.');
  if (dot == text.npos) return {};
  const std::optional<int> major = number(text.substr(0, dot)), minor = number(text.substr(dot + 1));
  if (!major || !minor) return {};
  return ComputeCapability{*major, *minor};
}

std::int64_t smem_per_block_anywhere() {
  return std::min_element(
             kTable.begin(), kTable.end(),
             [](const CapabilityFacts& a, const CapabilityFacts& b) { return a.smem_kib < b.smem_kib; })
      ->smem_per_block();
}

std::string isa_of(ComputeCapability capability) {
  return fmt::format("sm_{}{}{}", capability.major, capability.minor,
                     capability_facts(capability).isa_suffix);
}

std::string virtual_isa_of(ComputeCapability capability) {
  return fmt::format("compute_{}{}{}", capability.major, capability.minor,
                     capability_facts(capability).isa_suffix);
}

std::string to_string(ComputeCapability capability) {
  return fmt::format("{}.{}", capability.major, capability.minor);
}

}  // namespace convtune
