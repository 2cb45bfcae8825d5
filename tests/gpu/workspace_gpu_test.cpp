// Memory of runs by stream, on a real driver: streams that share a handle do not share memory, and graphs
// that are recorded again leave none behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <thread>
#include <vector>

#include "convtune/convolution.h"
#include "cuda/device/memory.h"
#include "cuda/device/workspace.h"
#include "work_on_streams.h"

namespace convtune::workspace_gpu_test {
namespace {

using cuda::check, cuda::driver, cuda::CUstream, cuda::DeviceScope, cuda::Workspace, gpu::Graphs, gpu::Work;

constexpr Device kFirst{Device::Kind::cuda, 0};
constexpr unsigned kNonBlocking = 1;

// Tensors in NCHW that a kernel for NHWC converts: its runs have two steps more and memory between them.
const char* const kConverting = "mb4ic64ih56oc64kh3ph1 dtype=bf16";

Stream per_thread() {
  return reinterpret_cast<Stream>(std::uintptr_t{2});  // NOLINT(performance-no-int-to-ptr)
}

class WorkspaceOnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::devices().empty()) GTEST_SKIP() << "no GPU that can be used: " << cuda::describe_driver();
  }
  static Convolution converting() {
    return plan(parse_problem(kConverting), kFirst, "implicit_gemm_half_sm80");
  }
  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    check(driver().cuMemGetInfo(&free, &total), "asking for the free memory");
    return free;
  }
};

TEST_F(WorkspaceOnAGpu, OfEveryThreadsOwnStreamIsTheThreads) {
  const DeviceScope scope(kFirst.index);
  Workspace workspace(kFirst.index);
  void* const mine = workspace.at_least(1000, per_thread()).memory;
  void* theirs = nullptr;
  std::thread([&] {
    const DeviceScope of_thread(kFirst.index);
    theirs = workspace.at_least(1000, per_thread()).memory;
  }).join();
  EXPECT_NE(mine, theirs);
  EXPECT_EQ(workspace.at_least(1000, per_thread()).memory, mine);
}

TEST_F(WorkspaceOnAGpu, TwoThreadsRunOnTheirOwnDefaultStreams) {
  const Convolution one = converting(), other = converting();
  const Work first(one, 1), second(other, 2);
  const std::vector<float> of_first = first.answer(), of_second = second.answer();
  ASSERT_FALSE(of_first == of_second);
  for (int round = 0; round < 20; ++round) {
    first.clear(), second.clear();
    std::vector<std::thread> threads;
    for (const Work* work : {&first, &second})
      threads.emplace_back([work] {
        const DeviceScope scope(kFirst.index);
        for (int i = 0; i < 50; ++i) work->run(per_thread());
        check(driver().cuStreamSynchronize(static_cast<CUstream>(per_thread())), "waiting");
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(first.output() == of_first) << "round " << round;
    ASSERT_TRUE(second.output() == of_second) << "round " << round;
  }
}

// Streams are made and destroyed until a handle comes again, with work of the first one still queued.
TEST_F(WorkspaceOnAGpu, AHandleThatComesAgainHasOtherMemory) {
  const Convolution one = converting(), other = converting();
  const Work first(one, 1), second(other, 2);
  const std::vector<float> of_first = first.answer(), of_second = second.answer();
  const DeviceScope scope(kFirst.index);
  int again = 0;
  for (int round = 0; round < 200; ++round) {
    CUstream old = nullptr, next = nullptr;
    first.clear(), second.clear();
    check(driver().cuStreamCreate(&old, kNonBlocking), "making a stream");
    for (int i = 0; i < 20; ++i) first.run(old);
    check(driver().cuStreamDestroy(old), "destroying a stream");  // work that is queued goes on
    check(driver().cuStreamCreate(&next, kNonBlocking), "making a stream");
    again += next == old;
    for (int i = 0; i < 20; ++i) second.run(next);
    check(driver().cuCtxSynchronize(), "waiting");
    check(driver().cuStreamDestroy(next), "destroying a stream");
    ASSERT_TRUE(first.output() == of_first) << "round " << round;
    ASSERT_TRUE(second.output() == of_second) << "round " << round;
  }
  RecordProperty("handles_that_came_again", again);
  std::cout << again << " of 200 handles came again\n";
}

TEST_F(WorkspaceOnAGpu, GraphsThatAreRecordedAgainLeaveNoMemory) {
  const Convolution convolution = converting();
  const Work work(convolution, 1);
  const std::vector<float> expected = work.answer();
  const gpu::OwnStream stream(kFirst.index);
  const DeviceScope scope(kFirst.index);
  work.run(stream.get());
  check(driver().cuStreamSynchronize(stream.get()), "waiting");
  const Graphs graphs;
  std::size_t before = 0;
  constexpr int kRelaxed = 2, kWarm = 10;
  for (int round = 0; round < 200 + kWarm; ++round) {
    if (round == kWarm) before = free_bytes();
    Graphs::CUgraph graph = nullptr;
    Graphs::CUgraphExec ready = nullptr;
    check(graphs.begin(stream.get(), kRelaxed), "beginning a capture");
    work.run(stream.get());
    check(graphs.end(stream.get(), &graph), "ending a capture");
    check(graphs.instantiate(&ready, graph, 0), "making a graph ready");
    graphs.destroy(graph);  // a graph that is instantiated of it still has its memory
    work.clear();
    check(graphs.launch(ready, stream.get()), "launching a graph");
    check(driver().cuStreamSynchronize(stream.get()), "waiting");
    ASSERT_TRUE(work.output() == expected) << "round " << round;
    graphs.destroy_exec(ready);
  }
  // A few may wait for the driver to say that their graph is gone: 200 would be 640 MB.
  EXPECT_LT(before - std::min(before, free_bytes()), std::size_t{64} << 20);
}

}  // namespace
}  // namespace convtune::workspace_gpu_test
