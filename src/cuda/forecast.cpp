// Geometry comes from the kernels' headers, registers from their launch bounds.
#include "cuda/forecast.h"

#include <algorithm>

#include "cuda/direct_body_sm90.h"
#include "cuda/direct_depthwise_sm80.h"
#include "cuda/direct_fma_sm80.h"
#include "cuda/direct_patch_sm90.h"
#include "cuda/direct_stem_sm80.h"
#include "cuda/direct_stem_sm90.h"
#include "cuda/implicit_gemm_sm80.h"
#include "cuda/tile_work.h"
#include "target.h"
#include "time_model.h"

namespace convtune::cuda {
namespace {

constexpr int kMostRegisters = 255, kRegisterStep = 8;

// Of a thread, where so many blocks shall share a multiprocessor's.
int registers_for(int threads, int blocks) {
  return std::min(65536 / (threads * blocks) / kRegisterStep * kRegisterStep, kMostRegisters);
}

int resident(const Target& target, int threads, int registers, std::int64_t smem_bytes) {
  return std::max(occupancy(target, {threads, registers, smem_bytes}).blocks, 1);
}

}  // namespace

std::optional<LaunchForecast> forecast_launch(std::string_view algorithm, const Conv2dProblem& problem,
                                              const DeviceInfo& device, const Config& config) {
  if (algorithm == "direct_stem_sm80") {
    const DirectStemSm80 a = direct_stem_sm80_kernel(problem, config);
    return LaunchForecast{a.threads(), registers_for(a.threads(), a.blocks), a.smem_bytes(),
                          static_cast<double>(a.all_blocks()), a.blocks};
  }
  if (algorithm == "direct_stem_sm90") {
    const DirectStemSm90 a = direct_stem_sm90_kernel(problem, config);
    const auto rows = std::clamp<long long>(device.units / a.filter_blocks(), 1, a.rows());
    return LaunchForecast{a.threads(), registers_for(a.threads(), 1), a.smem_bytes(),
                          static_cast<double>(rows) * a.filter_blocks(), 1};
  }
  if (algorithm == "direct_body_sm90") {
    const DirectBodySm90 a = direct_body_sm90_kernel(problem, config);
    return LaunchForecast{a.threads(), registers_for(a.threads(), 1), a.smem_bytes(),
                          static_cast<double>(std::min<long long>(a.tiles(), device.units)), 1};
  }
  if (algorithm == "direct_patch_sm90") {
    const DirectPatchSm90 a = direct_patch_sm90_kernel(problem, config);
    return LaunchForecast{a.threads(), registers_for(a.threads(), 1), a.smem_bytes(),
                          static_cast<double>(std::min<long long>(a.tiles(), device.units)), 1};
  }
  if (algorithm == "implicit_gemm_sm80") {
    const ImplicitGemmSm80 a = implicit_gemm_sm80_kernel(problem, config);
    const int registers = registers_for(a.threads(), a.blocks_per_unit());
    return LaunchForecast{a.threads(), registers, a.smem_bytes(), static_cast<double>(a.blocks(a.problem)),
                          resident(target_of(device), a.threads(), registers, a.smem_bytes())};
  }
  if (algorithm == "direct_depthwise_sm80") {
    const DirectDepthwiseSm80 a = direct_depthwise_sm80_kernel(problem, config);
    return LaunchForecast{a.threads(), a.register_limit(), a.smem_bytes(),
                          static_cast<double>(a.all_blocks()), a.blocks};
  }
  if (algorithm == "direct_fma_sm80") {  // without a bound on blocks: what it needs is a guess
    const DirectFmaSm80 a = direct_fma_sm80_kernel(problem, config);
    return LaunchForecast{a.threads(),
                          registers_for(a.threads(), 1),
                          a.smem_bytes(),
                          static_cast<double>(a.blocks()),
                          resident(target_of(device), a.threads(), a.registers(), a.smem_bytes()),
                          true};
  }
  return std::nullopt;
}

std::optional<double> forecast_us(std::string_view algorithm, const Conv2dProblem& problem,
                                  const DeviceInfo& device, const Config& config) {
  const auto work = tile_work(algorithm, problem, config);
  const auto launch = forecast_launch(algorithm, problem, device, config);
  if (!work || !launch) return std::nullopt;
  return estimate_time(target_of(device), *work, {launch->threads, 0, launch->blocks, launch->resident}).us;
}

}  // namespace convtune::cuda
