// The ceilings of a GPU, measured: products a second in each precision with the fastest instruction that
// convtune uses on it, and bytes a second when the driver copies memory. The best of several windows each,
// after a warm-up; a third of a second in all.
#include <algorithm>
#include <string>
#include <vector>

#include "cuda/backend/ceilings_job.h"
#include "cuda/backend/cuda.h"
#include "cuda/device/driver.h"
#include "cuda/launch/kernel.h"
#include "model/capability_facts.h"

namespace convtune::cuda {
namespace {

constexpr int kWindows = 12;
constexpr double kWindowUs = 5000;

double best_us(Backend& backend, const auto& work) {
  double best = backend.time_us(work);
  for (int window = 1; window < kWindows; ++window) best = std::min(best, backend.time_us(work));
  return best;
}

// A kernel of ceilings.cuh that multiplies and does nothing else.
struct Products {
  std::string kernel;
  unsigned threads;
  double flops;  // per block in one round
};

// Without tensor cores, in tf32, in bf16 (fp16 has the same products, with sums in fp32).
std::vector<Products> products_of(ComputeCapability capability) {
  const Products fp32{"convtune::fma_products", 256, 2.0 * 32 * 256};
  if (capability_facts(capability).wgmma) {
    const double flops = 16.0 * 2 * 64 * 256 * 8;
    return {fp32,
            {"convtune::wgmma_products<convtune::Tf32>", 128, flops},
            {"convtune::wgmma_products<convtune::Bf16>", 128, 2 * flops}};
  }
  const double flops = 8.0 * 8 * 2 * 16 * 8 * 8;  // the work of 8 warps
  return {fp32,
          {"convtune::mma_products<convtune::Tf32>", 256, flops},
          {"convtune::mma_products<convtune::Bf16>", 256, 2 * flops}};
}

double measure_flops_per_second(Backend& backend, const CompiledModule& module, const Products& products) {
  const DeviceInfo& info = backend.info();
  const Kernel kernel(info.device.index, module, products.kernel, {});
  const auto blocks = static_cast<unsigned>(info.units * kernel.blocks_per_unit(products.threads, 0));
  const std::shared_ptr<void> results =
      backend.allocate(std::size_t{blocks} * products.threads * sizeof(float));
  const auto run = [&](int rounds) {
    kernel.launch({blocks}, {products.threads}, 0, nullptr, results.get(), rounds);
  };
  constexpr int kTrialRounds = 200;
  backend.time_us([&] { run(kTrialRounds); });
  const double trial_us = backend.time_us([&] { run(kTrialRounds); });
  const int rounds = static_cast<int>(std::clamp(kTrialRounds * kWindowUs / trial_us, 200.0, 1e6));
  return blocks * products.flops * rounds / best_us(backend, [&] { run(rounds); }) * 1e6;
}

double measure_bytes_per_second(Backend& backend) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
  const auto bytes = static_cast<std::size_t>(std::min(kMostBytes, backend.info().memory_bytes / 8));
  const std::shared_ptr<void> from = backend.allocate(bytes), to = backend.allocate(bytes);
  const auto address = [](const std::shared_ptr<void>& memory) {
    return reinterpret_cast<CUdeviceptr>(memory.get());
  };
  const DeviceScope scope(backend.info().device.index);
  const auto copy = [&] {
    check(driver().cuMemcpyDtoDAsync(address(to), address(from), bytes, nullptr), "copying {} bytes", bytes);
  };
  return 2.0 * static_cast<double>(bytes) / best_us(backend, copy) * 1e6;
}

}  // namespace

CompileJob ceilings_job(ComputeCapability capability, const std::string& isa) {
  const std::vector<Products> products = products_of(capability);
  CompileJob job = kernel_job("cuda/backend/ceilings.cuh", products[0].kernel, isa);
  for (std::size_t i = 1; i < products.size(); ++i) job.kernels.push_back(products[i].kernel);
  return job;
}

Ceilings measure_ceilings(Backend& backend) {
  const std::vector<Products> products = products_of(backend.info().capability);
  const CompiledModule module = compile(ceilings_job(backend.info().capability, backend.info().isa));
  const auto peak = [&](std::size_t which) {
    return measure_flops_per_second(backend, module, products[which]);
  };
  const double fp32 = peak(0), tf32 = peak(1), half = peak(2);
  // A product of two fp32 numbers can also be three of their tf32 parts.
  return {tf32, measure_bytes_per_second(backend), std::max(fp32, tf32 / 3), half, half};
}

}  // namespace convtune::cuda
