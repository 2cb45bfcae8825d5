// The direct convolution of bf16 in pairs of products.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/direct/direct_candidates.h"
#include "cpu/algorithms/direct/direct_geometry.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_kernels.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "measure/testbed.h"
#include "problem/config_fields.h"

namespace convtune::direct_pairs_test {
namespace {

TEST(DirectGeometry, PairsOfBf16HoldEveryWeightOnce) {
  for (const char* text : {"mb1ic3ih16oc4kh3ph1", "mb1ic4ih16oc4kh3ph1", "g2mb1ic2ih16oc4kh5ph2",
                           "mb1ic3ih16oc4kh7sh2ph3", "mb1ic3ih32oc4kh11sh4ph2", "mb1ic2ih32oc4kh16sh16"}) {
    ConvProblem problem = parse_problem(text);
    problem.dtype = DType::bf16;
    const cpu::DirectGeometry g(problem, {}, 16);
    ASSERT_EQ(std::ssize(g.tap_weights), g.taps) << text;
    ASSERT_EQ(std::ssize(g.tap_offsets), g.taps) << text;
    std::vector<int> seen(static_cast<std::size_t>(problem.weight_elements() / problem.k));
    for (std::int64_t t = 0; t < g.taps; ++t) {
      const auto [lower, upper] = g.tap_weights[static_cast<std::size_t>(t)];
      ++seen.at(static_cast<std::size_t>(lower));
      EXPECT_EQ(upper >= 0, t < g.whole_taps) << text;
      if (upper >= 0) ++seen.at(static_cast<std::size_t>(upper));
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), std::ssize(seen)) << text;
  }
}

TEST(Direct, EveryTileOfPairsOfBf16) {
  if (!cpu::multiplies_bf16()) GTEST_SKIP() << "this processor has no avx512_bf16";
  const DeviceInfo& info = cpu::backend().info();
  int checked = 0;
  for (const cpu::TileShape& tile : cpu::direct_kernels(512)->bf16_tiles)
    for (const char* text :
         {"mb2ic3ih17iw53oc19kh3ph1", "mb2ic1ih28oc5kh5ph2", "mb1ic4ih9iw70oc18kh3ph1 act=relu",
          "mb2ic3ih37iw45oc7kh7sh2ph3", "mb1ic3ih33iw31oc9kh3sh2ph1 pad_right=2",
          "mb1ic3ih64iw61oc6kh11sh4ph2", "mb2ic3ih32oc7kh4sh4", "mb1ic2ih64oc5kh16sh16",
          "g2mb1ic10ih9iw37oc6kh4ph1 act=clip:-3:5", "mb1ic3ih12iw40oc4kh2kw1sh1sw2", "mb1ic5ih11oc3kh1"}) {
      ConvProblem problem = parse_problem(text);
      problem.dtype = DType::bf16;
      const std::uint64_t draw = random_bits(12, static_cast<std::uint64_t>(checked++));
      cpu::DirectConfig config{512, tile.rows, tile.vectors};
      config.rows = 1 + static_cast<int>(draw % 5);
      config.cols = draw / 8 % 2 == 0 ? 0 : 5 + static_cast<int>(draw / 16 % 30);
      config.filters = draw / 16384 % 2 == 0 ? 0 : tile.rows;
      config.flat = static_cast<int>(draw / 65536 % 2);
      config.stream = config.flat ? 0 : static_cast<int>(draw / 131072 % 2);
      ASSERT_TRUE(cpu::direct().accepts(problem, info, to_config(config))) << text;
      Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
      EXPECT_EQ(bed.check(*cpu::direct().build(problem, info, to_config(config))).failure, "")
          << to_string(problem) << " with " << to_string(to_config(config));
    }
  EXPECT_GT(checked, 100);
}

}  // namespace
}  // namespace convtune::direct_pairs_test
