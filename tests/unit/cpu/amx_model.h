// A model of AMX's tiles, by which its algorithm is tested on processors that have none.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/fork_gate.h"
#include "cpu/algorithms/amx/amx_candidates.h"
#include "cpu/algorithms/amx/amx_executable.h"
#include "cpu/algorithms/amx/amx_kernels.h"
#include "cpu/algorithms/amx/amx_multiply.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/launch/cpu_algorithm.h"

namespace convtune {

// The eight tiles as the processor's manual describes them, in memory. Products of rows and columns that the
// configuration leaves out are not made, and what lies there is not touched.
struct AmxModelTiles {
  struct State {
    bool configured = false;
    std::array<int, 8> rows, bytes;
    std::array<std::array<std::array<unsigned char, 64>, 16>, 8> data;
  };
  static State& state() {
    thread_local State all;
    return all;
  }
  static void configure(int tail) {
    State& s = state();
    EXPECT_FALSE(s.configured);
    s.configured = true;
    s.rows.fill(16), s.bytes.fill(64);
    if (tail > 0) s.bytes[cpu::kAmxTailA] = 2 * tail, s.rows[cpu::kAmxTailB] = tail / 2;
  }
  static void release() {
    EXPECT_TRUE(state().configured);
    state().configured = false;
  }
  template <int t>
  static void zero() {
    for (auto& row : state().data[t]) row.fill(0);
  }
  template <int t>
  static void load(const void* from, std::int64_t row_bytes) {
    State& s = state();
    zero<t>();
    for (int row = 0; row < s.rows[t]; ++row)
      std::memcpy(s.data[t][static_cast<std::size_t>(row)].data(),
                  static_cast<const char*>(from) + row * row_bytes, static_cast<std::size_t>(s.bytes[t]));
  }
  template <int t>
  static void store(void* to, std::int64_t row_bytes) {
    State& s = state();
    for (int row = 0; row < s.rows[t]; ++row)
      std::memcpy(static_cast<char*>(to) + row * row_bytes, s.data[t][static_cast<std::size_t>(row)].data(),
                  static_cast<std::size_t>(s.bytes[t]));
  }
  template <int sums, int a, int b>
  static void multiply_add() {
    State& s = state();
    ASSERT_TRUE(s.configured);
    ASSERT_EQ(s.bytes[a], 4 * s.rows[b]);
    for (std::size_t row = 0; row < 16; ++row) {
      auto sum = std::bit_cast<std::array<float, 16>>(s.data[sums][row]);
      const auto x = std::bit_cast<Words>(s.data[a][row]);
      for (std::size_t word = 0; word < static_cast<std::size_t>(s.rows[b]); ++word) {
        const auto w = std::bit_cast<Words>(s.data[b][word]);
        for (std::size_t col = 0; col < 16; ++col)
          sum[col] = (sum[col] + lower(x[word]) * lower(w[col])) + upper(x[word]) * upper(w[col]);
      }
      s.data[sums][row] = std::bit_cast<std::array<unsigned char, 64>>(sum);
    }
  }
  // Two bf16, each the upper half of a float.
  using Words = std::array<std::uint32_t, 16>;
  static float lower(std::uint32_t word) { return std::bit_cast<float>(word << 16); }
  static float upper(std::uint32_t word) { return std::bit_cast<float>(word & 0xFFFF0000U); }
};

// The processor's tiles, or the model of them where it has none.
inline const cpu::AmxKernels& amx_kernels_or_model() {
  static constexpr cpu::AmxKernels model = cpu::amx_kernels_of<AmxModelTiles>();
  return cpu::amx_missing().empty() ? cpu::amx_kernels() : model;
}

inline const Algorithm& amx_or_model() {
  if (cpu::amx_missing().empty()) return cpu::amx();
  return once([] {
    cpu::CpuAlgorithmParts<cpu::AmxConfig> parts = cpu::amx_parts();
    parts.supports = cpu::amx_takes;
    parts.executable = [](const ConvProblem& problem, const DeviceInfo& device,
                          const cpu::AmxConfig& config) {
      return cpu::amx_executable(problem, config, device.units, cpu::widest_vector_bits(device),
                                 amx_kernels_or_model());
    };
    return cpu::CpuAlgorithmOf<cpu::AmxConfig>(parts);
  });
}

}  // namespace convtune
