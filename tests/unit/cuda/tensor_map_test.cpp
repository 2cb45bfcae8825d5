// Tensor maps that are kept from run to run, with a driver that is made here.
#include "cuda/launch/tensor_map.h"

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <thread>
#include <vector>

namespace convtune::cuda::tensor_map_test {
namespace {

std::array<char, 64> memory;

// A map that says what it is of.
TensorMap map_of(const void* data, const TensorMapLayout& layout) {
  return {{reinterpret_cast<std::uintptr_t>(data), layout.extents.front()}};
}
TensorMapGroup group_of(std::vector<std::uint64_t> extents) {
  TensorMapGroup group;
  for (const std::uint64_t extent : extents) group.maps.push_back({.extents = {extent}});
  return group;
}
bool is_of(const TensorMap& map, const void* data, std::uint64_t extent) {
  return map.opaque == map_of(data, {.extents = {extent}}).opaque;
}

TEST(MadeTensorMaps, AreMadeWhereATensorHasMoved) {
  int made = 0;
  MadeTensorMaps maps([&](const void* data, const TensorMapLayout& layout, TensorMap& map) {
    ++made;
    map = map_of(data, layout);
    return true;
  });
  const TensorMapGroup x = group_of({3, 5}), y = group_of({7});
  std::array<TensorMap, 2> to{};
  const auto check = [&](const void* at) {
    ASSERT_TRUE(maps.write(x, at, to.data()));
    EXPECT_TRUE(is_of(to[0], at, 3) && is_of(to[1], at, 5));
    ASSERT_TRUE(maps.write(y, at, to.data()));
    EXPECT_TRUE(is_of(to[0], at, 7) && is_of(to[1], at, 5));
  };
  for (int run = 0; run < 3; ++run)
    for (const int place : {0, 16, 32}) check(&memory[place]);
  EXPECT_EQ(made, 3 * 3);  // three maps at three places
  for (std::size_t place = 0; place < MadeTensorMaps::kMost; ++place) check(&memory[place]);
  made = 0;
  check(&memory[MadeTensorMaps::kMost - 1]);
  EXPECT_EQ(made, 0);
  check(&memory[0]);  // long ago
  EXPECT_EQ(made, 3);
}

TEST(MadeTensorMaps, WhatCouldNotBeMadeIsNotKept) {
  bool can = false;
  MadeTensorMaps maps([&](const void* data, const TensorMapLayout& layout, TensorMap& map) {
    if (layout.extents.front() == 9) throw std::runtime_error("9");
    map = map_of(data, layout);
    return can || layout.extents.front() == 3;
  });
  const TensorMapGroup group = group_of({3, 5}), bad = group_of({3, 9});
  std::array<TensorMap, 2> to{};
  EXPECT_FALSE(maps.write(group, memory.data(), to.data()));
  EXPECT_FALSE(maps.write(group, memory.data(), to.data()));
  can = true;
  EXPECT_TRUE(maps.write(group, memory.data(), to.data()));
  EXPECT_TRUE(is_of(to[1], memory.data(), 5));
  for (int i = 0; i < 2; ++i) EXPECT_THROW(maps.write(bad, memory.data(), to.data()), std::runtime_error);
}

TEST(MadeTensorMaps, ServeThreads) {
  MadeTensorMaps maps([](const void* data, const TensorMapLayout& layout, TensorMap& map) {
    map = map_of(data, layout);
    return true;
  });
  const TensorMapGroup group = group_of({3, 5});
  std::vector<std::thread> threads;
  std::array<bool, 4> right{};
  for (std::size_t t = 0; t < right.size(); ++t)
    threads.emplace_back([&, t] {
      bool all = true;
      for (std::size_t i = 0; i < 2000; ++i) {
        const void* const at = &memory[(i * (t + 1)) % memory.size()];
        std::array<TensorMap, 2> to{};
        all = all && maps.write(group, at, to.data()) && is_of(to[0], at, 3) && is_of(to[1], at, 5);
      }
      right[t] = all;
    });
  for (std::thread& thread : threads) thread.join();
  for (const bool one : right) EXPECT_TRUE(one);
}

}  // namespace
}  // namespace convtune::cuda::tensor_map_test
