// The direct convolution: every register tile of every instruction set, and its geometry.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
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
#include "problem/random_problem.h"
#include "unit/cpu/real_tensors.h"

namespace convtune::direct_test {
namespace {

const DeviceInfo& info() {
  return cpu::backend().info();
}

std::string check(const ConvProblem& problem, const cpu::DirectConfig& config) {
  Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
  return bed.check(*cpu::direct().build(problem, info(), to_config(config))).failure;
}

TEST(DirectGeometry, PhasesOfAStridedDilatedAxis) {
  const cpu::AxisPhases axis = cpu::axis_phases(4, 4, 3);  // taps at 0, 3, 6, 9
  EXPECT_EQ(axis.phases, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(axis.tap_phase, (std::vector<std::int64_t>{0, 3, 2, 1}));
  EXPECT_EQ(axis.tap_unit, (std::vector<std::int64_t>{0, 0, 1, 2}));
  EXPECT_EQ(axis.halo, 2);
  EXPECT_EQ(cpu::axis_phases(1, 5, 1).phases.size(), 1u);  // a 1-tap filter reads one phase only
}

TEST(DirectGeometry, IssuedWorkIsNeverLessThanTheProblem) {
  for (std::uint64_t i = 0; i < 500; ++i) {
    const ConvProblem problem = random_problem(3, i);
    if (problem.n == 0) continue;
    for (const cpu::DirectConfig& config : cpu::direct_candidates(problem, info())) {
      const cpu::DirectExtents geometry(problem, config, config.vector_bits / 32);
      const int in_word = problem.dtype.x == DType::bf16 ? 2 : 1;
      EXPECT_GE(2 * in_word * geometry.issued_multiply_adds, problem.flops()) << to_string(problem);
    }
  }
}

// Rows begin at whole vectors where no register tile spans two of them, and lie side by side where one does.
TEST(DirectGeometry, RowsOfTheWindowBeginAtWholeVectors) {
  const ConvProblem problem = parse_problem("mb1ic3ih20iw21oc8kh3sh2ph1");  // 11 outputs a row
  for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2) {
    const int lanes = bits / 32;
    cpu::DirectConfig config{.vector_bits = bits, .channels = 4, .vectors = 3, .rows = 2, .flat = 0};
    const cpu::DirectExtents rows(problem, config, lanes);
    EXPECT_EQ(rows.pitch, (12 + lanes - 1) / lanes * lanes);
    EXPECT_GE(rows.plane, 3 * rows.pitch);
    config.flat = 1;
    EXPECT_EQ(cpu::DirectExtents(problem, config, lanes).pitch, 12);
  }
}

TEST(Direct, EveryTileOfEveryInstructionSetOnTheEdgeCases) {
  int checked = 0;
  for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2) {
    const cpu::DirectKernels* kernels = cpu::direct_kernels(bits);
    ASSERT_NE(kernels, nullptr) << bits;
    for (const cpu::TileShape& tile : kernels->tiles) {
      for (ConvProblem problem : load_suite("edges")) {
        if (checked % 4 == 0) problem.activation = Activation::clip, problem.alpha = -3, problem.beta = 5;
        cpu::DirectConfig config{bits, tile.rows, tile.vectors};
        const std::uint64_t draw = random_bits(11, static_cast<std::uint64_t>(checked));
        config.rows = 1 + static_cast<int>(draw % 5);
        config.cols = draw / 8 % 2 == 0 ? 0 : 5 + static_cast<int>(draw / 16 % 30);
        config.filters = draw / 16384 % 2 == 0 ? 0 : tile.rows;
        config.flat = problem.layout == Layout::nchw ? static_cast<int>(draw / 65536 % 2) : 1;
        config.stream = config.flat ? 0 : static_cast<int>(draw / 131072 % 2);
        cpu::DirectConfig shifted = config;
        shifted.staged = 2, shifted.stream = static_cast<int>(draw / 131072 % 2);
        if (draw / 262144 % 2 == 0 && cpu::direct().accepts(problem, info(), to_config(shifted)))
          config = shifted;
        EXPECT_EQ(check(problem, config), "")
            << to_string(problem) << " with " << to_string(to_config(config));
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 100);
}

// x begins or ends where memory does: what is read beside it ends the process. y begins anywhere in a line.
TEST(Direct, PlanesReadWhereTheyLieAreNotReadPast) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  int checked = 0;
  for (const char* text :
       {"mb2ic5ih8oc13kh1", "mb2ic5ih14oc13kh1 act=relu", "mb1ic3ih7oc9kh1", "mb1ic3ih1iw33oc9kh1",
        "g2mb1ic6ih9iw16oc8kh1", "mb1ic40ih20iw21oc24kh1", "mb1ic2ih4oc5kh1", "mb2ic3ih16oc5kh1"}) {
    const ConvProblem problem = parse_problem(text);
    const Host host(problem);
    constexpr std::size_t kMostShift = 16;
    std::vector<float> y(host.residual.size() + kMostShift);
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(problem.input_elements());
    const std::size_t room = (bytes / page + 1) * page;
    void* const mapped =
        mmap(nullptr, room + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    char* const memory = static_cast<char*>(mapped) + page;
    ASSERT_EQ(mprotect(mapped, page, PROT_NONE), 0);
    ASSERT_EQ(mprotect(memory + room, page, PROT_NONE), 0);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < problem.output_elements(); ++i) expected.push_back(host.expected(i));
    for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2)
      for (const cpu::TileShape& tile : cpu::direct_kernels(bits)->tiles)
        for (const int rows : {1, 3, 64})
          for (const int stream : {0, 1}) {
            const cpu::DirectConfig config{bits, tile.rows, tile.vectors, rows, 0, 0, 1, stream, 0};
            if (!cpu::direct().accepts(problem, info(), to_config(config))) continue;
            const auto executable = cpu::direct().build(problem, info(), to_config(config));
            std::vector<float> packed(executable->packed_bytes() / sizeof(float));
            executable->pack(host.w.data(), host.bias.data(), packed.data(), nullptr);
            for (const std::size_t begin : {std::size_t{0}, room - bytes}) {
              auto* const x = reinterpret_cast<float*>(memory + begin);
              std::memcpy(x, host.x.data(), bytes);
              for (const std::size_t shift :
                   {std::size_t{0}, std::size_t{1}, std::size_t{4}, std::size_t{12}}) {
                std::fill(y.begin(), y.end(), -1e6F);
                executable->run({.x = x, .y = y.data() + shift}, packed.data(), nullptr);
                for (std::size_t i = 0; i < expected.size(); ++i)
                  ASSERT_NEAR(expected[i], y[shift + i], 1e-4)
                      << text << " with " << to_string(to_config(config)) << ' ' << i << " shifted by "
                      << shift;
              }
            }
            if (checked % 16 == 0) {
              EXPECT_EQ(check(problem, config), "") << text;
            }
            ++checked;
          }
    munmap(mapped, room + 2 * page);
  }
  EXPECT_GT(checked, 200);
}

TEST(Direct, RefusesConfigsThatMakeNoSense) {
  const ConvProblem problem = parse_problem("mb1ic3ih8oc8kh3ph1");
  const int bits = cpu::widest_vector_bits(info());
  const cpu::DirectConfig good{bits, 1, 8};
  EXPECT_TRUE(cpu::direct().accepts(problem, info(), to_config(good)));
  const auto refused = [&](auto change) {
    cpu::DirectConfig config = good;
    change(config);
    const Support support = cpu::direct().accepts(problem, info(), to_config(config));
    EXPECT_FALSE(support) << to_string(to_config(config));
    EXPECT_NE(support.reason(), "");
  };
  refused([](auto& c) { c.channels = 7, c.vectors = 9; });
  refused([](auto& c) { c.flat = 0, c.stream = 2; });
  refused([](auto& c) { c.flat = 1, c.stream = 1; });
  const ConvProblem channels_last = parse_problem("mb1ic3ih8oc8kh3ph1 layout=nhwc");
  EXPECT_FALSE(cpu::direct().accepts(
      channels_last, info(),
      to_config(cpu::DirectConfig{.vector_bits = bits, .channels = 1, .vectors = 8, .flat = 0})));

  // Rows of one column, each of which begins at a whole vector.
  const ConvProblem narrow = parse_problem("mb1ic256ih100000iw1oc8kh1kw1");
  cpu::DirectConfig whole{.vector_bits = bits, .channels = 1, .vectors = 8, .rows = 100000, .flat = 1};
  EXPECT_TRUE(cpu::direct().accepts(narrow, info(), to_config(whole)));
  whole.flat = 0;
  EXPECT_FALSE(cpu::direct().accepts(narrow, info(), to_config(whole)));
}

TEST(Direct, StepsAsideWithAReason) {
  ConvProblem problem = parse_problem("mb1ic3ih8oc8kh3ph1 dtype=f16");
  EXPECT_NE(cpu::direct().supports(problem, info()).reason().find("f16"), std::string::npos);
  if (cpu::multiplies_bf16()) {
    const auto reason = [](const char* text) {
      return cpu::direct().supports(parse_problem(text), info()).reason();
    };
    EXPECT_NE(reason("mb1ic3ih8oc8kh3ph1 dtype=bf16 layout=nhwc").find("NCHW"), std::string::npos);
    EXPECT_NE(reason("mb1ic3ih8oc8kh3sh3ph1 dtype=bf16").find("strides"), std::string::npos);
    EXPECT_NE(reason("mb1ic3ih8oc8kh3dh1ph1 dtype=bf16").find("dilation"), std::string::npos);
  }
  problem = parse_problem("mb1ic100000ih40oc1kh40ph20");
  EXPECT_NE(cpu::direct().supports(problem, info()).reason().find("MiB"), std::string::npos);
}

}  // namespace
}  // namespace convtune::direct_test
