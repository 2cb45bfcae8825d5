// The implicit GEMM in TF32 for compute capability 9.0 on a GPU: residuals, which come while the tile before
// is under way. (What it shares with others is in kernel_gpu_test.cpp.)
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cpu/reference/oracle.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/device/driver.h"
#include "kernel_problems.h"
#include "measure/testbed.h"

namespace convtune::implicit_gemm_sm90_gpu_test {
namespace {

class ImplicitGemmSm90 : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no NVIDIA GPU: " << cuda::describe_driver();
    if (const Support support = cuda::needs_sm90(gpu().info()); !support) GTEST_SKIP() << support.reason();
  }
  Backend& gpu() { return cuda::backend({Device::Kind::cuda, 0}); }
  const Algorithm& algorithm() { return cuda::implicit_gemm_sm90(); }
};

// Configs of several tiles for a block, and of one to four parts for a warp.
const std::vector<std::string> kConfigs = {
    "consumers=2 row_blocks=2 filters=128 channels=16 stages=3 ping_pong=1 cluster=1 split=1",
    "consumers=2 row_blocks=2 filters=64 channels=16 stages=4 ping_pong=0 cluster=2 split=1",
    "consumers=2 row_blocks=1 filters=192 channels=16 stages=4 ping_pong=0 cluster=1 split=1",
    "consumers=2 row_blocks=1 filters=128 channels=16 stages=2 ping_pong=1 cluster=2 split=1",
    "consumers=1 row_blocks=2 filters=96 channels=32 stages=3 ping_pong=0 cluster=1 split=1",
    "consumers=1 row_blocks=1 filters=24 channels=16 stages=4 ping_pong=0 cluster=1 split=1",
    "consumers=1 row_blocks=1 filters=256 channels=16 stages=4 ping_pong=0 cluster=1 split=2"};

TEST_F(ImplicitGemmSm90, AddsResidualsTileAfterTile) {
  for (const char* text :
       {"mb64ic32ih28oc256kh1 residual=1 act=relu", "mb250ic24ih7oc200kh1 residual=1 act=silu bias=0",
        "mb60ic40ih27oc136kh1sh2 residual=1", "mb61ic32ih18oc250kh3ph1 residual=1 act=relu"}) {
    const ConvProblem problem = tf32(text);
    Testbed bed(problem, gpu(), TestData::integer, 1, 300'000);
    for (const std::string& config : kConfigs) {
      const auto executable = algorithm().build(problem, gpu().info(), parse_config(config));
      for (int turn = 0; turn < 2; ++turn)  // forwards and backwards
        EXPECT_EQ(bed.check(*executable).failure, "") << text << " with " << config;
    }
  }
}

// A tile with a NaN is computed in another way, between tiles without.
TEST_F(ImplicitGemmSm90, AddsResidualsBesideNan) {
  const ConvProblem problem = tf32("mb32ic24ih28oc96kh1 residual=1 act=relu");
  const auto drawn = [](std::int64_t count, std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(static_cast<int>(random_bits(seed, i) % 7) - 3);
    return values;
  };
  std::vector<float> x = drawn(problem.input_elements(), 1);
  const std::vector<float> w = drawn(problem.weight_elements(), 2), bias = drawn(problem.k, 3),
                           residual = drawn(problem.output_elements(), 4);
  for (std::size_t i = 1000; i < x.size(); i += 9973) x[i] = std::numeric_limits<float>::quiet_NaN();
  const auto to_device = [&](const std::vector<float>& values) {
    auto memory = gpu().allocate(4 * values.size());
    gpu().upload(memory.get(), values.data(), 4 * values.size());
    return memory;
  };
  const cpu::HostValues values{
      .x = x.data(), .w = w.data(), .bias = bias.data(), .residual = residual.data()};
  std::vector<float> y(residual.size());
  const auto x_there = to_device(x), w_there = to_device(w), bias_there = to_device(bias),
             residual_there = to_device(residual), y_there = to_device(y);
  for (const std::string& config : kConfigs) {
    const auto executable = algorithm().build(problem, gpu().info(), parse_config(config));
    const auto packed = gpu().allocate(executable->packed_bytes());
    executable->pack(w_there.get(), bias_there.get(), packed.get(), nullptr);
    executable->run({.x = x_there.get(), .residual = residual_there.get(), .y = y_there.get()}, packed.get(),
                    nullptr);
    gpu().synchronize(nullptr);
    gpu().download(y.data(), y_there.get(), 4 * y.size());
    for (std::int64_t i = 0; i < problem.output_elements(); ++i) {
      const float got = y[static_cast<std::size_t>(i)];
      const double want = cpu::oracle(problem, values, i).value;
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : want == got)
          << cpu::name_of_element(problem, i) << " is " << got << ", not " << want << " with " << config;
    }
  }
}

}  // namespace
}  // namespace convtune::implicit_gemm_sm90_gpu_test
