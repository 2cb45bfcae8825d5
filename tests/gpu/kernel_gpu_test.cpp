// Every kernel of the table on a GPU, over the problems of kernel_problems.h that it supports: exact on
// integers, strict about NaN, infinities and padding, on pointers of any alignment, with every activation, as
// precise as it is asked to be, beyond 2^31 outputs, and the same bits in every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "convtune/device.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/base/parallel.h"
#include "cpu/reference/oracle.h"
#include "cuda/backend/cuda.h"
#include "cuda/compile/compile_all.h"
#include "cuda/device/driver.h"
#include "kernel_gpu_problems.h"
#include "measure/testbed.h"
#include "model/target_of.h"
#include "problem/element.h"

namespace convtune::kernel_gpu_test {
namespace {

std::vector<float> integers(std::int64_t elements, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(random_bits(seed, i) % 7) - 3);
  return values;
}

struct Case {
  ConvProblem problem;
  Config config;
};
std::string name(const Case& one) {
  return to_string(one.problem) + " with " + to_string(one.config);
}

struct Tensors {
  explicit Tensors(const ConvProblem& a)
      : x(integers(a.input_elements(), 1)),
        w(integers(a.weight_elements(), 2)),
        bias(integers(a.bias_elements(), 3)),
        residual(integers(a.residual ? a.result_elements() : 0, 4)),
        dy(integers(a.direction == Direction::forward ? 0 : a.output_elements(), 5)) {}
  std::vector<float> x, w, bias, residual, dy;
};

// Returns the oracle's outputs, in the output's type.
std::vector<double> expected(const ConvProblem& a, const Tensors& t) {
  const cpu::HostValues values{.x = t.x.data(),
                               .w = t.w.data(),
                               .bias = a.bias ? t.bias.data() : nullptr,
                               .residual = t.residual.data(),
                               .dy = t.dy.data()};
  std::vector<double> y(static_cast<std::size_t>(a.result_elements()));
  cpu::parallel_for(cpu::backend().info().units, std::ssize(y), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      y[static_cast<std::size_t>(i)] = rounded(a.result_type(), cpu::oracle(a, values, i).value);
  });
  return y;
}

// The first difference from it; small integers are exact, NaN and infinities must agree.
std::string difference(const ConvProblem& a, const std::vector<double>& expected,
                       const std::vector<float>& y) {
  // SiLU and sigmoid are not exact, and tiny where they vanish.
  const bool exact = a.activation != Activation::silu && a.activation != Activation::sigmoid;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double got = y[i], want = expected[i];
    const bool near = !exact && std::abs(got - want) <= 0x1p-7 * std::abs(want) + 0x1p-24;
    if (std::isnan(want) ? !std::isnan(got) : want != got && !near)
      return cpu::name_of_element(a, static_cast<std::int64_t>(i)) + " is " + std::to_string(got) + ", not " +
             std::to_string(want);
  }
  return {};
}

// Cases of one problem, which stand beside each other: its tensors and the oracle's answers serve all.
template <class Visit>
void for_each_problem(const std::vector<Case>& cases, const Visit& visit) {
  for (std::size_t begin = 0, end = 0; begin < cases.size(); begin = end) {
    while (end < cases.size() && cases[end].problem == cases[begin].problem) ++end;
    visit(cases[begin].problem, std::span(cases).subspan(begin, end - begin));
  }
}

class Kernel : public testing::TestWithParam<const cuda::KernelAlgorithm*> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no NVIDIA GPU: " << cuda::describe_driver();
    if (!here(small_problems()).empty()) return;
    const std::string reason = algorithm().supports(small_problems().front(), device()).reason();
    const bool is_for_sm90 = algorithm().name().ends_with("_sm90");
    ASSERT_FALSE(is_for_sm90 ? cuda::needs_sm90(device()) : cuda::needs_sm80(device()))
        << "a GPU that the name says has no problem for it: " << reason;
    GTEST_SKIP() << reason;
  }
  Backend& gpu() { return cuda::backend({Device::Kind::cuda, 0}); }
  const DeviceInfo& device() { return gpu().info(); }
  const cuda::KernelAlgorithm& algorithm() { return *GetParam(); }
  std::vector<ConvProblem> here(std::vector<ConvProblem> problems) {
    return supported(algorithm(), device(), std::move(problems));
  }

  // The first config, `others` from anywhere in the list, one that is made of two of the list where it is
  // accepted, and the first that serves every problem: compiled beforehand by all processors.
  std::vector<Case> cases_of(const std::vector<ConvProblem>& problems, std::size_t others = 1) {
    std::vector<Case> cases;
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const std::vector<Config> configs = algorithm().candidates(problems[i], device());
      EXPECT_FALSE(configs.empty()) << to_string(problems[i]);
      if (configs.empty()) continue;
      Picker pick(i);
      const auto any = [&] { return configs[static_cast<std::size_t>(pick(0, std::ssize(configs) - 1))]; };
      std::vector<Config> chosen = {configs.front()};
      for (std::size_t other = 0; other < others; ++other) chosen.push_back(any());
      Config crossed = any();
      for (const Config mate = any(); auto& [field, value] : crossed.values)
        if (pick(0, 1) == 1) value = mate.at(field);
      if (algorithm().accepts(problems[i], device(), crossed)) chosen.push_back(crossed);
      const auto general = std::find_if(configs.begin(), configs.end(),
                                        [&](const Config& config) { return !algorithm().compiles(config); });
      if (general != configs.end()) chosen.push_back(*general);
      for (std::size_t c = 0; c < chosen.size(); ++c)
        if (std::find(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(c), chosen[c]) ==
            chosen.begin() + static_cast<std::ptrdiff_t>(c))
          cases.push_back({problems[i], chosen[c]});
    }
    compile(cases);
    return cases;
  }
  std::vector<Case> first_guesses(const std::vector<ConvProblem>& problems) {
    std::vector<Case> cases;
    for (const ConvProblem& problem : problems)
      cases.push_back({problem, algorithm().candidates(problem, device()).front()});
    compile(cases);
    return cases;
  }
  // `for_any_pointer`: also their forms for tensors that are not aligned, or each run compiles its own.
  void compile(const std::vector<Case>& cases, bool for_any_pointer = false) {
    std::vector<cuda::CompileJob> jobs;
    for (const Case& one : cases) {
      const cuda::LaunchPlan plan = algorithm().plan(one.problem, device(), one.config);
      if (!for_any_pointer)
        jobs.push_back(cuda::compile_job(plan, plan.configs.front()));
      else if (!plan.config_for_any_pointer.empty())
        jobs.push_back(cuda::compile_job(plan, plan.config_for_any_pointer));
    }
    cuda::compile_all(jobs, static_cast<int>(std::thread::hardware_concurrency()), 60);
  }

  std::unique_ptr<Executable> build(const Case& one) {
    return algorithm().build(one.problem, device(), one.config);
  }
  // The output for host tensors, `shift` elements off every alignment.
  std::vector<float> run(const ConvProblem& problem, const Executable& executable, const Tensors& t,
                         std::size_t shift = 0) {
    const DTypes& types = problem.dtype;
    const auto to_device = [&](DType type, const std::vector<float>& values) {
      const std::vector<unsigned char> bytes = to_bytes(type, values);
      const std::size_t skipped = shift * static_cast<std::size_t>(size_of(type));
      auto block = gpu().allocate(bytes.size() + skipped);
      auto* const begin = static_cast<unsigned char*>(block.get()) + skipped;
      gpu().upload(begin, bytes.data(), bytes.size());
      return std::shared_ptr<void>(block, begin);
    };
    const auto packed = gpu().allocate(executable.packed_bytes());
    const DType type = problem.result_type();
    std::vector<float> y(static_cast<std::size_t>(problem.result_elements()), -1e30f);
    const auto x = to_device(types.x, t.x), w = to_device(types.w, t.w), bias = to_device(types.bias, t.bias),
               residual = to_device(type, t.residual), dy = to_device(types.y, t.dy),
               y_device = to_device(type, y);
    executable.pack(w.get(), problem.bias ? bias.get() : nullptr, packed.get(), nullptr);
    executable.run({.x = x.get(),
                    .residual = residual.get(),
                    .dy = dy.get(),
                    .y = y_device.get(),
                    .dx = y_device.get(),
                    .dw = y_device.get()},
                   packed.get(), nullptr);
    gpu().synchronize(nullptr);
    std::vector<unsigned char> bytes(y.size() * static_cast<std::size_t>(size_of(type)));
    gpu().download(bytes.data(), y_device.get(), bytes.size());
    return to_floats(type, bytes.data(), problem.result_elements());
  }

  static Tensors random_tensors(const ConvProblem& problem, std::uint64_t seed) {
    Tensors t(problem);
    for (auto* values : {&t.x, &t.w, &t.bias, &t.residual, &t.dy})
      for (std::size_t i = 0; i < values->size(); ++i)
        (*values)[i] = static_cast<float>(random_bits(seed, i) >> 40) * 0x1p-23f - 1;
    return t;
  }

  // Checks `samples` of a large output's elements, or all of them for 0.
  void expect_right(const std::vector<Case>& cases, TestData data, std::int64_t samples) {
    for (const Case& one : cases) {
      Testbed bed(one.problem, gpu(), data, 5, samples);
      EXPECT_EQ(bed.check(*build(one)).failure, "") << name(one);
    }
  }
};

TEST_P(Kernel, IsExactOnTheSuites) {
  const std::vector<ConvProblem> problems = suite_layers(algorithm(), device(), 2);
  EXPECT_FALSE(problems.empty()) << "no layer of any suite is for it";
  expect_right(cases_of(problems), TestData::integer, 3000);
}

TEST_P(Kernel, IsExactOnSmallProblems) {
  expect_right(cases_of(here(small_problems()), 3), TestData::integer, 0);
}

TEST_P(Kernel, IsExactTileAfterTile) {
  const std::vector<ConvProblem> problems = here(tile_after_tile_problems());
  if (problems.empty()) GTEST_SKIP() << "none of these is for it";
  expect_right(cases_of(problems), TestData::integer, 20000);
}

TEST_P(Kernel, IsExactOnTheEdges) {
  const std::vector<ConvProblem> problems = edges_for(algorithm(), device());
  EXPECT_GE(problems.size(), kLeastEdges);
  expect_right(cases_of(problems), TestData::integer, 0);
}

TEST_P(Kernel, IsExactOnRandomLayers) {
  const std::vector<ConvProblem> problems = random_layers_for(algorithm(), device());
  EXPECT_GE(problems.size(), kLeastRandomLayers);
  expect_right(cases_of(problems), TestData::integer, 2000);
}

// NaN, infinities and what is infinite as TF32 and fp16, in each tensor: no further than the sums reach.
TEST_P(Kernel, SpreadsNanAndInfinityNoFurtherThanTheSumsReach) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<ConvProblem> problems = here(small_problems());
  // Activations of two outputs may share a reciprocal: a NaN stays in its own, and stays.
  for (ConvProblem one : spread(problems, 2))
    for (const Activation activation : {Activation::silu, Activation::sigmoid}) {
      one.activation = activation;
      problems.push_back(one);
    }
  for_each_problem(cases_of(here(problems)), [&](const ConvProblem& problem, std::span<const Case> cases) {
    std::vector<std::unique_ptr<Executable>> executables;
    for (const Case& one : cases) executables.push_back(build(one));
    // The largest numbers: rounded up, they are infinite in a narrower type.
    const float huge = problem.dtype.x == DType::f16    ? 65504
                       : problem.dtype.x == DType::bf16 ? 0x1.fep127F
                                                        : std::numeric_limits<float>::max();
    for (const float bad : {kNan, kInf, -kInf, huge})
      for (int where = 0; where < 3; ++where) {
        Tensors t(problem);
        std::vector<float>& input = problem.direction == Direction::forward ? t.x : t.dy;
        std::vector<float>& values = where == 0 ? input : where == 1 ? t.w : t.bias;
        values[values.size() / 3] = bad;
        values[values.size() - 1] = bad;
        // Products by 1 and nothing added: exact in spite of its size.
        if (bad == huge) std::fill(t.residual.begin(), t.residual.end(), 0.0f);
        if (bad == huge && where < 2) {
          for (float& other : where == 0 ? t.w : input) other = other > 0 ? 1.0f : 0.0f;
          std::fill(values.begin(), values.end(), 0.0f);
          values[values.size() / 3] = bad;
          std::fill(t.bias.begin(), t.bias.end(), 0.0f);
        } else if (bad == huge) {
          std::fill(input.begin(), input.end(), 0.0f);
        }
        const std::vector<double> want = expected(problem, t);
        for (std::size_t i = 0; i < cases.size(); ++i)
          EXPECT_EQ(difference(problem, want, run(problem, *executables[i], t)), "")
              << name(cases[i]) << ", " << bad << " in tensor " << where;
      }
  });
}

TEST_P(Kernel, TakesBadlyAlignedPointers) {
  const std::vector<Case> all = cases_of(here(small_problems()));
  compile(all, true);
  for_each_problem(all, [&](const ConvProblem& problem, std::span<const Case> cases) {
    const Tensors t(problem);
    const std::vector<double> want = expected(problem, t);
    for (const Case& one : cases) {
      const auto executable = build(one);
      for (const std::size_t shift : {0, 1, 2, 4})
        EXPECT_EQ(difference(problem, want, run(problem, *executable, t, shift)), "")
            << name(one) << ", " << shift << " off";
    }
  });
}

TEST_P(Kernel, AppliesEveryActivation) {
  std::vector<ConvProblem> problems;
  for (const ConvProblem& problem : spread(here(small_problems()), 3))
    for (const ConvProblem& activated : with_each_activation(problem)) problems.push_back(activated);
  problems = here(problems);
  EXPECT_FALSE(problems.empty());
  for (const TestData data : {TestData::integer, TestData::real})
    expect_right(first_guesses(problems), data, 0);
}

TEST_P(Kernel, ErrsNoMoreThanItsPrecisionAllows) {
  std::vector<ConvProblem> problems;
  for (ConvProblem problem : spread(here(small_problems()), 4))
    for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16}) {
      problem.precision = precision;
      problems.push_back(problem);
    }
  expect_right(first_guesses(here(problems)), TestData::real, 0);
}

// More outputs than an int counts, the last among those that are looked at.
TEST_P(Kernel, CountsMoreOutputsThanAnIntCan) {
  if (is_for_weights(algorithm(), device())) GTEST_SKIP() << "its outputs are weights";
  const std::vector<ConvProblem> problems = large_problems(algorithm(), device());
  ASSERT_FALSE(problems.empty()) << "none of these is for it";
  ASSERT_GT(problems.front().result_elements(), std::int64_t{1} << 31);
  if (device().memory_bytes < std::int64_t{20} << 30) GTEST_SKIP() << "it needs 10 GB";
  expect_right(cases_of({problems.front()}, 0), TestData::integer, 3000);
}

// Random numbers have no exact sum: another order of adding would show.
TEST_P(Kernel, GivesTheSameBitsEveryTime) {
  const std::vector<ConvProblem> problems = repeated_layers(algorithm(), device());
  ASSERT_FALSE(problems.empty());
  for (const Case& one : first_guesses(problems)) {
    const Tensors t = random_tensors(one.problem, 11);
    const auto executable = build(one);
    const std::vector<float> first = run(one.problem, *executable, t);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(run(one.problem, *executable, t), first) << name(one);
  }
}

// Two outputs may share a reciprocal, one of which is none: what shared memory held before, here of a run
// with other numbers, must not be in the last bits of the other.
TEST_P(Kernel, GivesTheSameBitsWhateverSharedMemoryHeld) {
  std::vector<ConvProblem> problems;
  for (const char* line : {"mb64ic512ih7oc512kh3ph1 layout=nhwc", "mb32ic256ih14oc256kh3ph1"})
    problems.push_back(parse_problem(std::string(line) + " act=silu residual=1 dtype=bf16 precision=bf16"));
  problems = here(problems);
  if (problems.empty()) GTEST_SKIP() << "none of these is for it";
  for (const Case& one : first_guesses(problems)) {
    const Tensors t = random_tensors(one.problem, 11);
    const auto executable = build(one);
    const std::vector<float> first = run(one.problem, *executable, t);
    for (int i = 0; i < 20; ++i) {
      run(one.problem, *executable, random_tensors(one.problem, 12 + static_cast<std::uint64_t>(i)));
      ASSERT_EQ(run(one.problem, *executable, t), first) << name(one);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Kernel, testing::ValuesIn(own_algorithms()),
                         [](const auto& info) { return std::string(info.param->name()); });

}  // namespace
}  // namespace convtune::kernel_gpu_test
