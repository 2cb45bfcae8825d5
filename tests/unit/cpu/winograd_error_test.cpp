// Winograd's error beside the bound that winograd_transform.h states, and beside what the precision of a
// problem allows. CONVTUNE_WINOGRAD_PROBLEMS=5000 in the environment draws so many problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/winograd/winograd_candidates.h"
#include "cpu/algorithms/winograd_filters/winograd_filters_candidates.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/reference/oracle.h"
#include "cpu/tile/winograd/winograd_transform.h"
#include "measure/testbed.h"
#include "problem/config_fields.h"
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

// Every output's |bias| + |A^T| [ sum |G| |w| |G^T| * |B^T| |x| |B| ] |A|, summed over the filter's parts
// too.
class Magnitudes {
 public:
  Magnitudes(const ConvProblem& problem, int m, const Data& data)
      : a_(problem),
        m_(m),
        data_(data),
        rows_(a_.r, a_.stride_h, m),
        cols_(a_.s, a_.stride_w, m),
        steps_(static_cast<std::int64_t>(rows_.products.size() * cols_.products.size())) {}

  std::vector<double> all() const {
    const std::int64_t channels = a_.c / a_.groups, filters = a_.k / a_.groups, p = a_.p(), q = a_.q();
    std::vector<double> weights, result(static_cast<std::size_t>(a_.output_elements()));
    for (std::int64_t filter = 0; filter < a_.k * channels; ++filter)
      for_each_step([&](const auto& row, const auto& col) { weights.push_back(weight(filter, row, col)); });
    for (std::int64_t n = 0; n < a_.n; ++n)
      for (std::int64_t group = 0; group < a_.groups; ++group)
        for (std::int64_t row = 0; row < p; row += m_)
          for (std::int64_t col = 0; col < q; col += m_) {
            std::vector<double> inputs;
            for (std::int64_t c = group * channels; c < (group + 1) * channels; ++c)
              for_each_step([&](const auto& along_rows, const auto& along_cols) {
                inputs.push_back(input(n, c, row, col, along_rows, along_cols));
              });
            for (std::int64_t k = group * filters; k < (group + 1) * filters; ++k)
              for (std::int64_t r = 0; r < m_ && row + r < p; ++r)
                for (std::int64_t s = 0; s < m_ && col + s < q; ++s)
                  result[place(n, k, row + r, col + s)] =
                      output(k, r, s, inputs, &weights[static_cast<std::size_t>(k * channels * steps_)]);
          }
    return result;
  }
  // Indices of the products that are summed in one.
  std::int64_t depth() const {
    return a_.c / a_.groups * *std::max_element(std::begin(rows_.parts_with), std::end(rows_.parts_with)) *
           *std::max_element(std::begin(cols_.parts_with), std::end(cols_.parts_with));
  }

 private:
  using Product = cpu::WinogradPartProduct;

  template <class Visit>
  void for_each_step(const Visit& visit) const {
    for (const Product& row : rows_.products)
      for (const Product& col : cols_.products) visit(row, col);
  }
  const cpu::WinogradTransform& transform(const cpu::WinogradPart& part) const {
    return cpu::winograd_transform(m_, part.taps);
  }
  double weight(std::int64_t filter, const Product& row, const Product& col) const {
    const cpu::WinogradPart &rows = rows_.parts[row.part], &cols = cols_.parts[col.part];
    double sum = 0;
    for (int u = 0; u < rows.taps; ++u)
      for (int v = 0; v < cols.taps; ++v) {
        const std::int64_t r = rows.first + u * a_.stride_h, s = cols.first + v * a_.stride_w;
        const float w = data_.w[static_cast<std::size_t>((filter * a_.r + r) * a_.s + s)];
        sum += std::abs(transform(rows).g[row.product][u] * transform(cols).g[col.product][v] *
                        static_cast<double>(w));
      }
    return sum;
  }
  // Inputs of the tile whose first output is at (out_row, out_col).
  double input(std::int64_t n, std::int64_t c, std::int64_t out_row, std::int64_t out_col, const Product& row,
               const Product& col) const {
    const cpu::WinogradPart &rows = rows_.parts[row.part], &cols = cols_.parts[col.part];
    double sum = 0;
    for (int u = 0; u < m_ + rows.taps - 1; ++u)
      for (int v = 0; v < m_ + cols.taps - 1; ++v) {
        const std::int64_t h = (out_row + u) * a_.stride_h + rows.first - a_.pad_top,
                           w = (out_col + v) * a_.stride_w + cols.first - a_.pad_left;
        if (h < 0 || h >= a_.h || w < 0 || w >= a_.w) continue;
        const std::int64_t at = a_.layout == Layout::nchw ? ((n * a_.c + c) * a_.h + h) * a_.w + w
                                                          : ((n * a_.h + h) * a_.w + w) * a_.c + c;
        sum += std::abs(transform(rows).bt[row.product][u] * transform(cols).bt[col.product][v] *
                        static_cast<double>(data_.x[static_cast<std::size_t>(at)]));
      }
    return sum;
  }
  double output(std::int64_t k, std::int64_t r, std::int64_t s, const std::vector<double>& inputs,
                const double* weights) const {
    const cpu::WinogradTransform& t = cpu::winograd_transform(m_);
    double sum = a_.bias ? std::abs(static_cast<double>(data_.bias[static_cast<std::size_t>(k)])) : 0;
    for (std::size_t i = 0; i < inputs.size();)
      for_each_step([&](const Product& row, const Product& col) {
        sum += std::abs(t.at[r][row.product] * t.at[s][col.product]) * inputs[i] * weights[i];
        ++i;
      });
    return sum;
  }
  std::size_t place(std::int64_t n, std::int64_t k, std::int64_t row, std::int64_t col) const {
    return static_cast<std::size_t>(a_.layout == Layout::nchw
                                        ? ((n * a_.k + k) * a_.p() + row) * a_.q() + col
                                        : ((n * a_.p() + row) * a_.q() + col) * a_.k + k);
  }

  const ConvProblem& a_;
  int m_;
  const Data& data_;
  cpu::WinogradAxis rows_, cols_;
  std::int64_t steps_;
};

// The largest |computed - exact| over its bound.
double worst_ratio(const ConvProblem& problem, const Executable& executable, int m, const Data& data) {
  std::vector<float> packed(executable.packed_bytes() / sizeof(float));
  executable.pack(data.w.data(), problem.bias ? data.bias.data() : nullptr, packed.data(), nullptr);
  std::vector<float> y(static_cast<std::size_t>(problem.output_elements()));
  executable.run({.x = data.x.data(), .y = y.data()}, packed.data(), nullptr);
  const Magnitudes magnitudes(problem, m, data);
  const std::vector<double> magnitude = magnitudes.all();
  const double nu = std::ldexp(static_cast<double>(cpu::winograd_roundings(m, magnitudes.depth())), -24);
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

double worst_ratio(const ConvProblem& problem, const cpu::WinogradConfig& config, const Data& data) {
  return worst_ratio(problem, *cpu::winograd().build(problem, info(), to_config(config)), config.tile, data);
}

TEST(WinogradError, IsWithinItsBound) {
  double worst[2] = {};
  const int count = problems();
  for (int i = 0; i < count; ++i) {
    const ConvProblem drawn = random_winograd_problem(31, static_cast<std::uint64_t>(i));
    for (const int m : {2, 4}) {
      if (m == 4 && drawn.precision == Precision::fp32) continue;
      const ConvProblem problem = m == 4 ? taken_by_tile_four(drawn) : drawn;
      const Data data(problem, static_cast<std::uint64_t>(i), i % 2 == 1);
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

// As above, for filters that are cut into parts.
TEST(WinogradError, OfPartsIsWithinItsBound) {
  double worst = 0;
  const int count = problems();
  for (int i = 0, found = 0; found < count; ++i) {
    const ConvProblem problem = random_decomposed_problem(33, static_cast<std::uint64_t>(i));
    if (!cpu::winograd().supports(problem, info())) continue;
    const Data data(problem, static_cast<std::uint64_t>(i), found++ % 2 == 1);
    const std::vector<cpu::WinogradConfig> configs = cpu::winograd_candidates(problem, info());
    ASSERT_FALSE(configs.empty()) << to_string(problem);
    const cpu::WinogradConfig& config = configs[static_cast<std::size_t>(i) % configs.size()];
    const double ratio = worst_ratio(problem, config, data);
    EXPECT_LE(ratio, 1) << to_string(problem) << " with " << to_string(to_config(config));
    worst = std::max(worst, ratio);
  }
  EXPECT_GT(worst, 1e-4);
  std::printf("the largest error over its bound: %.4f\n", worst);
}

// As above, with vectors over output channels.
TEST(WinogradError, WithFiltersInVectorsIsWithinItsBound) {
  double worst = 0;
  const int count = problems();
  for (int i = 0, found = 0; found < count; ++i) {
    const auto draw = static_cast<std::uint64_t>(i);
    const ConvProblem problem =
        i % 2 == 0 ? random_winograd_problem(34, draw) : random_decomposed_problem(34, draw);
    if (!cpu::winograd_filters().supports(problem, info())) continue;
    const Data data(problem, draw, found++ % 2 == 1);
    const auto configs = cpu::winograd_filters_candidates(problem, info());
    ASSERT_FALSE(configs.empty()) << to_string(problem);
    const Config config = to_config(configs[static_cast<std::size_t>(i) % configs.size()]);
    const double ratio =
        worst_ratio(problem, *cpu::winograd_filters().build(problem, info(), config), 2, data);
    EXPECT_LE(ratio, 1) << to_string(problem) << " with " << to_string(config);
    worst = std::max(worst, ratio);
  }
  EXPECT_GT(worst, 1e-4);
  std::printf("the largest error over its bound: %.4f\n", worst);
}

// Covers what every algorithm of a problem is held to, by the tuner too.
TEST(WinogradError, IsWithinWhatThePrecisionAllows) {
  const int count = problems();
  for (int i = 0, found = 0; found < count; ++i) {
    const auto draw = static_cast<std::uint64_t>(i);
    const ConvProblem problem = i % 3 == 0   ? random_winograd_problem(32, draw)
                                : i % 3 == 1 ? random_dilated_problem(32, draw)
                                             : random_decomposed_problem(32, draw);
    if (!cpu::winograd().supports(problem, info())) continue;
    ++found;
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
