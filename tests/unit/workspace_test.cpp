// Memory of runs by stream, over a driver that is none: whose work could meet in one block has different
// ones, and what nobody can use any more is freed.
#include "cuda/device/workspace.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "cuda/device/driver.h"
#include "driver_stand_in.h"

namespace convtune::workspace_test {
namespace {

using cuda::Workspace;

constexpr std::size_t kBytes = 1000;

Stream stream(std::uintptr_t handle) {
  return reinterpret_cast<Stream>(handle);  // NOLINT(performance-no-int-to-ptr)
}

void* memory_of(Workspace& workspace, std::uintptr_t handle, std::size_t bytes = kBytes) {
  const cuda::DeviceScope scope(0);
  return workspace.at_least(bytes, stream(handle)).memory;
}

TEST(GpuWorkspace, IsSharedByThePlansOfAStream) {
  stand_in_stream(100, 7), stand_in_stream(200, 8);
  Workspace one(0), other(0);
  void* const memory = memory_of(one, 100);
  EXPECT_EQ(memory_of(other, 100, kBytes / 2), memory);
  EXPECT_EQ(memory_of(one, 100), memory);
  EXPECT_NE(memory_of(other, 200), memory);
  EXPECT_EQ(memory_of(other, 100, 0), nullptr);
  EXPECT_EQ(stand_in_blocks(), 2);
}

TEST(GpuWorkspace, OfEveryThreadsOwnStreamIsTheThreads) {
  constexpr std::uintptr_t kPerThread =
      2;  // one handle for all, and an id that the stand-in keeps equal, too
  const std::int64_t before = stand_in_blocks();
  Workspace one(0), other(0);
  void* const memory = memory_of(one, kPerThread);
  EXPECT_EQ(memory_of(other, kPerThread), memory);
  std::thread([&] {
    void* const theirs = memory_of(one, kPerThread);
    EXPECT_NE(theirs, memory);
    EXPECT_EQ(memory_of(other, kPerThread), theirs);
  }).join();
  EXPECT_EQ(memory_of(one, kPerThread), memory);
  for (int i = 0; i < 200; ++i) std::thread([&] { memory_of(one, kPerThread); }).join();
  EXPECT_LE(stand_in_blocks() - before, 3) << "of threads that have ended";
}

TEST(GpuWorkspace, OfAStreamThatHasEndedIsNotTheNextOnesOfThatHandle) {
  const std::int64_t before = stand_in_blocks();
  Workspace one(0), other(0);
  stand_in_stream(300, 30);
  void* const memory = memory_of(one, 300);
  ASSERT_EQ(memory_of(other, 300), memory);  // its work may still wait
  stand_in_stream(300, 31);
  EXPECT_NE(memory_of(one, 300), memory);
  EXPECT_EQ(memory_of(other, 300), memory_of(one, 300));
  for (std::uint64_t id = 32; id < 232; ++id) {
    stand_in_stream(300, id);
    memory_of(one, 300), memory_of(other, 300);
  }
  EXPECT_EQ(stand_in_blocks() - before, 1);
}

TEST(GpuWorkspace, OfAGraphIsFreedWithTheGraph) {
  stand_in_stream(400, 40);
  const std::int64_t before = stand_in_blocks();
  Workspace one(0), other(0);
  void* const memory = memory_of(one, 400);
  std::vector<void*> kept;
  for (int i = 0; i < 200; ++i) {
    stand_in_begin_capture(400);
    void* const of_graph = memory_of(one, 400);
    EXPECT_NE(of_graph, memory);
    EXPECT_EQ(memory_of(one, 400), of_graph) << "one after the other";
    EXPECT_NE(memory_of(other, 400), of_graph);
    void* const graph = stand_in_end_capture(400);
    if (i % 50 == 0)
      kept.push_back(graph);
    else
      stand_in_destroy_graph(graph);
  }
  EXPECT_EQ(memory_of(one, 400), memory);
  EXPECT_EQ(stand_in_blocks() - before, 1 + 2 * 4);
  for (void* const graph : kept) stand_in_destroy_graph(graph);
  memory_of(one, 400);
  EXPECT_EQ(stand_in_blocks() - before, 1);
}

TEST(GpuWorkspace, OfAGraphOutlivesItsPlan) {
  stand_in_stream(500, 50);
  const std::int64_t before = stand_in_blocks();
  void* graph = nullptr;
  {
    Workspace one(0);
    stand_in_begin_capture(500);
    memory_of(one, 500);
    graph = stand_in_end_capture(500);
  }
  EXPECT_EQ(stand_in_blocks() - before, 1);
  stand_in_destroy_graph(graph);
  Workspace other(0);
  memory_of(other, 500);
  EXPECT_EQ(stand_in_blocks() - before, 1);
}

TEST(GpuWorkspace, OfAGraphThatDoesNotTakeItIsThePlans) {
  stand_in_stream(600, 60);
  const std::int64_t before = stand_in_blocks();
  {
    Workspace one(0);
    stand_in_takes_objects = false;
    stand_in_begin_capture(600);
    void* const memory = memory_of(one, 600);
    EXPECT_EQ(memory_of(one, 600), memory);
    stand_in_destroy_graph(stand_in_end_capture(600));
    stand_in_takes_objects = true;
    EXPECT_NE(memory_of(one, 600), memory);
    EXPECT_EQ(stand_in_blocks() - before, 2);
  }
  EXPECT_EQ(stand_in_blocks(), before);
}

}  // namespace
}  // namespace convtune::workspace_test
