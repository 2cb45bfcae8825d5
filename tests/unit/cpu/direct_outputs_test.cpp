// Checks where the direct convolution's outputs go: wherever y begins, in any order of its lines, and nowhere
// else.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "base/random_bits.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/direct/direct_candidates.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "problem/config_fields.h"
#include "unit/cpu/real_tensors.h"

namespace convtune::direct_outputs_test {
namespace {

const DeviceInfo& info() {
  return cpu::backend().info();
}

class Packed {
 public:
  Packed(const Host& host, const cpu::DirectConfig& config)
      : host_(host),
        executable_(cpu::direct().build(host.problem, info(), to_config(config))),
        packed_(executable_->packed_bytes()) {
    executable_->pack(host.w.data(), host.bias.data(), packed_.data(), nullptr);
  }
  void run(float* y) const { executable_->run({.x = host_.x.data(), .y = y}, packed_.data(), nullptr); }

 private:
  const Host& host_;
  std::unique_ptr<Executable> executable_;
  std::vector<std::byte> packed_;
};

// Rows begin anywhere in a vector; what lies before and behind the output stays.
TEST(DirectOutputs, BeginAmidAVector) {
  int checked = 0;
  for (const char* text :
       {"mb2ic3ih16iw48oc5kh3ph1", "mb1ic3ih32iw40oc4kh3sh2ph1 act=relu", "mb2ic3ih32oc7kh4sh4"}) {
    const ConvProblem problem = parse_problem(text);
    const auto count = static_cast<std::size_t>(problem.output_elements());
    const Host host(problem);
    for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2)
      for (const int taps : {0, 9})
        for (const int flat : {0, 1})
          for (const int stream : {0, 1}) {
            const cpu::DirectConfig config{.vector_bits = bits,
                                           .channels = 4,
                                           .vectors = 3,
                                           .rows = 3,
                                           .taps = taps,
                                           .flat = flat,
                                           .stream = stream};
            if (!cpu::direct_accepts(problem, info(), config)) continue;
            ++checked;
            const Packed packed(host, config);
            std::vector<float> expected(count);
            packed.run(expected.data());
            for (const std::size_t shift : {0, 1, 4, 7, 8, 12, 15, 16}) {
              constexpr float kCanary = 12345;
              std::vector<float> y(count + 64, kCanary);
              packed.run(y.data() + shift);
              EXPECT_EQ(std::memcmp(y.data() + shift, expected.data(), count * sizeof(float)), 0)
                  << text << ' ' << to_string(to_config(config)) << " shifted by " << shift;
              y.erase(y.begin() + static_cast<std::ptrdiff_t>(shift),
                      y.begin() + static_cast<std::ptrdiff_t>(shift + count));
              EXPECT_EQ(std::count(y.begin(), y.end(), kCanary), std::ssize(y)) << text << ' ' << shift;
            }
          }
  }
  EXPECT_GE(checked, 18);
}

// Lines reach memory later and in another order: every one, once, and nothing beside them.
TEST(DirectOutputs, StaggeredAreThoseOfAnyOrder) {
  std::array<int, 3> checked{};  // by staged
  std::uint64_t draws = 0;
  for (const char* text :
       {"mb2ic3ih32iw48oc13kh3ph1 act=relu", "mb1ic3ih64oc7kh3sh2ph1", "mb1ic2ih16iw128oc26kh3ph1",
        "g2mb2ic4ih32iw16oc10kh1", "mb1ic4ih10iw258oc9kh3ph1dh1"}) {
    const ConvProblem problem = parse_problem(text);
    const auto count = static_cast<std::size_t>(problem.output_elements());
    const int before = checked[1] + checked[2];
    const Host host(problem);
    for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2)
      for (const cpu::TileShape& tile : cpu::direct_kernels(bits)->tiles)
        for (const int staged : {0, 1, 2})
          for (const int rows : {1, 3, 64}) {
            const std::uint64_t draw = random_bits(21, ++draws);
            cpu::DirectConfig config{.vector_bits = bits, .channels = tile.channels, .vectors = tile.vectors};
            config.rows = rows, config.staged = staged, config.stream = 2;
            config.cols = draw % 4 == 0 ? 16 : 0;
            config.filters = draw / 4 % 2 == 0 ? 0 : 2 * tile.channels;
            config.flat = static_cast<int>(draw / 8 % 2);
            if (!cpu::direct_accepts(problem, info(), config)) continue;
            cpu::DirectConfig plain = config;
            plain.stream = 0;
            std::vector<float> expected(count);
            Packed(host, plain).run(expected.data());
            const Packed packed(host, config);
            for (const std::size_t shift : {0, 1, 16}) {  // floats behind a line of the cache
              constexpr float kCanary = 12345;
              const std::vector<float> canaries(count + 64, kCanary);
              std::vector<float> memory = canaries;
              const auto place = reinterpret_cast<std::uintptr_t>(memory.data()) / sizeof(float) % 16;
              float* const y = memory.data() + (16 - place) % 16 + shift;
              packed.run(y);
              EXPECT_EQ(std::memcmp(y, expected.data(), count * sizeof(float)), 0)
                  << text << ' ' << to_string(to_config(config)) << " shifted by " << shift;
              std::fill_n(y, count, kCanary);
              EXPECT_EQ(memory, canaries) << text << ' ' << shift;
            }
            ++checked[static_cast<std::size_t>(staged)];
          }
    EXPECT_GT(checked[1] + checked[2], before) << text;
  }
  for (const int count : checked) EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace convtune::direct_outputs_test
