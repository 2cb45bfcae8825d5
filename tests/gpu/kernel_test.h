// What the GPU tests of our kernels share: a GPU or a reason to skip, configs compiled beforehand, one run on
// host tensors, the first difference from the oracle, and what is expected of every kernel.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/random_bits.h"
#include "cpu/reference.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/compile/compile_all.h"
#include "cuda/cudnn/cudnn.h"
#include "cuda/device/driver.h"
#include "cuda/launch/kernel_algorithm.h"
#include "measure/testbed.h"

namespace convtune {

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

template <class Texts>
std::vector<Conv2dProblem> parsed(const Texts& texts) {
  std::vector<Conv2dProblem> problems;
  for (const auto& text : texts) problems.push_back(parse_problem(text));
  return problems;
}

inline std::vector<float> integers(std::int64_t elements, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(random_bits(seed, i) % 7) - 3);
  return values;
}

class KernelTest : public testing::Test {
 protected:
  // `isa`: the only one that the algorithm is for; "" = any.
  KernelTest(const Algorithm& algorithm, std::string isa) : algorithm_(algorithm), isa_(std::move(isa)) {}

  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no NVIDIA GPU: " << cuda::describe_driver();
    if (!isa_.empty() && device().isa != isa_)
      GTEST_SKIP() << "it is for " << isa_ << ", not " << device().isa;
  }
  Backend& gpu() { return cuda::backend({Device::Kind::cuda, 0}); }
  const DeviceInfo& device() { return gpu().info(); }
  const Algorithm& algorithm() { return algorithm_; }

  struct Case {
    Conv2dProblem problem;
    Config config;
  };
  // The first config and one from anywhere, compiled beforehand by all processors.
  std::vector<Case> cases_of(const std::vector<Conv2dProblem>& problems) {
    std::vector<Case> cases;
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const std::vector<Config> configs = algorithm().candidates(problems[i], device());
      if (configs.empty()) {
        std::cout << to_string(problems[i]) << ": " << algorithm().supports(problems[i], device()).reason()
                  << "\n";
        ++refused_;
        continue;
      }
      cases.push_back({problems[i], configs.front()});
      if (configs.size() > 1)
        cases.push_back({problems[i], configs[1 + random_bits(7, i) % (configs.size() - 1)]});
    }
    compile(cases);
    return cases;
  }
  void compile(const std::vector<Case>& cases) {
    std::vector<cuda::CompileJob> jobs;
    for (const Case& one : cases) {
      const cuda::LaunchPlan plan =
          cuda::kernel_algorithm(algorithm_)->plan(one.problem, device(), one.config);
      jobs.push_back(cuda::compile_job(plan, plan.configs.front()));
    }
    cuda::compile_all(jobs, static_cast<int>(std::thread::hardware_concurrency()), 60);
  }
  Case first_guess(const Conv2dProblem& problem) {
    return {problem, algorithm().candidates(problem, device()).front()};
  }

  int refused_ = 0;  // of those problems

  // The output for host tensors, `shift` floats off every alignment.
  std::vector<float> run(const Case& one, const std::vector<float>& x, const std::vector<float>& w,
                         const std::vector<float>& bias, std::size_t shift = 0) {
    const auto to_device = [&](const std::vector<float>& values) {
      auto block = gpu().allocate((values.size() + shift) * sizeof(float));
      gpu().upload(static_cast<float*>(block.get()) + shift, values.data(), values.size() * sizeof(float));
      return block;
    };
    const auto executable = algorithm().build(one.problem, device(), one.config);
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
    for (std::int64_t n = 0; n < a.n; ++n)
      for (std::int64_t k = 0; k < a.k; ++k)
        for (std::int64_t p = 0; p < a.p(); ++p)
          for (std::int64_t q = 0; q < a.q(); ++q) {
            const std::int64_t i = a.layout == Layout::nchw ? ((n * a.k + k) * a.p() + p) * a.q() + q
                                                            : ((n * a.p() + p) * a.q() + q) * a.k + k;
            const float got = y[static_cast<std::size_t>(i)];
            const double want =
                cpu::oracle(a, x.data(), w.data(), a.bias ? bias.data() : nullptr, n, k, p, q).value;
            if (std::isnan(want) ? !std::isnan(got) : want != got)
              return "y[" + std::to_string(n) + "][" + std::to_string(k) + "][" + std::to_string(p) + "][" +
                     std::to_string(q) + "] is " + std::to_string(got) + ", not " + std::to_string(want);
          }
    return {};
  }

  // On integers; of a large output `samples`, or all of it for 0.
  void expect_exact(const std::vector<Case>& cases, std::int64_t samples) {
    for (const Case& one : cases) {
      Testbed bed(one.problem, gpu(), TestData::integer, 5, samples);
      EXPECT_EQ(bed.check(*algorithm().build(one.problem, device(), one.config)).failure, "") << name(one);
    }
  }
  // More outputs than an int counts, the last among those that are looked at.
  void expect_exact_beyond_int(const std::vector<Case>& cases) {
    for (const Case& one : cases) ASSERT_GT(one.problem.output_elements(), std::int64_t{1} << 31);
    if (device().memory_bytes < std::int64_t{20} << 30) GTEST_SKIP() << "it needs 10 GB";
    expect_exact(cases, 3000);
  }

  // NaN, infinities and what is infinite as TF32 and fp16, in each tensor: no further than the sums reach.
  void expect_strict(const std::vector<Case>& cases) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr float kHuge = std::numeric_limits<float>::max();
    for (const Case& one : cases) {
      const Conv2dProblem& a = one.problem;
      const auto x = integers(a.input_elements(), 1), w = integers(a.weight_elements(), 2),
                 bias = integers(a.k, 3);
      for (const float bad : {kNan, kInf, -kInf, kHuge})
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
            std::fill(bad_x.begin(), bad_x.end(), 0.0f);
          }
          EXPECT_EQ(difference(a, bad_x, bad_w, bad_bias, run(one, bad_x, bad_w, bad_bias)), "")
              << name(one) << ", " << bad << " in tensor " << where;
        }
    }
  }

  // Pointers so many floats off every alignment.
  void expect_any_alignment(const std::vector<Case>& cases,
                            std::initializer_list<std::size_t> shifts = {0, 1, 2}) {
    for (const Case& one : cases) {
      const Conv2dProblem& a = one.problem;
      const auto x = integers(a.input_elements(), 1), w = integers(a.weight_elements(), 2),
                 bias = integers(a.k, 3);
      for (const std::size_t shift : shifts)
        EXPECT_EQ(difference(a, x, w, bias, run(one, x, w, bias, shift)), "")
            << name(one) << ", " << shift << " floats off";
    }
  }

  // Of random numbers, which have no exact sum.
  void expect_same_bits(const Case& one) {
    const Conv2dProblem& a = one.problem;
    std::vector<float> x(static_cast<std::size_t>(a.input_elements())),
        w(static_cast<std::size_t>(a.weight_elements())), bias(static_cast<std::size_t>(a.k));
    for (auto* values : {&x, &w, &bias})
      for (std::size_t i = 0; i < values->size(); ++i)
        (*values)[i] = static_cast<float>(random_bits(11, i) >> 40) * 0x1p-23f - 1;
    const std::vector<float> first = run(one, x, w, bias);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(run(one, x, w, bias), first) << name(one);
  }

 private:
  static std::string name(const Case& one) {
    return to_string(one.problem) + " with " + to_string(one.config);
  }

  const Algorithm& algorithm_;
  const std::string isa_;
};

}  // namespace convtune
