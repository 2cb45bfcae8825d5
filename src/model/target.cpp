// Targets as values: the built-in table with its sources, occupancy, and the text of a target file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/flat_json.h"
#include "base/fork_gate.h"
#include "convtune/error.h"
#include "model/target_of.h"

namespace convtune {
namespace {

// Registers and shared memory are handed out in steps; a multiprocessor has four parts, each with a
// quarter of the registers (NVIDIA's occupancy calculator, for compute capability 8.0 and up).
constexpr int kRegisterStep = 256, kParts = 4;
constexpr std::int64_t kSmemStep = 128;

std::int64_t rounded_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

// Sets what the capability decides.
void set_limits(Target& target, ComputeCapability capability) {
  const CapabilityFacts facts = capability_facts(capability);
  target.architecture = facts.architecture;
  target.capability = capability;
  target.threads_per_multiprocessor = facts.threads;
  target.warps_per_multiprocessor = facts.threads / target.warp_size;
  target.blocks_per_multiprocessor = facts.blocks;
  target.smem_per_multiprocessor = facts.smem_per_multiprocessor();
  target.smem_per_block = facts.smem_per_block();
}

struct Product {
  const char *name, *product;
  int multiprocessors;
  double clock_mhz, bandwidth_gb_s, tf32, bf16, fp16;
  std::int64_t l2_mib;
};

Target make(ComputeCapability capability, const Product& product) {
  Target target;
  set_limits(target, capability);
  target.name = product.name, target.product = product.product;
  target.multiprocessors = product.multiprocessors;
  target.clock_mhz = product.clock_mhz, target.bandwidth_gb_s = product.bandwidth_gb_s;
  target.tf32_tflops = product.tf32, target.bf16_tflops = product.bf16, target.fp16_tflops = product.fp16;
  target.l2_bytes = product.l2_mib << 20;
  return target;
}

std::vector<Target> built_in() {
  return {
      // "NVIDIA Ada GPU Architecture" whitepaper, appendix A: 128 SMs, 2520 MHz, 1008 GB/s, L2 73728 KB,
      // tensor TFLOPS dense with fp32 sums: tf32 82.6, bf16 165.2, fp16 165.2.
      make({8, 9}, {"rtx4090", "NVIDIA GeForce RTX 4090", 128, 2520, 1008, 82.6, 165.2, 165.2, 72}),
      // "NVIDIA A100 Tensor Core GPU" data sheet, 80 GB SXM: 2039 GB/s, tf32 156, bf16 and fp16 312; the
      // Ampere whitepaper: 108 SMs, 1410 MHz, L2 40 MB.
      make({8, 0}, {"a100", "NVIDIA A100 80GB SXM", 108, 1410, 2039, 156, 312, 312, 40}),
      // "NVIDIA L40S" data sheet: 18176 CUDA cores = 142 SMs, 864 GB/s, tf32 183, bf16 and fp16 362.05;
      // 91.6 fp32 TFLOPS make 2520 MHz; L2 98304 KB is the AD102's ("NVIDIA Ada GPU Architecture").
      make({8, 9}, {"l40s", "NVIDIA L40S", 142, 2520, 864, 183, 362.05, 362.05, 96}),
      // "NVIDIA L4" data sheet: 7424 CUDA cores = 58 SMs, 300 GB/s, tf32 120, bf16 and fp16 242 with
      // sparsity, so
      // half of that dense; 30.3 fp32 TFLOPS make 2040 MHz; L2 48 MB is the AD104's.
      make({8, 9}, {"l4", "NVIDIA L4", 58, 2040, 300, 60, 121, 121, 48}),
      // "NVIDIA H100 Tensor Core GPU Architecture" whitepaper, SXM5: 132 SMs, 3352 GB/s, tf32 494.7, bf16
      // and fp16 989.4, L2 50 MB; 494.7 tf32 TFLOPS make 1830 MHz.
      make({9, 0}, {"h100", "NVIDIA H100 80GB SXM5", 132, 1830, 3352, 494.7, 989.4, 989.4, 50}),
      // "NVIDIA H200" data sheet, SXM: 4.8 TB/s, tf32 989 and bf16, fp16 1979 with sparsity, so half of
      // that dense; the chip is the H100's.
      make({9, 0}, {"h200", "NVIDIA H200 SXM", 132, 1830, 4800, 494.7, 989.4, 989.4, 50}),
      // "NVIDIA RTX Blackwell GPU Architecture" whitepaper, appendix A: 170 SMs, 2407 MHz, 1792 GB/s, tf32
      // 104.8, bf16 and fp16 with fp32 sums 209.5, L2 98304 KB.
      make({12, 0}, {"rtx5090", "NVIDIA GeForce RTX 5090", 170, 2407, 1792, 104.8, 209.5, 209.5, 96}),
      // "NVIDIA Blackwell" data sheet, HGX B200 for each of its 8 GPUs: 8 TB/s, tf32 2.2 and bf16, fp16
      // 4.5 PFLOPS with sparsity, so half of that dense. 148 SMs and L2 126 MB are what the device
      // reports; 1100 tf32 TFLOPS of 148 SMs make 1815 MHz.
      make({10, 0}, {"b200", "NVIDIA B200 SXM", 148, 1815, 8000, 1100, 2250, 2250, 126}),
  };
}

// The numbers of a target file: its name, where it lies, its range. Text fields and the capability stand
// beside it.
template <class T, class F>
void visit_numbers(T& target, F&& field) {
  constexpr double kMany = 1e6;
  field("multiprocessors", target.multiprocessors, 1, 10'000);
  field("clock_mhz", target.clock_mhz, 1, 100'000);
  field("bandwidth_gb_s", target.bandwidth_gb_s, 0.001, kMany);
  field("tf32_tflops", target.tf32_tflops, 0.001, kMany);
  field("bf16_tflops", target.bf16_tflops, 0.001, kMany);
  field("fp16_tflops", target.fp16_tflops, 0.001, kMany);
  field("registers_per_thread", target.registers_per_thread, 1, 1024);
  field("registers_per_multiprocessor", target.registers_per_multiprocessor, 1024, 1 << 24);
  field("threads_per_block", target.threads_per_block, 32, 1 << 16);
  field("threads_per_multiprocessor", target.threads_per_multiprocessor, 32, 1 << 16);
  field("warp_size", target.warp_size, 32, 32);
  field("warps_per_multiprocessor", target.warps_per_multiprocessor, 1, 1 << 11);
  field("blocks_per_multiprocessor", target.blocks_per_multiprocessor, 1, 1 << 11);
  field("smem_per_multiprocessor", target.smem_per_multiprocessor, 1024, 1 << 30);
  field("smem_per_block", target.smem_per_block, 1024, 1 << 30);
  field("smem_reserved", target.smem_reserved, 0, 1 << 20);
  field("l2_bytes", target.l2_bytes, 1, std::int64_t{1} << 40);
}

// "8.9"; the target's own checks refuse what is no capability.
void set_capability(Target& target, const std::string& text, const FlatJson& json) {
  const std::optional<ComputeCapability> capability = parse_capability(text);
  if (!capability) json.fail("capability", "must be a compute capability such as \"8.9\"");
  target.capability = *capability;
}

}  // namespace

double Target::fp32_tflops() const {
  return 2e-6 * capability_facts(capability).fp32_lanes * multiprocessors * clock_mhz;
}

const std::vector<Target>& known_targets() {
  return once([] { return built_in(); });
}

std::optional<Target> known_target(std::string_view name) {
  for (const Target& target : known_targets())
    if (target.name == name) return target;
  return std::nullopt;
}

Target typical_target(ComputeCapability capability, int multiprocessors) {
  Target target = *known_target(capability_facts(capability).typical);
  set_limits(target, capability);
  const double share = static_cast<double>(multiprocessors) / target.multiprocessors;
  target.multiprocessors = multiprocessors;
  target.bandwidth_gb_s *= share;
  target.tf32_tflops *= share, target.bf16_tflops *= share, target.fp16_tflops *= share;
  return target;
}

Target target_of(const DeviceInfo& device) {
  return typical_target(device.capability, device.units);
}

double tf32_tflops_of(const CapabilityFacts& facts, std::string_view product, int multiprocessors,
                      double clock_mhz) {
  const bool halved = facts.halved_in_geforce && product.find("GeForce") != product.npos;
  return 1e-6 * facts.tf32_flop_per_cycle * multiprocessors * clock_mhz / (halved ? 2 : 1);
}

std::string to_json(const Target& target) {
  nlohmann::ordered_json json = {{"name", target.name},
                                 {"product", target.product},
                                 {"architecture", target.architecture},
                                 {"capability", to_string(target.capability)}};
  visit_numbers(target, [&](const char* name, const auto& value, auto, auto) { json[name] = value; });
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

Target parse_target(std::string_view text) {
  FlatJson json(text, "target");
  Target target;
  target.name = json.take_word("name");
  target.product = json.take_text("product");
  target.architecture = json.take_text("architecture");
  set_capability(target, json.take_text("capability"), json);
  visit_numbers(target, [&](const char* name, auto& value, auto low, auto high) {
    using Value = std::remove_reference_t<decltype(value)>;
    if constexpr (std::is_floating_point_v<Value>)
      value = json.take_number(name, low, high);
    else
      value = static_cast<Value>(json.take_integer(name, low, high));
  });
  json.finish();
  if (target.smem_per_block > target.smem_per_multiprocessor)
    json.fail("smem_per_block", "is more than smem_per_multiprocessor");
  if (target.threads_per_block > target.threads_per_multiprocessor)
    json.fail("threads_per_block", "is more than threads_per_multiprocessor");
  if (target.warps_per_multiprocessor * target.warp_size > target.threads_per_multiprocessor)
    json.fail("warps_per_multiprocessor", "makes more threads than threads_per_multiprocessor");
  return target;
}

std::string_view to_string(Limiter limiter) {
  constexpr std::string_view kNames[] = {"warps", "registers", "shared memory", "block slots"};
  return kNames[static_cast<std::size_t>(limiter)];
}

Occupancy occupancy(const Target& target, const BlockNeeds& block) {
  if (block.threads < 1 || block.registers < 0 || block.smem_bytes < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("a block of {} threads, {} registers and {} bytes of shared memory is none",
                            block.threads, block.registers, block.smem_bytes));
  const int warps = block.threads / target.warp_size + (block.threads % target.warp_size != 0);
  Occupancy result;
  result.by_slots = target.blocks_per_multiprocessor;
  result.by_warps = block.threads > target.threads_per_block ? 0 : target.warps_per_multiprocessor / warps;

  result.by_registers = std::numeric_limits<int>::max();
  if (block.registers > target.registers_per_thread) {
    result.by_registers = 0;
  } else if (block.registers > 0) {
    const std::int64_t warp = rounded_up(std::int64_t{block.registers} * target.warp_size, kRegisterStep);
    const std::int64_t of_a_part = target.registers_per_multiprocessor / kParts / warp;
    // A launch is refused where its warps, made up to a multiple of the parts, need more than there is.
    const bool fits = warp * rounded_up(warps, kParts) <= target.registers_per_multiprocessor;
    result.by_registers = fits ? static_cast<int>(of_a_part * kParts / warps) : 0;
  }

  result.by_smem = 0;
  if (block.smem_bytes <= target.smem_per_block) {
    const std::int64_t smem = rounded_up(block.smem_bytes + target.smem_reserved, kSmemStep);
    result.by_smem =
        smem == 0 ? std::numeric_limits<int>::max() : static_cast<int>(target.smem_per_multiprocessor / smem);
  }

  const std::array<std::pair<int, Limiter>, 4> limits = {{{result.by_warps, Limiter::warps},
                                                          {result.by_registers, Limiter::registers},
                                                          {result.by_smem, Limiter::shared_memory},
                                                          {result.by_slots, Limiter::block_slots}}};
  const auto least = std::min_element(limits.begin(), limits.end(),
                                      [](const auto& a, const auto& b) { return a.first < b.first; });
  result.blocks = least->first, result.limiter = least->second;
  result.warps = result.blocks * warps;
  result.share = static_cast<double>(result.warps) / target.warps_per_multiprocessor;
  return result;
}

}  // namespace convtune
