// Winograd's error beside the bound that winograd_transform.h states, and beside what the precision of a
// problem allows. CONVTUNE_WINOGRAD_PROBLEMS=5000 in the environment draws so many problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cpu/cpu.h"
#include "cpu/reference.h"
#include "cpu/winograd/winograd_candidates.h"
#include "measure/testbed.h"
#include "problem/config.h"
#include "unit/cpu/winograd_problems.h"

namespace convtune::winograd_error_test {
namespace {

int problems() {
  const char* const wanted = std::getenv("CONVTUNE_WINOGRAD_PROBLEMS");
  return wanted ? std::max(1, std::atoi(wanted)) : 30;
}

const DeviceInfo& info() {
  return cpu::backend().info();
}

// Numbers of one size, or of sizes from 2^-12 to 2^12.
std::vector<float> numbers(std::int64_t count, std::uint64_t seed, bool uneven) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = random_bits(seed, i);
    values[i] = static_cast<float>(static_cast<std::int64_t>(bits >> 40) - (1 << 23)) / (1 << 23);
    if (uneven) values[i] = std::ldexp(values[i], static_cast<int>(bits % 25) - 12);
  }
  return values;
}

struct Data {
  Data(const ConvProblem& problem, std::uint64_t seed, bool uneven)
      : x(numbers(problem.input_elements(), seed, uneven)),
        w(numbers(problem.weight_elements(), seed + 1, uneven)),
        bias(numbers(problem.k, seed + 2, uneven)) {}
  std::vector<float> x, w, bias;
};

// Every output's |bias| + |A^T| [ sum |G| |w| |G^T| * |B^T| |x| |B| ] |A|.
std::vector<double> magnitudes(const ConvProblem& a, int m, const Data& data) {
  const cpu::WinogradTransform& t = cpu::winograd_transform(m);
  const int inputs = cpu::winograd_inputs(m);
  const std::int64_t channels = a.c / a.groups, filters = a.k / a.groups;
  const std::size_t products = static_cast<std::size_t>(inputs * inputs);
  const auto input = [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    if (h < 0 || h >= a.h || w < 0 || w >= a.w) return 0.0;
    const std::int64_t at =
        a.layout == Layout::nchw ? ((n * a.c + c) * a.h + h) * a.w + w : ((n * a.h + h) * a.w + w) * a.c + c;
    return std::abs(static_cast<double>(data.x[static_cast<std::size_t>(at)]));
  };
  std::vector<double> weights(static_cast<std::size_t>(a.k * channels) * products, 0.0);
  for (std::size_t filter = 0; filter < static_cast<std::size_t>(a.k * channels); ++filter)
    for (int i = 0; i < inputs; ++i)
      for (int j = 0; j < inputs; ++j)
        for (int r = 0; r < 3; ++r)
          for (int s = 0; s < 3; ++s)
            weights[filter * products + static_cast<std::size_t>(i * inputs + j)] +=
                std::abs(t.g[i][r] * t.g[j][s]) *
                std::abs(static_cast<double>(data.w[filter * 9 + static_cast<std::size_t>(r * 3 + s)]));

  const std::int64_t p = a.p(), q = a.q();
  std::vector<double> result(static_cast<std::size_t>(a.output_elements()));
  std::vector<double> tile(static_cast<std::size_t>(channels) * products);
  for (std::int64_t n = 0; n < a.n; ++n)
    for (std::int64_t group = 0; group < a.groups; ++group)
      for (std::int64_t row = 0; row < p; row += m)
        for (std::int64_t col = 0; col < q; col += m) {
          std::fill(tile.begin(), tile.end(), 0.0);
          for (std::int64_t c = 0; c < channels; ++c) {
            double rows[6][6] = {};
            for (int i = 0; i < inputs; ++i)
              for (int l = 0; l < inputs; ++l) {
                const double x = input(n, group * channels + c, row + i - a.pad_top, col + l - a.pad_left);
                for (int j = 0; j < inputs; ++j) rows[i][j] += std::abs(t.bt[j][l]) * x;
              }
            double* const to = &tile[static_cast<std::size_t>(c) * products];
            for (int i = 0; i < inputs; ++i)
              for (int j = 0; j < inputs; ++j)
                for (int l = 0; l < inputs; ++l) to[i * inputs + j] += std::abs(t.bt[i][l]) * rows[l][j];
          }
          for (std::int64_t k = group * filters; k < (group + 1) * filters; ++k) {
            double sums[36] = {};
            for (std::int64_t c = 0; c < channels; ++c)
              for (std::size_t i = 0; i < products; ++i)
                sums[i] += tile[static_cast<std::size_t>(c) * products + i] *
                           weights[static_cast<std::size_t>(k * channels + c) * products + i];
            for (int r = 0; r < m && row + r < p; ++r)
              for (int s = 0; s < m && col + s < q; ++s) {
                double sum =
                    a.bias ? std::abs(static_cast<double>(data.bias[static_cast<std::size_t>(k)])) : 0;
                for (int i = 0; i < inputs; ++i)
                  for (int j = 0; j < inputs; ++j)
                    sum += std::abs(t.at[r][i] * t.at[s][j]) * sums[i * inputs + j];
                const std::int64_t at = a.layout == Layout::nchw
                                            ? ((n * a.k + k) * p + row + r) * q + col + s
                                            : ((n * p + row + r) * q + col + s) * a.k + k;
                result[static_cast<std::size_t>(at)] = sum;
              }
          }
        }
  return result;
}

// The largest |computed - exact| over its bound.
double worst_ratio(const ConvProblem& problem, const cpu::WinogradConfig& config, const Data& data) {
  const auto executable = cpu::winograd().build(problem, info(), to_config(config));
  std::vector<float> packed(executable->packed_bytes() / sizeof(float));
  executable->pack(data.w.data(), problem.bias ? data.bias.data() : nullptr, packed.data(), nullptr);
  std::vector<float> y(static_cast<std::size_t>(problem.output_elements()));
  executable->run({.x = data.x.data(), .y = y.data()}, packed.data(), nullptr);
  const std::vector<double> magnitude = magnitudes(problem, config.tile, data);
  const double nu =
      std::ldexp(static_cast<double>(cpu::winograd_roundings(config.tile, problem.c / problem.groups)), -24);
  double worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double exact =
        cpu::oracle(problem, {data.x.data(), data.w.data(), problem.bias ? data.bias.data() : nullptr},
                    static_cast<std::int64_t>(i))
            .value;
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - exact) / (nu / (1 - nu) * magnitude[i]));
  }
  return worst;
}

TEST(WinogradError, IsWithinItsBound) {
  double worst[2] = {};
  const int count = problems();
  for (int i = 0; i < count; ++i) {
    const ConvProblem problem = random_winograd_problem(31, static_cast<std::uint64_t>(i));
    const Data data(problem, static_cast<std::uint64_t>(i), i % 2 == 1);
    for (const int m : {2, 4}) {
      if (m == 4 && problem.precision == Precision::fp32) continue;
      std::vector<cpu::WinogradConfig> configs = cpu::winograd_candidates(problem, info());
      std::erase_if(configs, [&](const cpu::WinogradConfig& config) { return config.tile != m; });
      if (configs.empty()) continue;
      const cpu::WinogradConfig& config = configs[static_cast<std::size_t>(i) % configs.size()];
      const double ratio = worst_ratio(problem, config, data);
      EXPECT_LE(ratio, 1) << to_string(problem) << " with " << to_string(to_config(config));
      double& most = worst[m == 4];
      most = std::max(most, ratio);
    }
  }
  // A bound that is never approached to a factor of ten thousand would hold for a wrong answer, too.
  EXPECT_GT(worst[0], 1e-4);
  EXPECT_GT(worst[1], 1e-4);
  std::printf("the largest error over its bound: %.4f (tile 2), %.4f (tile 4)\n", worst[0], worst[1]);
}

// What every algorithm of a problem is held to, by the tuner too.
TEST(WinogradError, IsWithinWhatThePrecisionAllows) {
  const int count = problems();
  for (int i = 0; i < count; ++i) {
    const ConvProblem problem = random_winograd_problem(32, static_cast<std::uint64_t>(i));
    Testbed bed(problem, cpu::backend(), TestData::real, static_cast<std::uint64_t>(i), 0);
    const std::vector<cpu::WinogradConfig> configs = cpu::winograd_candidates(problem, info());
    ASSERT_FALSE(configs.empty()) << to_string(problem);
    const Config config = to_config(configs[static_cast<std::size_t>(i) % configs.size()]);
    EXPECT_EQ(bed.check(*cpu::winograd().build(problem, info(), config)).failure, "")
        << to_string(problem) << " with " << to_string(config);
  }
}

}  // namespace
}  // namespace convtune::winograd_error_test
