// The general tensor-core kernel on a GPU: exact on integers for any problem, strict about NaN, infinities
// and padding, the same bits in every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "convtune/cases.h"
#include "convtune/verify.h"
#include "cpu/reference.h"
#include "cuda/compile_all.h"
#include "cuda/cuda.h"
#include "cuda/driver.h"
#include "cuda/implicit_gemm_sm80.h"
#include "random_bits.h"
#include "testbed.h"

namespace convtune {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kHuge = std::numeric_limits<float>::max();  // as TF32 or fp16 it is infinite

class ImplicitGemm : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no NVIDIA GPU: " << cuda::describe_driver();
  }
  Backend& gpu() { return cuda::backend({Device::Kind::cuda, 0}); }
  const Algorithm& gemm() { return cuda::implicit_gemm_sm80(); }

  // The first guess, and the first of those that serve every problem.
  std::vector<Config> configs_of(const Conv2dProblem& problem) {
    const std::vector<Config> all = gemm().candidates(problem, gpu().info());
    const auto general =
        std::find_if(all.begin(), all.end(), [&](const Config& config) { return !gemm().compiles(config); });
    return {all.front(), *general};
  }

  // The output for host tensors, `shift` floats off every alignment.
  std::vector<float> run(const Conv2dProblem& problem, const Executable& executable,
                         const std::vector<float>& x, const std::vector<float>& w,
                         const std::vector<float>& bias, std::size_t shift = 0) {
    const auto to_device = [&](const std::vector<float>& values) {
      auto block = gpu().allocate((values.size() + shift) * sizeof(float));
      gpu().upload(static_cast<float*>(block.get()) + shift, values.data(), values.size() * sizeof(float));
      return block;
    };
    const auto packed = gpu().allocate(executable.packed_bytes());
    std::vector<float> y(static_cast<std::size_t>(problem.output_elements()), -1e30f);
    const auto on_device = {to_device(x), to_device(w), to_device(bias), to_device(y)};
    const auto at = [&](std::size_t i) { return static_cast<float*>(on_device.begin()[i].get()) + shift; };
    executable.pack(at(1), problem.bias ? at(2) : nullptr, packed.get(), nullptr);
    executable.run(at(0), packed.get(), at(3), nullptr);
    gpu().synchronize(nullptr);
    gpu().download(y.data(), at(3), y.size() * sizeof(float));
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
};

std::vector<float> integers(std::int64_t elements, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(random_bits(seed, i) % 7) - 3);
  return values;
}

// Both layouts; terms in chunks and in a row; pixels by fours and not; groups; every precision.
const char* const kProblems[] = {
    "mb2ic3ih21iw23oc20kh5kw3sh2sw4ph2pw1 precision=tf32 act=relu",
    "mb2ic40ih12oc24kh3ph1 precision=tf32",
    "mb2ic40ih12oc24kh3ph1 precision=tf32 layout=nhwc bias=0 act=relu",
    "mb3ic32ih8oc33kh1 precision=tf32",
    "mb2g3ic15ih9oc21kh3ph2dh1 precision=tf32 layout=nhwc",
    "mb2g6ic6ih13oc12kh5ph2 precision=tf32 pad_bottom=0",
    "mb2ic24ih10oc18kh3ph1 precision=fp32",
    "mb2ic24ih10oc18kh3ph1 precision=fp16 act=relu",
    "mb2ic24ih10oc20kh3ph1 precision=bf16 layout=nhwc",
};

TEST_F(ImplicitGemm, IsExactOnEdges) {
  struct Case {
    Conv2dProblem problem;
    Config config;
  };
  std::vector<Case> cases;
  std::vector<cuda::CompileJob> jobs;
  for (const char* text : kProblems) {
    const Conv2dProblem problem = parse_problem(text);
    const std::vector<Config> all = gemm().candidates(problem, gpu().info());
    for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(all.size() / 8, 1)) {
      cases.push_back({problem, all[i]});
      jobs.push_back(
          cuda::implicit_gemm_sm80_job(cuda::implicit_gemm_sm80_kernel(problem, all[i]), gpu().info().isa));
    }
  }
  cuda::compile_all(jobs, static_cast<int>(std::thread::hardware_concurrency()), 60);
  for (const Case& one : cases) {
    Testbed bed(one.problem, gpu(), TestData::integer, 5, 0);
    EXPECT_EQ(bed.check(*gemm().build(one.problem, gpu().info(), one.config)).failure, "")
        << to_string(one.problem) << " with " << to_string(one.config);
  }
}

TEST_F(ImplicitGemm, IsExactOnRandomProblems) {
  VerifyOptions options;
  options.algorithm = "implicit_gemm_sm80";
  constexpr std::int64_t kAsked = 400;
  const VerifyReport report = verify_random(kAsked, 9, gpu().info().device, options);
  EXPECT_EQ(report.mismatches, 0);
  for (const Mismatch& one : report.failures) ADD_FAILURE() << one.what << "\n" << one.repro;
  // It serves every problem, with one config at least that needs no compiling; more are as many as they are.
  EXPECT_GE(report.checks, kAsked + report.compiled);
  EXPECT_GE(report.compiled, 12);
}

TEST_F(ImplicitGemm, SpreadsNanAndInfinityNoFurtherThanTheSumsReach) {
  for (const char* text : kProblems) {
    const Conv2dProblem a = parse_problem(text);
    const auto x = integers(a.input_elements(), 1), w = integers(a.weight_elements(), 2),
               bias = integers(a.k, 3);
    for (const Config& config : configs_of(a)) {
      const auto executable = gemm().build(a, gpu().info(), config);
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
          }
          EXPECT_EQ(difference(a, bad_x, bad_w, bad_bias, run(a, *executable, bad_x, bad_w, bad_bias)), "")
              << text << " with " << to_string(config) << ", " << bad << " in tensor " << where;
        }
      }
    }
  }
}

TEST_F(ImplicitGemm, TakesBadlyAlignedPointers) {
  for (const char* text : kProblems) {
    const Conv2dProblem a = parse_problem(text);
    const auto x = integers(a.input_elements(), 1), w = integers(a.weight_elements(), 2),
               bias = integers(a.k, 3);
    for (const Config& config : configs_of(a)) {
      const auto executable = gemm().build(a, gpu().info(), config);
      for (const std::size_t shift : {0, 1, 2})
        EXPECT_EQ(difference(a, x, w, bias, run(a, *executable, x, w, bias, shift)), "")
            << text << " with " << to_string(config) << ", " << shift << " floats off";
    }
  }
}

TEST_F(ImplicitGemm, CountsMoreOutputsThanAnIntCan) {
  const Conv2dProblem problem = parse_problem("mb700ic1ih224oc64kh3ph1 precision=tf32");
  ASSERT_GT(problem.output_elements(), std::int64_t{1} << 31);
  if (gpu().info().memory_bytes < std::int64_t{20} << 30) GTEST_SKIP() << "it needs 10 GB";
  Testbed bed(problem, gpu(), TestData::integer, 8, 3000);  // of which the last outputs are some
  for (const Config& config : configs_of(problem))
    EXPECT_EQ(bed.check(*gemm().build(problem, gpu().info(), config)).failure, "") << to_string(config);
}

TEST_F(ImplicitGemm, GivesTheSameBitsEveryTime) {
  for (const char* name : {"resnet_3x3_128", "alexnet_conv2"}) {
    Conv2dProblem problem = find_problem(name);
    problem.n = 4;
    problem.precision = Precision::tf32;
    std::vector<float> x(static_cast<std::size_t>(problem.input_elements())),
        w(static_cast<std::size_t>(problem.weight_elements())), bias(static_cast<std::size_t>(problem.k));
    for (auto* values : {&x, &w, &bias})
      for (std::size_t i = 0; i < values->size(); ++i)
        (*values)[i] = static_cast<float>(random_bits(11, i) >> 40) * 0x1p-23f - 1;
    const auto executable = gemm().build(problem, gpu().info(), configs_of(problem).front());
    const std::vector<float> first = run(problem, *executable, x, w, bias);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(run(problem, *executable, x, w, bias), first) << name;
  }
}

TEST_F(ImplicitGemm, ErrsNoMoreThanItsPrecisionAllows) {
  for (const char* precision : {"fp32", "tf32", "fp16", "bf16"})
    for (const char* layout : {"nchw", "nhwc"}) {
      const Conv2dProblem problem =
          parse_problem("mb2ic128ih20oc64kh3ph1 precision=" + std::string(precision) + " layout=" + layout);
      Testbed bed(problem, gpu(), TestData::real, 3, 3000);
      const auto executable = gemm().build(problem, gpu().info(), configs_of(problem).front());
      EXPECT_EQ(bed.check(*executable).failure, "") << precision << " " << layout;
    }
}

}  // namespace
}  // namespace convtune
