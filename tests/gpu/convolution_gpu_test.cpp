// Convolution on a GPU through the library's face, every algorithm of the table: captured in CUDA graphs, on
// two streams at once, on two devices, the same bits in every run. And what planning and cached compiles
// take.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <thread>
#include <vector>

#include "base/statistics.h"
#include "convtune/database.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/cudnn/cudnn.h"
#include "cuda/device/driver.h"
#include "plan/algorithms.h"
#include "plan/planner.h"
#include "work_on_streams.h"

namespace convtune::convolution_gpu_test {
namespace {

using cuda::check, cuda::driver, cuda::CUresult, cuda::CUstream, cuda::DeviceScope, gpu::Graphs,
    gpu::OwnStream, gpu::Work;

// One of each kind that an algorithm may be for: few channels, many, one a group, channels last, fp32, and in
// half precision those that a kernel for channels last converts.
const char* const kProblems[] = {
    "mb3ic3ih41oc16kh5sh2ph2",
    "mb2ic32ih14oc48kh3ph1 act=relu",
    "g24mb2ic24ih20oc24kh3ph1",
    "mb2ic16ih9oc24kh3ph1 layout=nhwc",
    "mb2ic3ih30oc8kh3ph1 precision=fp32",
    "mb4ic64ih28oc64kh3ph1 dtype=bf16",
    "g32mb4ic32ih28oc32kh3ph1 dtype=f16",
    "g4mb4ic64ih28oc64kh3ph1 dtype=bf16 layout=nhwc",
    "mb1ic320ih6oc64kh3ph1 layout=nhwc dtype=bf16",
};

double milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

class ConvolutionOnAGpu : public testing::Test {
 protected:
  static constexpr Device kFirst{Device::Kind::cuda, 0};

  void SetUp() override {
    if (cuda::devices().empty()) GTEST_SKIP() << "no GPU that can be used: " << cuda::describe_driver();
    std::string name = testing::TempDir() + "convtune_gpu_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    ::setenv("CONVTUNE_DATA_DIR", name.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("CONVTUNE_DATA_DIR");
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // Every algorithm that takes one of the problems, with its first config.
  static void for_each(const std::function<void(const Convolution&)>& test) {
    for (const Algorithm* algorithm : algorithms(Device::Kind::cuda)) {
      int problems = 0;
      for (const char* line : kProblems) {
        const ConvProblem problem = parse_problem(line);
        if (!algorithm->supports(resolve_on_first(problem), device_info(kFirst))) continue;
        ++problems;
        SCOPED_TRACE(std::string(algorithm->name()) + " on " + line);
        test(plan(problem, kFirst, std::string(algorithm->name())));
      }
      std::cout << algorithm->name() << ": " << problems << " problems\n";
    }
  }
  static ConvProblem resolve_on_first(ConvProblem problem) {
    if (problem.precision == Precision::automatic)
      problem.precision = automatic_precision(problem, Precision::tf32);
    return problem;
  }

  std::filesystem::path folder_;
};

// A capture in its strictest mode fails if anything allocates, waits or asks for what cannot be captured.
TEST_F(ConvolutionOnAGpu, IsCapturedInAGraph) {
  const Graphs graphs;
  for_each([&](const Convolution& convolution) {
    const Work work(convolution, 1);
    const OwnStream stream(kFirst.index);
    const DeviceScope scope(kFirst.index);
    const std::vector<float> expected = work.answer();
    work.run(stream.get());  // the first run on a stream may make what its later ones use
    check(driver().cuStreamSynchronize(stream.get()), "waiting");

    constexpr int kGlobal = 0;
    Graphs::CUgraph graph = nullptr;
    Graphs::CUgraphExec ready = nullptr;
    check(graphs.begin(stream.get(), kGlobal), "beginning a capture");
    work.run(stream.get());
    check(graphs.end(stream.get(), &graph), "ending a capture");
    check(graphs.instantiate(&ready, graph, 0), "making a graph ready");
    const auto replayed = [&] {
      work.clear();
      for (int i = 0; i < 3; ++i) check(graphs.launch(ready, stream.get()), "launching a graph");
      check(driver().cuStreamSynchronize(stream.get()), "waiting");
      return work.output();
    };
    EXPECT_TRUE(replayed() == expected);
    work.new_input(2);
    const std::vector<float> other = replayed();
    EXPECT_FALSE(other == expected);
    EXPECT_TRUE(other == work.answer());
    graphs.destroy_exec(ready);
    graphs.destroy(graph);
  });
}

// Layers one after the other, each on the tensor that the one before it wrote and into the one that that one
// read: their kernels may overlap, and must neither read nor write too early.
TEST_F(ConvolutionOnAGpu, LayersBehindOneAnotherKeepTheirOrder) {
  for (const char* line :
       {"mb2ic64ih28oc64kh3ph1", "mb2ic64ih28oc64kh3ph1 dtype=bf16 layout=nhwc",
        "mb2ic64ih28oc64kh3ph1 dtype=bf16", "mb1ic320ih6oc320kh3ph1 layout=nhwc dtype=bf16",
        "g64mb2ic64ih28oc64kh3ph1", "g64mb2ic64ih28oc64kh7ph3 dtype=bf16 layout=nhwc",
        "g4mb2ic64ih28oc64kh3ph1 dtype=bf16 layout=nhwc", "mb2ic3ih64oc3kh3ph1"})
    for (const Algorithm* algorithm : algorithms(Device::Kind::cuda)) {
      const ConvProblem problem = parse_problem(line);
      if (!algorithm->supports(resolve_on_first(problem), device_info(kFirst))) continue;
      SCOPED_TRACE(std::string(algorithm->name()) + " on " + line);
      const Work work(plan(problem, kFirst, std::string(algorithm->name())), 1);
      const OwnStream stream(kFirst.index);
      const DeviceScope scope(kFirst.index);
      const auto outputs = [&](bool waits) {
        work.new_input(1);
        for (int layer = 0; layer < 8; ++layer) {
          work.run(stream.get(), layer % 2 == 1);
          if (waits) check(driver().cuStreamSynchronize(stream.get()), "waiting");
        }
        check(driver().cuStreamSynchronize(stream.get()), "waiting");
        return work.output();
      };
      const std::vector<float> expected = outputs(true);
      for (int round = 0; round < 20; ++round) EXPECT_TRUE(outputs(false) == expected) << "round " << round;
    }
}

TEST_F(ConvolutionOnAGpu, RunsOnTwoStreamsAtOnce) {
  for_each([&](const Convolution& convolution) {
    const Work one(convolution, 1), other(convolution, 2);
    const OwnStream first(kFirst.index), second(kFirst.index);
    const std::vector<float> expected_one = one.answer(), expected_other = other.answer();
    EXPECT_FALSE(expected_one == expected_other);
    for (int round = 0; round < 10; ++round) {
      one.clear(), other.clear();
      for (int i = 0; i < 5; ++i) one.run(first.get()), other.run(second.get());
      const DeviceScope scope(kFirst.index);
      check(driver().cuStreamSynchronize(first.get()), "waiting");
      check(driver().cuStreamSynchronize(second.get()), "waiting");
      EXPECT_TRUE(one.output() == expected_one) << "round " << round;
      EXPECT_TRUE(other.output() == expected_other) << "round " << round;
    }
  });
}

// Runs of two plans on one stream, whose steps share memory and must not mix.
TEST_F(ConvolutionOnAGpu, RunsFromTwoThreadsOnOneStream) {
  for_each([&](const Convolution& convolution) {
    const Convolution again =
        plan(convolution.problem(), kFirst, convolution.plan().algorithm, convolution.plan().config);
    const Work one(convolution, 1), other(again, 2);
    const OwnStream stream(kFirst.index);
    const std::vector<float> expected_one = one.answer(), expected_other = other.answer();
    one.clear(), other.clear();
    std::vector<std::thread> threads;
    for (const Work* work : {&one, &other})
      threads.emplace_back([&stream, work] {
        for (int i = 0; i < 200; ++i) work->run(stream.get());
      });
    for (std::thread& thread : threads) thread.join();
    const DeviceScope scope(kFirst.index);
    check(driver().cuStreamSynchronize(stream.get()), "waiting");
    EXPECT_TRUE(one.output() == expected_one);
    EXPECT_TRUE(other.output() == expected_other);
  });
}

TEST_F(ConvolutionOnAGpu, RunsOnTwoDevicesFromOneThread) {
  if (cuda::devices().size() < 2) GTEST_SKIP() << "there is one GPU only";
  const Device second = cuda::devices()[1].device;
  for_each([&](const Convolution& convolution) {
    const std::string algorithm = convolution.plan().algorithm;
    const Convolution elsewhere = plan(convolution.problem(), second, algorithm, convolution.plan().config);
    const Work one(convolution, 1), other(elsewhere, 1);
    one.clear(), other.clear();
    for (int i = 0; i < 5; ++i) one.run(), other.run();
    backend(kFirst).synchronize(nullptr);
    backend(second).synchronize(nullptr);
    EXPECT_TRUE(one.output() == other.output()) << "the same kind of device answers with other bits";
    EXPECT_TRUE(one.output() == one.answer());
  });
}

TEST_F(ConvolutionOnAGpu, GivesTheSameBitsAHundredTimes) {
  for_each([&](const Convolution& convolution) {
    const Work work(convolution, 1);
    const std::vector<float> first = work.answer();
    for (int i = 1; i < 100; ++i) ASSERT_TRUE(work.answer() == first) << "run " << i;
  });
}

// Covers what the memory of the device says before and after: runs keep nothing.
TEST_F(ConvolutionOnAGpu, RunsTakeNoMemory) {
  for_each([&](const Convolution& convolution) {
    const Work work(convolution, 1);
    work.answer();
    const DeviceScope scope(kFirst.index);
    std::size_t before = 0, after = 0, total = 0;
    check(driver().cuMemGetInfo(&before, &total), "asking for free memory");
    for (int i = 0; i < 50; ++i) work.run();
    backend(kFirst).synchronize(nullptr);
    check(driver().cuMemGetInfo(&after, &total), "asking for free memory");
    EXPECT_EQ(before, after);
  });
}

// Times are printed and not asserted: the machine may be busy. What is meant: 5 ms to plan from a record, 2
// ms for a kernel that was compiled before.
TEST_F(ConvolutionOnAGpu, PlansFromARecord) {
  for_each([&](const Convolution& convolution) {
    Record record;
    record.problem = convolution.problem();
    record.device = convolution.device().fingerprint;
    record.algorithm = convolution.plan().algorithm;
    record.config = convolution.plan().config;
    record.time_us = 100, record.mad_us = 1, record.n = 10;
    record.roofline_fraction = 0.5, record.roofline_bound = "memory";
    record.decision = "made by a test";
    record.kernel_hash = find_algorithm(Device::Kind::cuda, record.algorithm).source_hash();
    record.software = "a test", record.date = "2026-01-01T00:00:00Z";
    Database().store(record);
    std::vector<double> planning, building;
    for (int i = 0; i < 9; ++i) {
      planning.push_back(milliseconds(
          [&] { EXPECT_EQ(plan(convolution.problem(), kFirst).plan().source, PlanSource::tuned); }));
      building.push_back(milliseconds(
          [&] { plan(convolution.problem(), kFirst, record.algorithm, convolution.plan().config); }));
    }
    std::cout << record.algorithm << " " << key(record.problem) << ": planned from its record in "
              << median(planning) << " ms, built from the cache in " << median(building) << " ms\n";
  });
}

}  // namespace
}  // namespace convtune::convolution_gpu_test
