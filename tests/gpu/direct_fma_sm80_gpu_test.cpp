// The direct kernel on CUDA cores, on a GPU: exact on integers, strict about NaN, infinities and padding, on
// pointers of any alignment, and beyond 2^31 outputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "convtune/cases.h"
#include "cpu/reference.h"
#include "cuda/compile_all.h"
#include "cuda/cuda.h"
#include "cuda/direct_fma_sm80.h"
#include "cuda/driver.h"
#include "random_bits.h"
#include "testbed.h"

namespace convtune {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kHuge = std::numeric_limits<float>::max();

// Numbers low to high, one after the other.
class Picker {
 public:
  explicit Picker(std::uint64_t seed) : seed_(seed) {}
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_bits(seed_, position_++) %
                                           static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::uint64_t seed_, position_ = 0;
};

Conv2dProblem random_problem(std::uint64_t index) {
  Picker pick(index);
  Conv2dProblem a;
  const bool stem = index % 4 == 0;
  a.groups = stem ? 1 : pick(1, 9);
  a.n = pick(1, 5), a.c = a.groups * pick(1, 4), a.k = a.groups * pick(1, stem ? 40 : 9);
  a.r = pick(1, 4), a.s = pick(1, 4);
  if (a.c == a.groups && index % 3 == 0) a.r = pick(1, 11), a.s = pick(1, 11);
  a.stride_h = pick(1, 3), a.stride_w = pick(1, 3);
  a.dilation_h = index % 5 == 0 ? pick(1, 3) : 1, a.dilation_w = index % 5 == 0 ? pick(1, 3) : 1;
  a.pad_top = pick(0, a.r), a.pad_bottom = pick(0, a.r), a.pad_left = pick(0, a.s),
  a.pad_right = pick(0, a.s);
  a.h = a.dilation_h * (a.r - 1) + pick(1, 30), a.w = a.dilation_w * (a.s - 1) + pick(1, 40);
  if (index % 2 == 0) a.w = (a.w + 3) / 4 * 4;
  a.bias = pick(0, 3) > 0;
  a.activation = pick(0, 1) == 1 ? Activation::relu : Activation::none;
  a.precision = Precision::fp32;
  return a;
}

class DirectFma : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no NVIDIA GPU: " << cuda::describe_driver();
  }
  Backend& gpu() { return cuda::backend({Device::Kind::cuda, 0}); }
  const DeviceInfo& device() { return gpu().info(); }
  const Algorithm& fma() { return cuda::direct_fma_sm80(); }

  struct Case {
    Conv2dProblem problem;
    Config config;
  };
  // For each problem the first guess and some of all that it accepts, compiled beforehand by all processors.
  std::vector<Case> cases_of(const std::vector<Conv2dProblem>& problems, int others = 3) {
    std::vector<Case> cases;
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const std::vector<Config> configs = fma().candidates(problems[i], device());
      EXPECT_FALSE(configs.empty()) << to_string(problems[i])
                                    << fma().supports(problems[i], device()).reason();
      if (configs.empty()) continue;
      cases.push_back({problems[i], configs.front()});
      Picker pick(1000 + i);
      for (int found = 0, tried = 0; found < others && tried < 5000; ++tried) {
        Config config;
        for (const auto& [name, most] :
             {std::pair{"rows", 8}, {"filters", 8}, {"down", 6}, {"units", 5}, {"chunks", 5}, {"passes", 6}})
          config.values.emplace_back(name, pick(1, most));
        for (const char* name : {"kept", "uniform", "staged"}) config.values.emplace_back(name, pick(0, 1));
        // Few are; one in two is wanted.
        if (found % 2 == 1 && config.at("kept") == 0 && tried < 3000) continue;
        if (!fma().accepts(problems[i], device(), config)) continue;
        cases.push_back({problems[i], config});
        ++found;
      }
    }
    std::vector<cuda::CompileJob> jobs;
    for (const Case& one : cases)
      jobs.push_back(
          cuda::direct_fma_sm80_job(cuda::direct_fma_sm80_kernel(one.problem, one.config), device().isa));
    cuda::compile_all(jobs, static_cast<int>(std::thread::hardware_concurrency()), 60);
    return cases;
  }

  void expect_exact(const Case& one) {
    Testbed bed(one.problem, gpu(), TestData::integer, 5, 3000);
    EXPECT_EQ(bed.check(*fma().build(one.problem, device(), one.config)).failure, "")
        << to_string(one.problem) << " with " << to_string(one.config);
  }

  // The output for host tensors, `shift` floats off every alignment.
  std::vector<float> run(const Case& one, const std::vector<float>& x, const std::vector<float>& w,
                         const std::vector<float>& bias, std::size_t shift = 0) {
    const auto to_device = [&](const std::vector<float>& values) {
      auto block = gpu().allocate((values.size() + shift) * sizeof(float));
      gpu().upload(static_cast<float*>(block.get()) + shift, values.data(), values.size() * sizeof(float));
      return block;
    };
    const auto executable = fma().build(one.problem, device(), one.config);
    const auto packed = gpu().allocate(executable->packed_bytes());
    std::vector<float> y(static_cast<std::size_t>(one.problem.output_elements()), -1e30f);
    const auto x_device = to_device(x), w_device = to_device(w), bias_device = to_device(bias),
               y_device = to_device(y);
    executable->pack(static_cast<float*>(w_device.get()) + shift,
                     one.problem.bias ? static_cast<float*>(bias_device.get()) + shift : nullptr,
                     packed.get(), nullptr);
    float* const y_at = static_cast<float*>(y_device.get()) + shift;
    executable->run(static_cast<float*>(x_device.get()) + shift, packed.get(), y_at, nullptr);
    gpu().synchronize(nullptr);
    gpu().download(y.data(), y_at, y.size() * sizeof(float));
    return y;
  }

  // The first difference from the oracle; small integers are exact, NaN and infinities must agree.
  static std::string difference(const Conv2dProblem& a, const std::vector<float>& x,
                                const std::vector<float>& w, const std::vector<float>& bias,
                                const std::vector<float>& y) {
    std::size_t i = 0;
    for (std::int64_t n = 0; n < a.n; ++n)
      for (std::int64_t k = 0; k < a.k; ++k)
        for (std::int64_t p = 0; p < a.p(); ++p)
          for (std::int64_t q = 0; q < a.q(); ++q, ++i) {
            const double want =
                cpu::oracle(a, x.data(), w.data(), a.bias ? bias.data() : nullptr, n, k, p, q).value;
            if (std::isnan(want) ? !std::isnan(y[i]) : want != y[i])
              return "y[" + std::to_string(n) + "][" + std::to_string(k) + "][" + std::to_string(p) + "][" +
                     std::to_string(q) + "] is " + std::to_string(y[i]) + ", not " + std::to_string(want);
          }
    return {};
  }
};

std::vector<float> integers(std::int64_t elements, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(random_bits(seed, i) % 7) - 3);
  return values;
}

TEST_F(DirectFma, IsExactOnTheSuites) {
  std::vector<Conv2dProblem> problems;
  for (const char* suite : {"depthwise", "stem", "edges"})
    for (Conv2dProblem problem : load_suite(suite)) {
      problem.n = std::min<std::int64_t>(problem.n, 2);
      if (fma().supports(problem, device())) problems.push_back(problem);
    }
  EXPECT_GE(problems.size(), 9u);
  for (const Case& one : cases_of(problems, 2)) expect_exact(one);
}

TEST_F(DirectFma, IsExactOnRandomProblems) {
  std::vector<Conv2dProblem> problems;
  for (std::uint64_t i = 0; i < 60; ++i) problems.push_back(random_problem(i));
  const std::vector<Case> cases = cases_of(problems);
  EXPECT_GT(std::count_if(cases.begin(), cases.end(), [](const Case& c) { return c.config.at("kept") == 1; }),
            10);
  for (const Case& one : cases) expect_exact(one);
}

const char* const kStrictProblems[] = {
    "mb2g3ic3ih13iw17oc6kh3kw5sh1sw2ph1pw2 precision=fp32 act=relu",
    "mb2g2ic8ih12iw16oc8kh3ph1 precision=tf32",
    "mb2ic1ih9iw11oc10kh5ph2 precision=bf16 bias=0",
    "mb5g4ic4ih7oc4kh3ph1 precision=fp32",
};

TEST_F(DirectFma, SpreadsNanAndInfinityNoFurtherThanTheSumsReach) {
  std::vector<Conv2dProblem> problems;
  for (const char* text : kStrictProblems) problems.push_back(parse_problem(text));
  for (const Case& one : cases_of(problems)) {
    const Conv2dProblem& a = one.problem;
    const auto x = integers(a.input_elements(), 1), w = integers(a.weight_elements(), 2),
               bias = integers(a.k, 3);
    for (const float bad : {kNan, kInf, -kInf, kHuge}) {
      for (int where = 0; where < 3; ++where) {
        auto bad_x = x, bad_w = w, bad_bias = bias;
        auto& values = where == 0 ? bad_x : where == 1 ? bad_w : bad_bias;
        values[values.size() / 3] = bad;
        values[values.size() - 1] = bad;
        // Products by 1 and nothing added: exact in spite of its size.
        if (bad == kHuge && where < 2) {
          auto& others = where == 0 ? bad_w : bad_x;
          for (float& other : others) other = other > 0 ? 1.0f : 0.0f;
          std::fill(values.begin(), values.end(), 0.0f);
          values[values.size() / 3] = bad;
          std::fill(bad_bias.begin(), bad_bias.end(), 0.0f);
        } else if (bad == kHuge) {
          for (float& other : bad_x) other = 0;
        }
        EXPECT_EQ(difference(a, bad_x, bad_w, bad_bias, run(one, bad_x, bad_w, bad_bias)), "")
            << to_string(a) << " with " << to_string(one.config) << ", " << bad << " in tensor " << where;
      }
    }
  }
}

TEST_F(DirectFma, TakesBadlyAlignedPointers) {
  std::vector<Conv2dProblem> problems;
  for (const char* text : kStrictProblems) problems.push_back(parse_problem(text));
  problems.push_back(parse_problem("mb2g4ic4ih8iw16oc4kh3ph1 precision=fp32"));
  for (const Case& one : cases_of(problems)) {
    const Conv2dProblem& a = one.problem;
    const auto x = integers(a.input_elements(), 1), w = integers(a.weight_elements(), 2),
               bias = integers(a.k, 3);
    for (const std::size_t shift : {0, 1, 2})
      EXPECT_EQ(difference(a, x, w, bias, run(one, x, w, bias, shift)), "")
          << to_string(a) << " with " << to_string(one.config) << ", " << shift << " floats off";
  }
}

TEST_F(DirectFma, CountsMoreOutputsThanAnIntCan) {
  const Conv2dProblem problem = parse_problem("mb700ic1ih224oc64kh3ph1 precision=fp32");
  ASSERT_GT(problem.output_elements(), std::int64_t{1} << 31);
  Testbed bed(problem, gpu(), TestData::integer, 8, 3000);  // of which the last outputs are some
  const Config config = fma().candidates(problem, device()).front();
  EXPECT_EQ(bed.check(*fma().build(problem, device(), config)).failure, "");
}

}  // namespace
}  // namespace convtune
