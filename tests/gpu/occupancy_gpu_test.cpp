// The occupancy calculator (src/target) against the driver's own, over kernels of many register counts and
// the kernels of real candidates; and the table's limits against what a device says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <set>
#include <thread>

#include "convtune/cases.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/compile/compile_all.h"
#include "cuda/cudnn/cudnn.h"
#include "cuda/device/driver.h"
#include "cuda/launch/kernel.h"
#include "cuda/launch/kernel_algorithm.h"
#include "model/target_of.h"
#include "plan/algorithms.h"

namespace convtune::cuda::occupancy_gpu_test {
namespace {

// Keeps kValues numbers in registers at once, and so many bytes of static shared memory.
const char kSource[] = R"(
template <int kValues, int kStaticBytes>
__global__ void keep(float* y) {
  __shared__ char staged[kStaticBytes + 1];
  float values[kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[i] = y[i * 4096 + threadIdx.x];
  if (kStaticBytes > 0) staged[(threadIdx.x * 37) % (kStaticBytes + 1)] = static_cast<char>(values[0]);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kValues; ++i) y[i * 4096 + threadIdx.x + 1] = values[kValues - 1 - i];
  if (kStaticBytes > 0) y[threadIdx.x] = staged[threadIdx.x % (kStaticBytes + 1)];
}
)";

// An algorithm may compile another kernel where it does not like what the first has become: then that one is
// launched, which the first job's module does not hold.
CompiledModule with_kernel(const CompiledModule& module, CompileJob job, const std::string& kernel) {
  for (const KernelResources& one : module.kernels)
    if (one.kernel == kernel) return module;
  job.kernels = {kernel};
  return compile(job);
}

class OccupancyGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::devices().empty()) GTEST_SKIP() << "no NVIDIA GPU: " << describe_driver();
    device_ = cuda::devices().front();
    target_ = device_target(device_.device);
  }

  // One combination; where the driver refuses the question no block fits.
  void compare(const Kernel& kernel, int threads, std::int64_t dynamic_bytes) {
    const KernelResources& needs = kernel.resources();
    const std::int64_t smem = needs.static_smem_bytes + dynamic_bytes;
    const Occupancy ours = occupancy(target_, {threads, needs.registers, smem});
    int driver = 0;
    try {
      driver =
          kernel.blocks_per_unit(static_cast<unsigned>(threads), static_cast<std::size_t>(dynamic_bytes));
    } catch (const Error&) {
      ++refused_;
    }
    ++compared_;
    fitting_ += driver > 0;
    registers_.insert(needs.registers);
    limiters_[static_cast<std::size_t>(ours.limiter)] += driver > 0;
    EXPECT_EQ(ours.blocks, driver) << fmt::format(
        "{}: {} threads, {} registers, {} + {} bytes, limited by {}", needs.kernel, threads, needs.registers,
        needs.static_smem_bytes, dynamic_bytes, to_string(ours.limiter));
  }
  void report() const {
    fmt::print(
        "{} compared on {}: {} with a block that fits ({} by warps, {} by registers, {} by shared "
        "memory, {} by block slots), {} refused; {} register counts\n",
        compared_, device_.name, fitting_, limiters_[0], limiters_[1], limiters_[2], limiters_[3], refused_,
        registers_.size());
  }

  DeviceInfo device_;
  Target target_;
  int compared_ = 0, fitting_ = 0, refused_ = 0;
  std::array<int, 4> limiters_{};
  std::set<int> registers_;
};

TEST_F(OccupancyGpu, AgreesWithTheDriver) {
  CompileJob job{kSource, {}, {}, device_.isa, {}};
  for (const int bytes : {0, 999, 40'000})
    for (const int values : {1, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 152, 176, 200, 224, 240})
      if (bytes == 0 || values % 24 == 8) job.kernels.push_back(fmt::format("keep<{}, {}>", values, bytes));
  const CompiledModule module = compile(job);
  for (const std::string& name : job.kernels) {
    const std::int64_t most = target_.smem_per_block - module.kernel(name).static_smem_bytes;
    const Kernel kernel(device_.device.index, module, name,
                        {.dynamic_smem_bytes = static_cast<std::size_t>(most)});
    for (const int threads :
         {1, 32, 33, 64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 448, 512, 576, 640, 768, 896, 1024})
      for (const std::int64_t bytes : {0, 1, 100, 1000, 3000, 7168, 9000, 16'000, 24'000, 33'000, 48'000,
                                       57'000, 75'000, 99'000, 115'000, 150'000, 200'000, 232'448})
        if (bytes <= most) compare(kernel, threads, bytes);
  }
  report();
  EXPECT_GE(compared_, 1000);
  EXPECT_GE(registers_.size(), 12u);
}

TEST_F(OccupancyGpu, AgreesForRealCandidates) {
  constexpr std::size_t kOfEach = 3;
  std::vector<LaunchPlan> chosen;
  std::vector<CompileJob> jobs;
  for (const char* name : {"alexnet_conv1", "resnet_stem", "mobilenet_stem", "convnext_patchify",
                           "mobilenet_dw_3x3_144", "resnet_3x3_128"})
    for (const Algorithm* algorithm : algorithms(Device::Kind::cuda)) {
      ConvProblem problem = find_problem(name);
      if (problem.precision == Precision::automatic) problem.precision = Precision::tf32;
      if (algorithm->vendor() || algorithm->reference() || !algorithm->supports(problem, device_)) continue;
      const std::vector<Config> configs = algorithm->candidates(problem, device_);
      for (std::size_t i = 0; i < std::min(kOfEach, configs.size()); ++i) {
        chosen.push_back(kernel_algorithm(*algorithm)->plan(problem, device_, configs[i]));
        jobs.push_back(compile_job(chosen.back(), chosen.back().configs.front()));
      }
    }
  const auto compiled = compile_all(jobs, static_cast<int>(std::thread::hardware_concurrency()), 60);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    ASSERT_TRUE(compiled[i].module) << compiled[i].failure;
    const KernelLaunch& launch = chosen[i].kernel_launch();
    const std::string& name = jobs[i].kernels[LaunchPlan::kRun];
    const CompiledModule module = with_kernel(*compiled[i].module, jobs[i], name);
    const Kernel kernel(device_.device.index, module, name,
                        {.dynamic_smem_bytes = launch.dynamic_smem_bytes});
    compare(kernel, static_cast<int>(launch.block.x), static_cast<std::int64_t>(launch.dynamic_smem_bytes));
  }
  report();
  EXPECT_GE(compared_, 20);
  EXPECT_EQ(fitting_, compared_) << "a candidate that does not fit";
}

// The table's rows with this device's capability must say what the capability decides.
TEST_F(OccupancyGpu, TheTablesLimitsAreTheDevices) {
  for (const Target& known : known_targets()) {
    if (known.capability != target_.capability) continue;
    EXPECT_EQ(known.registers_per_multiprocessor, target_.registers_per_multiprocessor) << known.name;
    EXPECT_EQ(known.threads_per_block, target_.threads_per_block) << known.name;
    EXPECT_EQ(known.threads_per_multiprocessor, target_.threads_per_multiprocessor) << known.name;
    EXPECT_EQ(known.blocks_per_multiprocessor, target_.blocks_per_multiprocessor) << known.name;
    EXPECT_EQ(known.smem_per_multiprocessor, target_.smem_per_multiprocessor) << known.name;
    EXPECT_EQ(known.smem_per_block, target_.smem_per_block) << known.name;
    EXPECT_EQ(known.smem_reserved, target_.smem_reserved) << known.name;
  }
  std::cout << to_json(target_);
}

}  // namespace
}  // namespace convtune::cuda::occupancy_gpu_test
