// What the GPU tests of our kernels share: a GPU or a reason to skip, configs compiled beforehand, one run on
// host tensors, and the first difference from the oracle.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "cpu/reference.h"
#include "cuda/compile_all.h"
#include "cuda/cuda.h"
#include "cuda/driver.h"
#include "random_bits.h"
#include "testbed.h"

namespace convtune {

class KernelTest : public testing::Test {
 protected:
  using Job = std::function<cuda::CompileJob(const Conv2dProblem&, const Config&, const std::string& isa)>;
  // `isa`: the only one that the algorithm is for; "" = any.
  KernelTest(const Algorithm& algorithm, std::string isa, Job job)
      : algorithm_(algorithm), isa_(std::move(isa)), job_(std::move(job)) {}

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
    std::vector<cuda::CompileJob> jobs;
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
    for (const Case& one : cases) jobs.push_back(job_(one.problem, one.config, device().isa));
    cuda::compile_all(jobs, static_cast<int>(std::thread::hardware_concurrency()), 60);
    return cases;
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

 private:
  const Algorithm& algorithm_;
  const std::string isa_;
  const Job job_;
};

inline std::vector<float> integers(std::int64_t elements, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(random_bits(seed, i) % 7) - 3);
  return values;
}

}  // namespace convtune
