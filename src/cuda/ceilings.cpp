// The ceilings of a GPU, measured: TF32 products a second with the fastest instruction that convtune uses on
// it, and bytes a second when the driver copies memory. The best of several windows each, after a warm-up.
#include <algorithm>

#include "cuda/compiler.h"
#include "cuda/cuda.h"
#include "cuda/driver.h"
#include "cuda/kernel.h"

namespace convtune::cuda {
namespace {

constexpr int kWindows = 12;
constexpr double kWindowUs = 5000;

double best_us(Backend& backend, const auto& work) {
  double best = backend.time_us(work);
  for (int window = 1; window < kWindows; ++window) best = std::min(best, backend.time_us(work));
  return best;
}

double measure_flops_per_second(Backend& backend) {
  const DeviceInfo& info = backend.info();
  const bool wgmma = info.isa == "sm_90a";
  const std::string name = wgmma ? "convtune::wgmma_products" : "convtune::mma_products";
  const unsigned threads = wgmma ? 128 : 256;
  // Of one block and round: 16 products of 64x128x8, or 8 of 16x8x8 in each of 8 warps.
  const double flops = wgmma ? 16.0 * 2 * 64 * 128 * 8 : 8.0 * 8 * 2 * 16 * 8 * 8;
  const Kernel kernel(info.device.index, compile(kernel_job("ceilings.cuh", name, info.isa)), name);
  const unsigned blocks = static_cast<unsigned>(info.units * kernel.blocks_per_unit(threads, 0));
  const std::shared_ptr<void> results = backend.allocate(std::size_t{blocks} * threads * sizeof(float));
  const auto run = [&](int rounds) { kernel.launch({blocks}, {threads}, 0, nullptr, results.get(), rounds); };
  constexpr int kTrialRounds = 200;
  backend.time_us([&] { run(kTrialRounds); });
  const double trial_us = backend.time_us([&] { run(kTrialRounds); });
  const int rounds = static_cast<int>(std::clamp(kTrialRounds * kWindowUs / trial_us, 200.0, 1e6));
  return blocks * flops * rounds / best_us(backend, [&] { run(rounds); }) * 1e6;
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

Ceilings measure_ceilings(Backend& backend) {
  return {measure_flops_per_second(backend), measure_bytes_per_second(backend)};
}

}  // namespace convtune::cuda
