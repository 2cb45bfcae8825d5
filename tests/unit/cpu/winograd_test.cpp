// Winograd's convolution: its transforms, every instruction set, and the promises of floats.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/direct/direct_candidates.h"
#include "cpu/algorithms/winograd/winograd_candidates.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/reference/oracle.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/winograd/winograd_kernels.h"
#include "cpu/tile/winograd/winograd_transform.h"
#include "measure/testbed.h"
#include "problem/config_fields.h"
#include "unit/cpu/real_tensors.h"
#include "unit/cpu/winograd_problems.h"

namespace convtune::winograd_test {
namespace {

const DeviceInfo& info() {
  return cpu::backend().info();
}

WinogradHost host_of(const ConvProblem& problem, const cpu::WinogradConfig& config) {
  return {problem, cpu::winograd().build(problem, info(), to_config(config))};
}

cpu::WinogradConfig small_config(int m) {
  return {
      .vector_bits = cpu::widest_vector_bits(info()), .tile = m, .channels = 4, .vectors = 3, .tiles = 20};
}

TEST(WinogradTransform, IsAConvolution) {
  for (const auto& [m, taps] : {std::pair{2, 3}, {2, 2}, {2, 1}, {4, 3}}) {
    const cpu::WinogradTransform& t = cpu::winograd_transform(m, taps);
    const int inputs = cpu::winograd_inputs(m);
    // Output i of an impulse at input l and tap r: 1 where l = i + r.
    for (int l = 0; l < m + taps - 1; ++l)
      for (int r = 0; r < taps; ++r)
        for (int i = 0; i < m; ++i) {
          double sum = 0;
          for (int j = 0; j < inputs; ++j) sum += t.at[i][j] * t.g[j][r] * t.bt[j][l];
          EXPECT_NEAR(sum, l == i + r ? 1 : 0, 1e-14) << m << ": " << l << ' ' << r << ' ' << i;
        }
    // Constants of the vector code lose nothing on the way to a float.
    for (int j = 0; j < inputs; ++j) {
      for (int l = 0; l < inputs; ++l)
        EXPECT_EQ(t.bt[j][l], static_cast<double>(static_cast<float>(t.bt[j][l])));
      for (int i = 0; i < m; ++i) EXPECT_EQ(t.at[i][j], static_cast<double>(static_cast<float>(t.at[i][j])));
    }
  }
}

TEST(Winograd, EveryInstructionSetAndTile) {
  int checked = 0;
  std::uint64_t drawn = 0;
  for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2)
    for (const cpu::TileShape& shape : cpu::direct_kernels(bits)->tiles)
      for (int i = 0; i < 4; ++i) {
        ConvProblem problem =
            i < 2 ? random_winograd_problem(7, ++drawn) : random_dilated_problem(7, ++drawn);
        const std::uint64_t draw = random_bits(8, drawn);
        cpu::WinogradConfig config{bits, i % 2 == 0 ? 2 : 4, shape.rows, shape.vectors};
        if (config.tile == 4) problem = taken_by_tile_four(problem);
        config.tiles = 1 + static_cast<int>(draw % 150);
        config.filters = draw / 256 % 2 == 0 ? 0 : 1 + static_cast<int>(draw / 512 % 40);
        config.chunk = 1 + static_cast<int>(draw / 65536 % 64);
        if (shape.rows != 4) problem.layout = Layout::nchw;
        if (config.tile == 4 && !cpu::winograd().accepts(problem, info(), to_config(config))) continue;
        ASSERT_TRUE(cpu::winograd().accepts(problem, info(), to_config(config))) << to_string(problem);
        Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
        EXPECT_EQ(bed.check(*cpu::winograd().build(problem, info(), to_config(config))).failure, "")
            << to_string(problem) << " with " << to_string(to_config(config));
        ++checked;
      }
  EXPECT_GT(checked, 20);
}

TEST(Winograd, EveryInstructionSetAndTileOfParts) {
  int checked = 0;
  std::uint64_t drawn = 0;
  for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2)
    for (const cpu::TileShape& shape : cpu::direct_kernels(bits)->tiles)
      for (int found = 0; found < 4;) {
        const ConvProblem problem = random_decomposed_problem(9, ++drawn);
        const std::uint64_t draw = random_bits(10, drawn);
        cpu::WinogradConfig config{bits, 2, shape.rows, shape.vectors};
        if (!cpu::winograd_multiply(bits, config.channels, config.vectors)) break;
        config.tiles = 1 + static_cast<int>(draw % 150);
        config.filters = draw / 256 % 2 == 0 ? 0 : 1 + static_cast<int>(draw / 512 % 40);
        config.chunk = 1 + static_cast<int>(draw / 65536 % 64);
        config.stream = static_cast<int>(draw >> 63);
        if (!cpu::winograd().accepts(problem, info(), to_config(config))) continue;
        Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
        EXPECT_EQ(bed.check(*cpu::winograd().build(problem, info(), to_config(config))).failure, "")
            << to_string(problem) << " with " << to_string(to_config(config));
        ++checked, ++found;
      }
  EXPECT_GT(checked, 20);
}

// First layers, whose input is transformed strip by strip (winograd_strip.h): rows of tiles that are whole
// strips and others, tasks that end amid a row, and x where nothing beside it may be read.
TEST(Winograd, StripsOfEveryInstructionSet) {
  for (const char* text :
       {"mb2ic3ih19iw201oc33kh11sh4ph2 act=relu", "g2mb1ic4ih16iw256oc64kh11sh4ph2pw5",
        "mb2ic3ih14iw103oc33kh6sh2ph2", "mb1ic4ih16iw256oc32kh6sh2ph3", "mb1ic4ih16iw256oc32kh7sh2ph3",
        "mb3ic3ih9iw96oc33kh7sh2", "mb1ic64ih33iw64oc64kh1kw3sh32sw1ph0pw1",
        "mb1ic48ih9iw70oc33kh3kw3sh1sw2ph1pw1"}) {
    const ConvProblem problem = parse_problem(text);
    for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2)
      for (const int tiles : {1, 14, 48, 53, 112, 150}) {
        const cpu::WinogradConfig config{
            .vector_bits = bits, .tile = 2, .channels = 4, .vectors = 3, .tiles = tiles, .chunk = 8};
        if (!cpu::winograd_multiply(bits, config.channels, config.vectors)) continue;
        const auto executable = cpu::winograd().build(problem, info(), to_config(config));
        Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
        EXPECT_EQ(bed.check(*executable).failure, "")
            << to_string(problem) << " with " << to_string(to_config(config));
        if (problem.w != 256 || !GuardedFloats::fits(host_of(problem, config).x)) continue;
        WinogradHost host = host_of(problem, config);
        const std::vector<float> expected = host.run();
        const GuardedFloats x(host.x);
        host.executable->run({.x = x.data(), .y = host.y.data()}, host.packed.data(), nullptr);
        EXPECT_EQ(expected, host.y) << text << ' ' << bits << ' ' << tiles;
      }
  }
}

// y begins within a line, and lines go past the caches whole: rows of one line and more, an odd number of
// them, tasks that end amid a row, several chunks and tasks of filters, and sums that are not finite.
TEST(Winograd, JoinsLinesOfRows) {
  int checked = 0;
  for (const char* text : {"mb2ic3ih19iw32oc33kh5sh2ph2 act=relu", "mb1ic3ih33iw64oc40kh7sh2ph3",
                           "mb2ic2ih46iw96oc33kh11sh4ph4pw3", "mb1ic3ih26iw224oc32kh7sh2ph3"})
    for (const bool finite : {true, false}) {
      Host host(parse_problem(text));
      if (host.problem.q() % 16 != 0) continue;
      if (!finite) host.x[host.x.size() / 2] = host.x[7] = INFINITY;
      for (const int tiles : {8, 20, 56, 112, 200})
        for (const int filters : {0, 8}) {
          const cpu::WinogradConfig config{.vector_bits = 512,
                                           .tile = 2,
                                           .channels = 4,
                                           .vectors = 6,
                                           .tiles = tiles,
                                           .filters = filters,
                                           .chunk = 4,
                                           .stream = 1};
          if (!cpu::winograd().accepts(host.problem, info(), to_config(config))) continue;
          const auto executable = cpu::winograd().build(host.problem, info(), to_config(config));
          const std::vector<std::byte> expected = host.run_behind_a_line(*executable, 0);
          for (const std::int64_t behind : {4, 16, 32, 60})
            EXPECT_TRUE(expected == host.run_behind_a_line(*executable, behind))
                << text << " with " << to_string(to_config(config)) << " at " << behind;
          ++checked;
        }
    }
  EXPECT_TRUE(cpu::widest_vector_bits(info()) < 512 || checked > 40) << checked;
}

TEST(WinogradParts, HaveEveryTapOnce) {
  for (std::int64_t taps = 1; taps < 20; ++taps)
    for (std::int64_t stride = 1; stride < 7; ++stride) {
      std::vector<int> seen(static_cast<std::size_t>(taps));
      for (const cpu::WinogradPart& part : cpu::winograd_parts(taps, stride)) {
        EXPECT_TRUE(part.taps >= 1 && part.taps <= 3);
        for (int i = 0; i < part.taps; ++i) ++seen.at(static_cast<std::size_t>(part.first + i * stride));
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << taps << ' ' << stride;
    }
  EXPECT_EQ(std::ssize(cpu::WinogradAxis(11, 4, 2).products), 15);
}

// Covers what makes it fit for fp32: a number beside an output's window has no part in the output.
TEST(Winograd, OutputsOfTileTwoReadTheirWindowAlone) {
  for (const char* text :
       {"mb1ic16ih8iw9oc16kh3ph1", "mb1ic3ih16iw19oc32kh7sh2ph3", "mb1ic3ih23iw18oc32kh11sh4ph2",
        "mb1ic3ih5iw95oc32kh7sh2ph3", "mb1ic48ih8iw11oc32kh3sh2ph1", "mb1ic16ih9iw12oc16kh3ph2dh1dw2"}) {
    ConvProblem problem = parse_problem(text);
    problem.precision = Precision::fp32;
    WinogradHost host = host_of(problem, small_config(2));
    const std::vector<float> before = host.run();
    for (std::int64_t row = 0; row < problem.h; ++row)
      for (std::int64_t col = 0; col < problem.w; ++col) {
        float& spot = host.x[static_cast<std::size_t>((2 * problem.h + row) * problem.w + col)];
        const float kept = spot;
        spot = 1e20F;
        const std::vector<float>& after = host.run();
        spot = kept;
        for (std::int64_t k = 0; k < problem.k; ++k)
          for (std::int64_t p = 0; p < problem.p(); ++p)
            for (std::int64_t q = 0; q < problem.q(); ++q) {
              const std::int64_t down = row - p * problem.stride_h + problem.pad_top,
                                 along = col - q * problem.stride_w + problem.pad_left;
              const std::int64_t r = down / problem.dilation_h, s = along / problem.dilation_w;
              const bool on_taps = down % problem.dilation_h == 0 && along % problem.dilation_w == 0;
              const bool reads = on_taps && r >= 0 && r < problem.r && s >= 0 && s < problem.s;
              const std::int64_t tap = ((k * problem.c + 2) * problem.r + r) * problem.s + s;
              if (reads && host.w[static_cast<std::size_t>(tap)] == 0) continue;  // roundings alone
              const auto at = static_cast<std::size_t>((k * problem.p() + p) * problem.q() + q);
              EXPECT_EQ(before[at] == after[at], !reads)
                  << text << ' ' << row << ' ' << col << ": " << p << ' ' << q;
            }
      }
  }
}

TEST(Winograd, IsOfferedWithinThePrecisionAlone) {
  const auto reason = [](const char* text) {
    ConvProblem problem = parse_problem(text);
    if (problem.precision == Precision::automatic) problem.precision = Precision::fp32;
    return cpu::winograd().supports(problem, info()).reason();
  };
  EXPECT_EQ(reason("mb1ic16ih8oc16kh3ph1"), "");
  EXPECT_EQ(reason("mb1ic16ih8oc32kh5ph1"), "");
  EXPECT_EQ(reason("mb1ic3ih64oc32kh11sh4ph2"), "");
  EXPECT_NE(reason("mb1ic16ih8oc32kh5ph1 layout=nhwc").find("NHWC"), std::string::npos);
  EXPECT_EQ(reason("mb1ic48ih8oc32kh3ph1sh2"), "");
  EXPECT_NE(reason("mb1ic16ih8oc32kh3ph1sh2").find("too short"), std::string::npos);
  EXPECT_NE(reason("mb1ic16ih8oc32kh2").find("too short"), std::string::npos);
  EXPECT_NE(reason("mb1ic16ih8oc32kh2sh2").find("fewer products"), std::string::npos);
  EXPECT_NE(reason("mb1ic1ih8oc32kh5ph1").find("too short"), std::string::npos);
  EXPECT_EQ(reason("mb1ic16ih8oc16kh3ph1dh1"), "");
  EXPECT_NE(reason("mb1ic16ih8oc16kh3ph1dh1 layout=nhwc").find("dilation"), std::string::npos);
  EXPECT_NE(reason("mb1ic16ih16oc32kh5ph1dh1").find("dilation"), std::string::npos);
  EXPECT_NE(reason("mb1ic15ih8oc16kh3ph1").find("16 channels"), std::string::npos);
  EXPECT_NE(reason("mb1ic16ih8oc16kh3ph1 dtype=bf16").find("bf16"), std::string::npos);

  ConvProblem problem = parse_problem("mb1ic16ih8oc16kh3ph1 precision=fp32 layout=nhwc");
  const Config four = to_config(small_config(4));
  EXPECT_NE(cpu::winograd().accepts(problem, info(), four).reason().find("precision=tf32"),
            std::string::npos);
  for (const Config& config : cpu::winograd().candidates(problem, info())) EXPECT_EQ(config.at("tile"), 2);
  problem.precision = Precision::tf32;
  EXPECT_TRUE(cpu::winograd().accepts(problem, info(), four));
  problem.layout = Layout::nchw;
  EXPECT_NE(cpu::winograd().accepts(problem, info(), four).reason().find("NHWC"), std::string::npos);
  problem.layout = Layout::nhwc, problem.pad_left = 3;
  EXPECT_NE(cpu::winograd().accepts(problem, info(), four).reason().find("padding"), std::string::npos);
}

}  // namespace
}  // namespace convtune::winograd_test
