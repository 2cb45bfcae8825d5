// The model of a GPU's time: its limits by hand, its laws over random work; and that what our kernels are
// counted to do is at least what the problem asks for.
#include "model/time_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cuda/launch/kernel_algorithm.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"

namespace convtune::time_model_test {
namespace {

// Uniform in [low, high), the same in every run.
double random(std::uint64_t seed, std::uint64_t index, double low, double high) {
  return low + (high - low) * static_cast<double>(random_bits(seed, index) >> 11) / (1ULL << 53);
}

TileWork random_work(std::uint64_t i) {
  TileWork work;
  work.tiles = std::floor(random(1, i, 1, 5000));
  work.load.instructions = random(2, i, 10, 3000), work.load.l2_bytes = random(3, i, 100, 50'000);
  work.multiply.products = random(4, i, 0, 5000), work.multiply.instructions = random(5, i, 10, 20'000);
  work.multiply.wavefronts = random(6, i, 10, 20'000), work.multiply.waits = random(7, i, 0, 20);
  work.store.instructions = random(8, i, 10, 4000);
  work.input_bytes = random(9, i, 1e3, 1e8), work.stored_bytes = random(10, i, 100, 100'000);
  work.pieces = random(11, i, 1, 500), work.in_flight_bytes = random(12, i, 1e3, 1e5);
  return work;
}
BlockShape random_block(std::uint64_t i) {
  return {32 * static_cast<int>(random(13, i, 1, 17)), 0, 0, static_cast<int>(random(14, i, 1, 9))};
}

TEST(TimeModel, MemoryAlone) {
  const Target h100 = find_target("h100");
  TileWork work;
  work.tiles = 1e4, work.in_flight_bytes = 1e5;
  work.input_bytes = 1e8, work.stored_bytes = 2e4;
  const TimeEstimate time = estimate_time(h100, work, {256, 0, 1e4, 8});
  EXPECT_NEAR(time.us, 3 + 300e6 / (0.9 * 3352e3), 2);
  EXPECT_EQ(time.bound, "memory");
}

// 1000 tiles a multiprocessor, in blocks of which enough are there to hide what each waits for.
TEST(TimeModel, TensorCoresAlone) {
  const Target a100 = find_target("a100");
  TileWork work;
  work.tiles = 1000.0 * a100.multiprocessors, work.in_flight_bytes = 1e5;
  work.multiply.products = 20'000;
  const TimeEstimate time = estimate_time(a100, work, {256, 0, work.tiles, 8});
  const double peak_us = 2048 * work.multiply.products * work.tiles / (1e6 * a100.tf32_tflops);
  EXPECT_NEAR(time.us / peak_us, 1, 0.01);
  EXPECT_EQ(time.bound, "tensor cores");
}

TEST(TimeModel, OneBlockMoreThanFitsIsATail) {
  const Target h100 = find_target("h100");
  TileWork work;
  work.in_flight_bytes = 1e5;
  work.multiply.products = 10'000;
  const auto of_tiles = [&](double tiles) {
    work.tiles = tiles;
    return estimate_time(h100, work, {256, 0, tiles, 2}).us;
  };
  EXPECT_EQ(of_tiles(265), of_tiles(2 * 132 + 132));
  EXPECT_GT(of_tiles(265), 1.3 * of_tiles(264));
  EXPECT_EQ(of_tiles(1), of_tiles(132));
}

// Stores beside products take no time of their own; else all blocks store at once, and memory is slower than
// the way to L2. Clusters start later.
TEST(TimeModel, StoresOfBlocksThatAreAlone) {
  const Target h200 = find_target("h200");
  TileWork work;
  work.tiles = 4.0 * h200.multiprocessors, work.in_flight_bytes = 1e5;
  work.persistent = work.wgmma = work.tma = work.load_beside = true;
  work.multiply.products = 10'000, work.stored_bytes = 1e5;
  const auto us = [&] { return estimate_time(h200, work, {384, 0, 1.0 * h200.multiprocessors, 1}).us; };
  const double one_after_the_other = us();
  const double stores = work.tiles * work.stored_bytes / (0.9e3 * h200.bandwidth_gb_s);
  work.clusters = true;
  EXPECT_NEAR(us(), one_after_the_other + 0.8, 1e-9);
  work.clusters = false, work.store_beside = true;
  EXPECT_GT(one_after_the_other - us(), 0.5 * stores);
}

TEST(TimeModel, LatencyWhereNothingElseIsLong) {
  TileWork work;
  work.tiles = 1, work.in_flight_bytes = 1e5;
  work.multiply.waits = 100;
  EXPECT_EQ(estimate_time(find_target("h100"), work, {128, 0, 1, 1}).bound, "latency");
  EXPECT_GT(estimate_time(find_target("h100"), TileWork{}, {128, 0, 0, 1}).us, 0);
}

TEST(TimeModel, MoreWorkNeverTakesLess) {
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const Target& target = known_targets()[i % known_targets().size()];
    const TileWork work = random_work(i);
    const BlockShape block = random_block(i);
    const double us = estimate_time(target, work, block).us;
    ASSERT_TRUE(std::isfinite(us)) << i;
    EXPECT_GE(us, (work.input_bytes + work.tiles * work.stored_bytes) / (1e3 * target.bandwidth_gb_s)) << i;
    EXPECT_GE(us, 2048 * work.multiply.products * work.tiles / (1e6 * target.tf32_tflops)) << i;
    const auto more = [&](auto change) {
      TileWork larger = work;
      change(larger);
      return estimate_time(target, larger, block).us;
    };
    const double slack = us * (1 - 1e-9);
    EXPECT_GE(more([](TileWork& w) { w.multiply.products += 100; }), slack) << i;
    EXPECT_GE(more([](TileWork& w) { w.multiply.instructions += 100; }), slack) << i;
    EXPECT_GE(more([](TileWork& w) { w.multiply.waits += 1; }), slack) << i;
    EXPECT_GE(more([](TileWork& w) { w.store.specials += 100; }), slack) << i;
    EXPECT_GE(more([](TileWork& w) { w.load.l2_bytes += 100; }), slack) << i;
    EXPECT_GE(more([](TileWork& w) { w.stored_bytes += 100; }), slack) << i;
    EXPECT_GE(more([](TileWork& w) { w.part_sectors += 100; }), slack) << i;
    BlockShape spills = block;
    spills.spill_bytes = 64;
    EXPECT_GE(estimate_time(target, work, spills).us, slack) << i;
  }
}

// A scheduler has four lanes for special functions, and eight warps have no more than four schedulers.
TEST(TimeModel, SpecialFunctionsAlone) {
  const Target h200 = find_target("h200");
  TileWork work;
  work.tiles = 1000.0 * h200.multiprocessors, work.in_flight_bytes = 1e5;
  work.store.specials = 4000;
  const TimeEstimate time = estimate_time(h200, work, {256, 0, work.tiles, 8});
  EXPECT_NEAR(time.us * h200.clock_mhz / (1000 * 2 * work.store.specials), 1, 0.01);
  EXPECT_EQ(time.bound, "special functions");
}

// Whatever is stored while others multiply takes no time of its own for so long.
TEST(TimeModel, StoresOfConsumersBehindEachOther) {
  const Target h200 = find_target("h200");
  TileWork work;
  work.tiles = 400.0 * h200.multiprocessors, work.in_flight_bytes = 1e5;
  work.persistent = work.wgmma = work.tma = work.load_beside = true;
  work.multiply.products = 10'000, work.store.instructions = 20'000;
  const auto us = [&] { return estimate_time(h200, work, {384, 0, 1.0 * h200.multiprocessors, 1}).us; };
  const double exposed = us();
  work.stored_beside_cycles = 1000;
  EXPECT_NEAR((exposed - us()) * h200.clock_mhz / 400, 1000, 1);
  work.stored_beside_cycles = 1e6;
  const double hidden = us();
  work.store.instructions = 0;
  EXPECT_GE(hidden, us());
}

// Every kernel for half precision counts what is done to its outputs, and the residual's bytes.
TEST(TileWork, CountsEpilogues) {
  const DeviceInfo device = device_of(find_target("h200"));
  int counted = 0;
  for (ConvProblem problem : load_suite("half"))
    for (const Algorithm* algorithm : algorithms(Device::Kind::cuda)) {
      if (algorithm->vendor() || algorithm->reference() || algorithm->name() == "general_sm80" ||
          !algorithm->supports(problem, device))
        continue;
      ConvProblem full = problem;
      full.residual = true, full.activation = Activation::silu;
      for (const Config& config : algorithm->candidates(full, device)) {
        if (!algorithm->accepts(problem, device, config)) continue;
        const std::string what =
            to_string(full) + " " + std::string(algorithm->name()) + " " + to_string(config);
        const TileWork work = cuda::kernel_algorithm(*algorithm)->work(full, device, config);
        EXPECT_GE(work.tiles * 32 * (work.multiply.specials + work.store.specials),
                  1.49 * static_cast<double>(full.output_elements()))
            << what;
        EXPECT_GT(*algorithm->estimated_us(full, device, config),
                  *algorithm->estimated_us(problem, device, config))
            << what;
        ++counted;
        break;
      }
    }
  EXPECT_GT(counted, 60);
}

// Every algorithm's candidates over the suites do all the work there is.
TEST(TileWork, HoldsTheWholeProblem) {
  const DeviceInfo device = device_of(find_target("h100"));
  int counted = 0;
  for (const char* suite : {"stem", "body", "depthwise"})
    for (ConvProblem problem : load_suite(suite)) {
      if (problem.precision == Precision::automatic) problem.precision = Precision::tf32;
      for (const Algorithm* algorithm : algorithms(Device::Kind::cuda)) {
        if (algorithm->vendor() || algorithm->reference() || !algorithm->supports(problem, device)) continue;
        const std::vector<Config> configs = algorithm->candidates(problem, device);
        for (std::size_t i = 0; i < configs.size(); i += std::max<std::size_t>(configs.size() / 8, 1)) {
          const TileWork work = cuda::kernel_algorithm(*algorithm)->work(problem, device, configs[i]);
          const std::string what =
              to_string(problem) + " " + std::string(algorithm->name()) + " " + to_string(configs[i]);
          ++counted;
          const double flops =
              work.cuda_cores ? 64 * work.multiply.instructions : 2048 * work.multiply.products;
          EXPECT_GE(1.001 * work.tiles * flops, problem.flops()) << what;
          EXPECT_NEAR(work.tiles * work.stored_bytes / (4.0 * static_cast<double>(problem.output_elements())),
                      1, 0.1)
              << what;
          EXPECT_GT(work.in_flight_bytes, 0) << what;
          EXPECT_GE(work.tiles * work.load.l2_bytes, 0.2 * work.input_bytes) << what;
          EXPECT_EQ(work.wgmma, algorithm->name().ends_with("sm90")) << what;
        }
      }
    }
  EXPECT_GT(counted, 200);
}

}  // namespace
}  // namespace convtune::time_model_test
