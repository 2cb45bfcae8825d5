// The sheet of `convtune devices --target`.
#include "target_sheet.h"

#include <fmt/format.h>

#include "table.h"

namespace convtune::cli {
namespace {

std::string binary_size(std::int64_t bytes) {
  const bool mega = bytes % (std::int64_t{1} << 20) == 0;
  return fmt::format("{:.6g} {}", static_cast<double>(bytes) / (mega ? 1 << 20 : 1 << 10),
                     mega ? "MB" : "KB");
}

}  // namespace

std::string target_sheet(const Target& target) {
  std::string sheet = fmt::format("{}: {}\n", printable(target.name), printable(target.product));
  const auto line = [&](const char* what, const std::string& value) {
    sheet += fmt::format("  {:<41} {}\n", what, value);
  };
  line("Architecture", printable(target.architecture));
  line("Compute capability", to_string(target.capability));
  line("Number of SMs", fmt::format("{}", target.multiprocessors));
  line("Boost clock", fmt::format("{:.6g} MHz", target.clock_mhz));
  line("Memory bandwidth", fmt::format("{:.6g} GB/s", target.bandwidth_gb_s));
  line("FP32 TFLOPS", fmt::format("{:.1f}", target.fp32_tflops()));
  line("TF32 tensor core TFLOPS", fmt::format("{:.6g} dense", target.tf32_tflops));
  line("BFLOAT16 tensor core TFLOPS", fmt::format("{:.6g} dense", target.bf16_tflops));
  line("FP16 tensor core TFLOPS", fmt::format("{:.6g} dense", target.fp16_tflops));
  line("Maximum number of registers per thread", fmt::format("{}", target.registers_per_thread));
  line("Registers per SM", fmt::format("{}", target.registers_per_multiprocessor));
  line("Maximum threads per block", fmt::format("{}", target.threads_per_block));
  line("Maximum threads per SM", fmt::format("{}", target.threads_per_multiprocessor));
  line("Warp size", fmt::format("{}", target.warp_size));
  line("Maximum concurrent warps per SM", fmt::format("{}", target.warps_per_multiprocessor));
  line("Maximum concurrent blocks per SM", fmt::format("{}", target.blocks_per_multiprocessor));
  line("Shared memory capacity per SM", binary_size(target.smem_per_multiprocessor));
  line("Maximum shared memory per thread block", binary_size(target.smem_per_block));
  line("L2 cache (global, all SMs share it)", binary_size(target.l2_bytes));
  return sheet;
}

std::string target_help() {
  std::string names;
  for (const Target& target : known_targets()) names += target.name + ", ";
  return names + "cuda:N, or a .json file";
}

}  // namespace convtune::cli
