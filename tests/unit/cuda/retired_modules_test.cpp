// Modules are unloaded many at once, after the device was waited for, and never without.
#include "cuda/device/retired_modules.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <thread>
#include <vector>

namespace convtune::cuda::retired_modules_test {
namespace {

// Modules by number: places in memory that nobody reads.
char places[5000];
CUmodule module(std::size_t number) {
  return reinterpret_cast<CUmodule>(&places[number]);
}
std::size_t number_of(CUmodule of) {
  return static_cast<std::size_t>(reinterpret_cast<char*>(of) - places);
}

// A device that notes what it is asked for: 0 is a wait, else the module that is unloaded.
struct Device {
  bool idle = true;
  std::vector<std::size_t> asked;

  void let_go_of(RetiredModules& modules) {
    modules.unload_some(
        [this] {
          asked.push_back(0);
          return idle;
        },
        [this](CUmodule gone) { asked.push_back(number_of(gone)); });
  }
};

using Asked = std::vector<std::size_t>;

TEST(RetiredModules, AFewStayAndNothingWaits) {
  RetiredModules modules(2);
  Device device;
  device.let_go_of(modules);
  modules.add(module(1)), modules.add(module(2));
  device.let_go_of(modules);
  EXPECT_EQ(device.asked, Asked{});
}

TEST(RetiredModules, ManyGoTogetherAfterOneWait) {
  RetiredModules modules(2);
  Device device;
  for (const std::size_t number : {1, 2, 3}) modules.add(module(number));
  device.let_go_of(modules);
  EXPECT_EQ(device.asked, (Asked{0, 1, 2, 3}));
  device.let_go_of(modules);
  EXPECT_EQ(device.asked.size(), 4u) << "they went twice";
}

TEST(RetiredModules, AllStayWhereTheDeviceCannotBeWaitedFor) {
  RetiredModules modules(1);
  Device device{.idle = false, .asked = {}};
  modules.add(module(1)), modules.add(module(2));
  device.let_go_of(modules);
  EXPECT_EQ(device.asked, (Asked{0}));
  device.idle = true;
  device.let_go_of(modules);
  EXPECT_EQ(device.asked, (Asked{0, 0, 1, 2}));
}

TEST(RetiredModules, WhatComesWhileItWaitsStays) {
  RetiredModules modules(0);
  modules.add(module(1));
  Asked gone;
  const auto unload = [&](CUmodule one) { gone.push_back(number_of(one)); };
  modules.unload_some(
      [&] {
        modules.add(module(2));  // its work may have been queued after the wait began
        return true;
      },
      unload);
  EXPECT_EQ(gone, (Asked{1}));
  modules.unload_some([] { return true; }, unload);
  EXPECT_EQ(gone, (Asked{1, 2}));
}

TEST(RetiredModules, ManyThreadsLoseNone) {
  RetiredModules modules(3);
  std::vector<Asked> gone(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < gone.size(); ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 1; i <= 500; ++i) {
        modules.add(module(1000 * t + i));
        modules.unload_some([] { return true; }, [&](CUmodule one) { gone[t].push_back(number_of(one)); });
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::size_t count = 0;
  for (const Asked& of : gone) count += of.size();
  EXPECT_LE(2000 - count, 3u);
}

}  // namespace
}  // namespace convtune::cuda::retired_modules_test
