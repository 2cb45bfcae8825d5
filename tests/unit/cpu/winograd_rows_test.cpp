// Winograd's convolution along one axis: every instruction set, the promises of floats, its bound and what
// the precision allows. CONVTUNE_WINOGRAD_PROBLEMS=5000 in the environment draws so many problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/winograd_rows/winograd_rows_candidates.h"
#include "cpu/algorithms/winograd_rows/winograd_rows_kernels.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/reference/oracle.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/winograd/winograd_transform.h"
#include "measure/testbed.h"
#include "problem/config_fields.h"
#include "unit/cpu/winograd_problems.h"

namespace convtune::winograd_rows_test {
namespace {

const DeviceInfo& info() {
  return cpu::backend().info();
}

int problems() {
  const char* const wanted = std::getenv("CONVTUNE_WINOGRAD_PROBLEMS");
  return wanted ? std::max(1, std::atoi(wanted)) : 30;
}

// The next random problem that it takes, from draw `drawn` on.
ConvProblem next_problem(std::uint64_t seed, std::uint64_t& drawn) {
  for (;;) {
    ConvProblem problem = random_decomposed_problem(seed, ++drawn);
    problem.precision = Precision::fp32;
    if (random_bits(seed, drawn) % 2 == 0) problem.r = problem.s = 3, problem.stride_h = problem.stride_w = 1;
    problem.k = problem.groups * (16 + static_cast<std::int64_t>(random_bits(seed + 1, drawn) % 20));
    if (cpu::winograd_rows().supports(problem, info())) return problem;
  }
}

cpu::WinogradRowsConfig random_config(int bits, const cpu::WinogradRowsTile& tile, std::uint64_t draw) {
  return {.vector_bits = bits,
          .channels = tile.rows,
          .vectors = tile.vectors,
          .rows = 1 + static_cast<int>(draw % 12),
          .filters = draw / 256 % 2 == 0 ? 0 : 1 + static_cast<int>(draw / 512 % 40),
          .stream = static_cast<int>(draw >> 63)};
}

WinogradHost host_of(const ConvProblem& problem, const cpu::WinogradRowsConfig& config) {
  return {problem, cpu::winograd_rows().build(problem, info(), to_config(config))};
}

cpu::WinogradRowsConfig first_config(const ConvProblem& problem) {
  return cpu::winograd_rows_candidates(problem, info()).front();
}

TEST(WinogradRows, EveryInstructionSetAndTile) {
  int checked = 0;
  std::uint64_t drawn = 0;
  for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2) {
    if (!cpu::winograd_rows_kernels(bits)) continue;
    for (const cpu::WinogradRowsTile& tile : cpu::winograd_rows_kernels(bits)->tiles)
      for (int i = 0; i < 6; ++i) {
        const ConvProblem problem = next_problem(11, drawn);
        const Config config = to_config(random_config(bits, tile, random_bits(12, drawn)));
        Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
        EXPECT_EQ(bed.check(*cpu::winograd_rows().build(problem, info(), config)).failure, "")
            << to_string(problem) << " with " << to_string(config);
        ++checked;
      }
  }
  EXPECT_GT(checked, 15);
}

// |computed - exact| <= n u / (1 - n u) * (|bias| + |A^T| [ sum |G| |w| * |B^T| |x| ]), along rows alone: a
// transform of the input and two of the outputs, a weight made in double and rounded once, the products and
// sums of the longest product, and the bias (winograd_transform.h has the source).
double bound(const WinogradHost& host, std::int64_t at) {
  const ConvProblem& a = host.problem;
  const cpu::WinogradAxis axis(a.r, a.stride_h, 2);
  const std::int64_t q = a.q(), p = a.p(), channels = a.c / a.groups;
  const std::int64_t col = at % q, row = at / q % p, k = at / (q * p) % a.k, n = at / (q * p * a.k);
  const std::int64_t first = k / (a.k / a.groups) * channels;
  const std::int64_t origin = row / 2 * 2 * a.stride_h - a.pad_top;
  double sum = a.bias ? std::abs(static_cast<double>(host.bias[static_cast<std::size_t>(k)])) : 0;
  std::int64_t depth = 0;
  for (const cpu::WinogradPartProduct& product : axis.products) {
    const cpu::WinogradPart& part = axis.parts[product.part];
    const cpu::WinogradTransform& t = cpu::winograd_transform(2, part.taps);
    depth = std::max(depth, axis.parts_with[product.product] * channels * a.s);
    const double output = std::abs(t.at[row % 2][product.product]);
    for (std::int64_t c = 0; output > 0 && c < channels; ++c)
      for (std::int64_t s = 0; s < a.s; ++s) {
        const std::int64_t at_col = col * a.stride_w + s - a.pad_left;
        if (at_col < 0 || at_col >= a.w) continue;
        double weight = 0, input = 0;
        for (int u = 0; u < part.taps; ++u) {
          const std::int64_t tap = ((k * channels + c) * a.r + part.first + u * a.stride_h) * a.s + s;
          weight +=
              std::abs(t.g[product.product][u] * static_cast<double>(host.w[static_cast<std::size_t>(tap)]));
        }
        for (int u = 0; u <= part.taps; ++u) {
          const std::int64_t at_row = origin + part.first + u * a.stride_h;
          if (at_row < 0 || at_row >= a.h) continue;
          const std::int64_t pixel = ((n * a.c + first + c) * a.h + at_row) * a.w + at_col;
          input += std::abs(t.bt[product.product][u] *
                            static_cast<double>(host.x[static_cast<std::size_t>(pixel)]));
        }
        sum += output * weight * input;
      }
  }
  const double nu = std::ldexp(static_cast<double>(depth + 6), -24);
  return nu / (1 - nu) * sum;
}

TEST(WinogradRows, ErrorIsWithinItsBound) {
  double worst = 0;
  std::uint64_t drawn = 0;
  for (int i = 0; i < problems(); ++i) {
    ConvProblem problem = next_problem(13, drawn);
    problem.activation = Activation::none;
    const std::vector<cpu::WinogradRowsConfig> configs = cpu::winograd_rows_candidates(problem, info());
    ASSERT_FALSE(configs.empty()) << to_string(problem);
    WinogradHost host = host_of(problem, configs[static_cast<std::size_t>(i) % configs.size()]);
    // Numbers of one size, or of sizes from 2^-12 to 2^12.
    for (std::vector<float>* values : {&host.x, &host.w, &host.bias})
      for (std::size_t j = 0; i % 2 == 1 && j < values->size(); ++j)
        (*values)[j] = std::ldexp((*values)[j], static_cast<int>(random_bits(14, j) % 25) - 12);
    host.run();
    for (std::int64_t at = 0; at < problem.output_elements(); at += 7) {
      const double error =
          std::abs(static_cast<double>(host.y[static_cast<std::size_t>(at)]) - host.exact(at));
      worst = std::max(worst, error / std::max(bound(host, at), 1e-300));
    }
    ASSERT_LE(worst, 1) << to_string(problem);
  }
  EXPECT_GT(worst, 1e-3);  // a bound that is never approached would hold for a wrong answer, too
  std::printf("the largest error over its bound: %.4f\n", worst);
}

// Covers what every algorithm of a problem is held to, by the tuner too.
TEST(WinogradRows, ErrorIsWithinWhatThePrecisionAllows) {
  std::uint64_t drawn = 0;
  for (int i = 0; i < problems(); ++i) {
    const ConvProblem problem = next_problem(15, drawn);
    Testbed bed(problem, cpu::backend(), TestData::real, static_cast<std::uint64_t>(i), 0);
    const Config config = to_config(first_config(problem));
    EXPECT_EQ(bed.check(*cpu::winograd_rows().build(problem, info(), config)).failure, "")
        << to_string(problem) << " with " << to_string(config);
  }
}

// Inputs of 3e38 overflow as soon as two neighbours of a column are added or subtracted, which the transform
// does before any product. Weights of 1e-4 keep the outputs, and any bound made of products alone, far from
// overflow: only a look at the transform itself tells that these sums must be looked at.
TEST(WinogradRows, InputsWhoseTransformsOverflowHaveFiniteOutputs) {
  for (const char* text :
       {"mb2ic3ih9iw19oc17kh3ph1 precision=fp32", "g2mb1ic8ih7iw18oc36kh3ph2 precision=fp32",
        "mb2ic3ih29iw31oc33kh6sh2ph2 precision=fp32"}) {
    const ConvProblem problem = parse_problem(text);
    WinogradHost host = host_of(problem, first_config(problem));
    for (std::size_t i = 0; i < host.x.size(); ++i) host.x[i] = random_bits(6, i) % 2 == 0 ? 3e38F : -3e38F;
    for (float& weight : host.w) weight *= 1e-4F;
    host.run();
    int wrong = 0;
    for (std::int64_t i = 0; i < problem.output_elements(); ++i) {
      const auto got = static_cast<double>(host.y[static_cast<std::size_t>(i)]);
      if (!(std::abs(got - host.exact(i)) <= bound(host, i))) ++wrong;  // NaN is wrong, too
    }
    EXPECT_EQ(wrong, 0) << text << ", of " << problem.output_elements();
  }
}

// Covers what makes it fit for fp32: a number beside an output's window has no part in the output.
TEST(WinogradRows, OutputsReadTheirWindowAlone) {
  for (const char* text :
       {"mb1ic3ih8iw17oc16kh3ph1 precision=fp32", "mb1ic3ih16iw19oc32kh6sh2ph2 precision=fp32"}) {
    const ConvProblem problem = parse_problem(text);
    WinogradHost host = host_of(problem, first_config(problem));
    const std::vector<float> before = host.run();
    for (std::int64_t row = 0; row < problem.h; ++row)
      for (std::int64_t col = 0; col < problem.w; col += 3) {
        float& spot = host.x[static_cast<std::size_t>((2 * problem.h + row) * problem.w + col)];
        const float kept = spot;
        spot = 1e20F;
        const std::vector<float>& after = host.run();
        spot = kept;
        for (std::size_t i = 0; i < after.size(); ++i) {
          const auto at = static_cast<std::int64_t>(i);
          const std::int64_t q = at % problem.q(), p = at / problem.q() % problem.p();
          const std::int64_t r = row - p * problem.stride_h + problem.pad_top,
                             s = col - q * problem.stride_w + problem.pad_left;
          const bool reads = r >= 0 && r < problem.r && s >= 0 && s < problem.s;
          const std::int64_t k = at / (problem.q() * problem.p());
          const std::int64_t tap = ((k * problem.c + 2) * problem.r + r) * problem.s + s;
          if (reads && host.w[static_cast<std::size_t>(tap)] == 0) continue;  // roundings alone
          EXPECT_EQ(before[i] == after[i], !reads) << text << ' ' << row << ' ' << col << ": " << at;
        }
      }
  }
}

TEST(WinogradRows, StoresInAnyOrderAreTheSame) {
  int checked = 0;
  const ConvProblem problem = parse_problem("mb2ic3ih13iw512oc20kh3ph1 precision=fp32");  // a row is alone
  for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2) {
    if (!cpu::winograd_rows_kernels(bits)) continue;
    for (const cpu::WinogradRowsTile& tile : cpu::winograd_rows_kernels(bits)->tiles) {
      const auto run = [&](int stream, std::size_t place) {
        WinogradHost host = host_of(problem, {bits, tile.rows, tile.vectors, 3, checked % 2 * 9, stream});
        const auto count = static_cast<std::size_t>(problem.output_elements());
        std::vector<float> memory(count + 32, 7);
        const auto first = 16 - reinterpret_cast<std::uintptr_t>(memory.data()) / sizeof(float) % 16;
        float* const y = memory.data() + first % 16 + place;
        host.executable->pack(host.w.data(), host.bias.data(), host.packed.data(), nullptr);
        host.executable->run({.x = host.x.data(), .y = y}, host.packed.data(), nullptr);
        EXPECT_EQ(std::count(memory.data(), y, 7), y - memory.data());
        EXPECT_EQ(std::count(y + count, memory.data() + count + 32, 7), memory.data() + 32 - y);
        return std::vector<float>(y, y + count);
      };
      if (!cpu::winograd_rows().accepts(
              problem, info(), to_config(cpu::WinogradRowsConfig{bits, tile.rows, tile.vectors, 3, 0, 2})))
        continue;
      const std::vector<float> plain = run(0, 0);
      EXPECT_EQ(plain, run(2, 0)) << bits << ' ' << tile.rows << ' ' << tile.vectors;
      EXPECT_EQ(plain, run(2, 3)) << bits << ' ' << tile.rows << ' ' << tile.vectors;
      // Rows that begin and end within lines of the cache.
      for (const std::size_t place : {1, 4, 13})
        EXPECT_EQ(plain, run(1, place)) << bits << ' ' << tile.rows << ' ' << tile.vectors << ' ' << place;
      ++checked;
    }
  }
  EXPECT_GT(checked, 0);
}

// Whatever stores cost differs between the makers of processors: estimates do not choose alone.
TEST(WinogradRows, CandidatesHaveEveryWayToStore) {
  const ConvProblem problem = parse_problem("mb8ic3ih224oc64kh3ph1 precision=fp32");
  std::array<int, 3> of_stream{};
  for (const cpu::WinogradRowsConfig& config : cpu::winograd_rows_candidates(problem, info()))
    ++of_stream[static_cast<std::size_t>(config.stream)];
  EXPECT_GT(of_stream[1], 3);
  EXPECT_GT(of_stream[2], 3);
}

TEST(WinogradRows, IsOfferedWithinThePrecisionAlone) {
  const auto reason = [](const char* text) {
    return cpu::winograd_rows().supports(parse_problem(text), info()).reason();
  };
  EXPECT_EQ(reason("mb1ic3ih8oc16kh3ph1 precision=fp32"), "");
  EXPECT_EQ(reason("mb1ic3ih64oc32kh11sh4ph2 precision=fp32"), "");
  EXPECT_NE(reason("mb1ic1ih8oc16kh3ph1 precision=fp32").find("too short"), std::string::npos);
  EXPECT_NE(reason("mb1ic3ih8oc16kh2 precision=fp32").find("too short"), std::string::npos);
  EXPECT_NE(reason("mb1ic3ih8oc16kh3sh2 precision=fp32").find("fewer products"), std::string::npos);
  EXPECT_NE(reason("mb1ic3ih8oc16kh3ph1 precision=fp32 layout=nhwc").find("NCHW"), std::string::npos);
  EXPECT_NE(reason("mb1ic3ih8oc16kh3dh1 precision=fp32").find("dilation"), std::string::npos);
  EXPECT_NE(reason("mb1ic3ih8oc15kh3 precision=fp32").find("16 output"), std::string::npos);
  EXPECT_NE(reason("mb1ic33ih8oc16kh3 precision=fp32").find("32 input"), std::string::npos);

  const ConvProblem problem = parse_problem("mb1ic3ih8oc16kh3ph1 precision=fp32");
  const auto refused = [&](auto change) {
    cpu::WinogradRowsConfig config = first_config(problem);
    change(config);
    return !cpu::winograd_rows().accepts(problem, info(), to_config(config));
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& config) { config.channels = 63; }));
  EXPECT_TRUE(refused([](auto& config) { config.stream = 2; }));  // planes of 256 bytes
}

}  // namespace
}  // namespace convtune::winograd_rows_test
