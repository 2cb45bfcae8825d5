// Every algorithm of the CPU: exact on integers, NaN and infinities as the oracle has them, the same bits for
// any number of threads and wherever tensors begin. An algorithm is tested by being in the table; what is
// special to one is in the test of its name.
#include "cpu/algorithms/cpu_algorithms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/launch/cpu_algorithm.h"
#include "measure/testbed.h"
#include "problem/activation.h"
#include "problem/config_fields.h"
#include "problem/random_problem.h"
#include "unit/cpu/amx_model.h"
#include "unit/cpu/real_tensors.h"

namespace {
thread_local std::size_t aligned_bytes = 0;  // this thread has allocated
}  // namespace

// Counts what algorithms take for their working memory.
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  aligned_bytes += bytes;
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace convtune::cpu_algorithms_test {
namespace {

DeviceInfo device(int threads = cpu::backend().info().units) {
  DeviceInfo info = cpu::backend().info();
  info.units = threads;
  return info;
}

// The table of what computes forward (the gradient of weights is in implicit_gemm_wgrad_test.cpp); where the
// processor has no AMX, its algorithm has a model of the tiles.
std::vector<const Algorithm*> own_algorithms() {
  std::vector<const Algorithm*> all = cpu::own_algorithms();
  std::erase(all, &cpu::implicit_gemm_wgrad());
  std::ranges::replace(all, &cpu::amx(), &amx_or_model());
  return all;
}

// Small problems of every kind that some algorithm is made for: strides, dilations, groups, one-sided
// padding, rests of vectors and of tiles, both layouts, each type and activation.
const char* const kProblems[] = {
    // Few channels.
    "mb1ic3ih9iw11oc7kh3sh2ph1 act=relu", "mb2ic2ih6iw7oc5kh3ph1", "mb1ic3ih6iw19oc3kh3 dtype=bf16 act=relu",
    "mb1ic3ih7iw19oc3kh3sh2ph1 dtype=bf16",
    "mb1ic3ih6iw37oc18kh3ph1 layout=nhwc dtype=bf16 act=sigmoid residual=1",
    "mb2ic3ih19oc32kh5sh2ph2 layout=nhwc dtype=bf16", "mb2ic3ih17iw53oc19kh3ph1 dtype=bf16",
    "g2mb1ic4ih6oc6kh3sh2ph2dh1 bias=0 layout=nhwc act=leaky_relu:0.5",
    "g2mb1ic4ih6oc6kh3sh2ph2dh1 bias=0 layout=nhwc dtype=bf16",
    "mb1ic4ih6iw7oc18kh3ph2dh1 dtype=bf16 act=silu",
    // Channels that are summed, and outputs of whole vectors.
    "mb2ic5ih6iw7oc18kh3ph1 layout=nhwc", "mb1ic7ih5iw6oc18kh1 act=silu", "mb1ic4ih6oc5kh1 act=gelu_erf",
    "mb1ic4ih6oc5kh1 layout=nhwc act=hardswish",
    "mb1ic4ih6oc5kh3ph1 layout=nhwc dtype=f16 act=gelu_tanh rounding=eager",
    "mb2ic6ih9oc33kh1 layout=nhwc dtype=bf16 residual=1",
    "mb2ic37ih9oc33kh3ph1 layout=nhwc act=silu residual=1",
    // One channel a group, or few.
    "g16mb1ic16ih9iw17oc16kh3ph1 residual=1 act=relu", "g16mb1ic16ih12oc32kh5sh2ph2",
    "g35mb1ic35ih6iw9oc35kh3ph1 layout=nhwc residual=1", "g5mb2ic5ih9iw37oc5kh3ph1 residual=1 dtype=bf16",
    "g35mb1ic35ih9iw17oc35kh3ph1 dtype=bf16 layout=nhwc residual=1", "g8mb1ic32ih9iw17oc32kh3ph1 layout=nhwc",
    "g9mb1ic36ih6iw9oc36kh3ph1 residual=1 dtype=bf16 layout=nhwc",
    // One row: causal, as long as the image or longer, dilated, of stride 2.
    "g35mb2ic35ih1iw130oc35kh1kw4ph0pw3 pad_right=0 act=silu",
    "g35mb2ic35ih1iw130oc35kh1kw4ph0pw3 pad_right=0 layout=nhwc act=silu residual=1",
    "g35mb1ic35ih1iw300oc35kh1kw31ph0pw15 dtype=bf16",
    "g35mb1ic35ih1iw70oc35kh1kw31ph0pw15 dtype=bf16 layout=nhwc residual=1",
    "g16mb1ic16ih1iw60oc16kh1kw100ph0pw99 pad_right=0 layout=nhwc",
    "g3mb1ic3ih1iw60oc3kh1kw100ph0pw99 pad_right=0", "g3mb1ic3ih1iw301oc3kh1kw9sw2ph0pw4 residual=1",
    "g20mb1ic20ih1iw301oc20kh1kw9ph0pw12dw2 layout=nhwc act=relu",
    // One row between rows of padding alone.
    "g17mb1ic17ih1iw133oc17kh1kw33ph1pw32 act=relu", "g35mb1ic35ih1iw133oc35kh1kw33ph1pw32 layout=nhwc",
    // Fewer products: 3x3 filters, dilated ones, parts of others; rows of a few channels.
    "mb2ic16ih9iw11oc17kh3ph1 precision=tf32 act=relu",
    "g2mb1ic32ih7iw8oc36kh3ph2 precision=fp32 act=clip:-1:1",
    "mb1ic16ih9iw12oc17kh3ph2dh1dw2 precision=tf32 act=relu",
    "mb1ic16ih9iw11oc17kh3ph1 precision=tf32 layout=nhwc", "mb1ic50ih13iw18oc33kh3sh2ph1 precision=fp32",
    "mb1ic40ih7iw16oc20kh3ph1 precision=fp32", "mb1ic3ih29iw31oc33kh7sh2ph3 act=relu",
    "mb1ic3ih33iw27oc32kh11sh4ph2", "mb1ic3ih9iw101oc33kh7sh2ph3",
    "mb2ic3ih9iw19oc17kh3ph1 precision=fp32 act=relu",
    "g2mb1ic8ih7iw18oc36kh3ph2 precision=fp32 act=clip:-1:1", "mb3ic3ih13iw48oc20kh3ph1 precision=fp32",
    // In three dimensions, but computed in two.
    "mb1ic16id5ih6iw7oc33kd3kh1kw1pd2ph0pw0 pad_back=0 residual=1", "mb2ic8id4ih5iw9oc17kd1kh1kw1 act=relu",
    "mb2ic16id3ih9iw11oc17kd1kh3kw3pd0ph1pw1 layout=nhwc precision=tf32",
    "g16mb1ic16id3ih9iw17oc16kd1kh3kw3pd0ph1pw1 layout=nhwc dtype=bf16",
    // In three dimensions: causal, dilated, of strides, frames that see padding alone, one frame of outputs.
    "mb2ic5id3ih6iw7oc18kd3kh3kw3pd2ph1pw1 pad_back=0 residual=1 act=silu",
    "mb1ic4id5ih7iw9oc18kd3kh3kw3pd2ph1pw1dd1 layout=nhwc residual=1",
    "g2mb1ic32id4ih7iw8oc36kd3kh3kw3sd2pd1ph2pw2 precision=fp32 act=clip:-1:1",
    "mb1ic16id3ih9iw11oc17kd3kh3kw3pd0ph1pw1 precision=tf32 act=relu",
    "mb2ic16id5ih7iw18oc17kd3kh3kw3pd2ph1pw1 pad_back=0 precision=fp32 residual=1 act=silu",
    "mb2ic6id2ih9iw10oc33kd2kh3kw3pd3ph1pw1 dtype=bf16 layout=nhwc",
    "mb1ic3id4ih9iw11oc7kd3kh3kw3sd2sh2sw2pd1ph1pw1 dtype=bf16",
    "g16mb2ic16id4ih9iw17oc16kd3kh3kw3pd1ph1pw1 residual=1 act=relu",
    "g8mb1ic8id6ih11iw33oc16kd5kh5kw5sd2sh2sw2pd2ph2pw2 act=silu",
    "g35mb1ic35id3ih6iw9oc35kd3kh3kw3pd2ph1pw1 pad_back=0 layout=nhwc residual=1",
    "g35mb1ic35id2ih9iw17oc35kd3kh3kw3pd4ph1pw1dd1 dtype=bf16 layout=nhwc",
    "g5mb2ic5id4ih9iw37oc5kd3kh3kw3pd1ph1pw1 dtype=bf16 residual=1"};

// One problem of so many is tried: all of them, or fewer where an emulator would take minutes.
std::size_t one_of() {
  const char* const wanted = std::getenv("CONVTUNE_TEST_ONE_OF");
  return wanted ? std::max(1, std::atoi(wanted)) : 1;
}

class CpuAlgorithms : public testing::TestWithParam<const Algorithm*> {
 protected:
  const Algorithm& algorithm() { return *GetParam(); }
  cpu::MemoryPlan memory(const ConvProblem& problem, const Config& config) {
    return dynamic_cast<const cpu::CpuAlgorithm&>(algorithm()).memory(problem, config);
  }
  bool takes(const ConvProblem& problem) { return bool(algorithm().supports(problem, device())); }
  std::vector<ConvProblem> problems() {
    std::vector<ConvProblem> taken;
    for (const char* text : kProblems)
      if (const ConvProblem problem = parse_problem(text); takes(problem)) taken.push_back(problem);
    const std::size_t step = std::clamp(one_of(), std::size_t{1}, std::max(taken.size() / 4, std::size_t{1}));
    for (std::size_t i = 0; i * step < taken.size(); ++i) taken[i] = taken[i * step];
    taken.resize((taken.size() + step - 1) / step);
    return taken;
  }
  // The best candidate, and the best of each other combination of its flags: fields of two or three values.
  std::vector<Config> one_of_each_kind(const ConvProblem& problem) {
    const std::vector<ConfigField> fields = algorithm().fields();
    std::set<std::vector<std::int64_t>> kinds;
    std::vector<Config> some;
    for (const Config& config : algorithm().candidates(problem, device())) {
      std::vector<std::int64_t> flags;
      for (const ConfigField& field : fields)
        if (field.most - field.least <= 2) flags.push_back(config.at(field.name));
      if (kinds.insert(flags).second) some.push_back(config);
    }
    return some;
  }
  std::unique_ptr<Executable> build(const ConvProblem& problem, const Config& config,
                                    int threads = device().units) {
    return algorithm().build(problem, device(threads), config);
  }
};

TEST_P(CpuAlgorithms, HasProblemsToBeTestedOn) {
  EXPECT_GE(problems().size(), 4U);
}

TEST_P(CpuAlgorithms, HasAHashOfItsCode) {
  EXPECT_EQ(algorithm().source_hash().size(), 16U);
}

TEST_P(CpuAlgorithms, RefusesVectorsThatNobodyHas) {
  const ConvProblem problem = problems().front();
  Config config = one_of_each_kind(problem).front();
  const auto bits =
      std::ranges::find(config.values, "vector_bits", [](const auto& field) { return field.first; });
  if (bits == config.values.end()) GTEST_SKIP() << "its vectors are the processor's";
  bits->second = 192;
  EXPECT_NE(algorithm().accepts(problem, device(), config).reason().find("192"), std::string::npos);
}

// A thread that runs nothing else allocates the whole plan, once; every run, what shares out its tasks.
TEST_P(CpuAlgorithms, AllocatesWhatItsPlanSays) {
  for (const ConvProblem& problem : problems())
    for (const Config& config : one_of_each_kind(problem)) {
      const auto executable = build(problem, config, 1);
      const Host host(problem);
      std::size_t first = 0, second = 0;
      std::thread([&] {
        host.run(*executable);
        first = std::exchange(aligned_bytes, 0);
        host.run(*executable);
        second = aligned_bytes;
      }).join();
      EXPECT_EQ(first - second, static_cast<std::size_t>(memory(problem, config).bytes()))
          << to_string(problem) << " with " << to_string(config);
    }
}

TEST_P(CpuAlgorithms, RunsNoImages) {
  for (ConvProblem problem : problems()) {
    problem.n = 0;
    if (!takes(problem)) continue;
    const Host host(problem);
    for (const Config& config : one_of_each_kind(problem)) {
      EXPECT_TRUE(algorithm().estimated_us(problem, device(), config)) << to_string(problem);
      EXPECT_TRUE(host.run(*build(problem, config)).empty())
          << to_string(problem) << " with " << to_string(config);
    }
  }
}

// Extents up to what a problem may have: sizes of memory stay at their greatest, and nothing overflows, as
// the sanitizers see.
TEST_P(CpuAlgorithms, RefusesTooMuchMemoryOfProblemsOfAnySize) {
  int refused = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    ConvProblem problem = parse_problem(kProblems[random_bits(31, i) % std::size(kProblems)]);
    std::uint64_t draw = 100 * i;
    for (std::int64_t* extent :
         {&problem.n, &problem.h, &problem.w, &problem.r, &problem.s, &problem.stride_h, &problem.stride_w,
          &problem.dilation_h, &problem.dilation_w, &problem.pad_top, &problem.pad_left, &problem.pad_bottom,
          &problem.pad_right, &problem.d, &problem.t, &problem.stride_d, &problem.dilation_d,
          &problem.pad_front, &problem.pad_back})
      if (random_bits(37, draw++) % 4 == 0) *extent <<= random_bits(41, draw++) % 40;
    if (random_bits(43, i) % 4 == 0) problem.c <<= random_bits(47, i) % 40;
    if (random_bits(53, i) % 4 == 0) problem.k <<= random_bits(59, i) % 40;
    try {
      validate(problem);
    } catch (const Error&) {
      continue;
    }
    const Support support = algorithm().supports(problem, device());
    refused += support.reason().find("MiB") != std::string::npos;
    for (const Config& config : algorithm().candidates(problem, device())) {
      ASSERT_TRUE(memory(problem, config).fits()) << to_string(problem) << " with " << to_string(config);
      ASSERT_TRUE(algorithm().accepts(problem, device(), config)) << to_string(problem);
    }
  }
  const ConvProblem small = problems().front();
  const bool has_memory = memory(small, one_of_each_kind(small).front()).bytes() > 0;
  EXPECT_EQ(refused > 0, has_memory);
}

TEST_P(CpuAlgorithms, IsExactOnIntegers) {
  std::vector<ConvProblem> all = problems();
  for (const char* suite : {"edges", "depthwise"})
    for (ConvProblem problem : load_suite(suite)) {
      problem.n = std::min<std::int64_t>(problem.n, 2);
      if (problem.flops() < 1e8) all.push_back(problem);
    }
  for (std::uint64_t i = 0; i < 300 / one_of(); ++i) {
    all.push_back(random_problem_of_any_kind(9, i));
    if (i % 4 == 0) all.back().dtype.x = all.back().dtype.w = DType::bf16;
  }
  std::erase_if(all, [&](const ConvProblem& problem) { return problem.n == 0 || !takes(problem); });
  std::uint64_t draw = 0;
  for (const ConvProblem& problem : all) {
    Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
    const std::vector<Config> offered = algorithm().candidates(problem, device());
    ASSERT_FALSE(offered.empty()) << to_string(problem);
    for (int repeat = 0; repeat < 2; ++repeat) {
      const Config& config = offered[random_bits(23, draw++) % offered.size()];
      EXPECT_EQ(bed.check(*build(problem, config)).failure, "")
          << to_string(problem) << " with " << to_string(config);
    }
  }
}

// Changes one number at a time, in each tensor. Over the padding a weight is never multiplied; what overflows
// on the way to a finite output is looked at again.
TEST_P(CpuAlgorithms, SpecialNumbersSpreadExactlyAsInTheOracle) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN(), kHuge = 3e38F;
  std::uint64_t draw = 0;
  for (const ConvProblem& problem : problems()) {
    Host host(problem);
    for (const Config& config : one_of_each_kind(problem)) {
      const auto executable = build(problem, config);
      for (std::vector<float>* tensor : {&host.x, &host.w, &host.bias, &host.residual})
        for (const float special : {kNan, kInf, -kInf, kHuge}) {
          if ((tensor == &host.residual && !problem.residual) || (tensor == &host.bias && !problem.bias))
            continue;
          if (special == kHuge && problem.dtype != DType::f32) continue;
          const std::size_t at = random_bits(5, draw++) % tensor->size();
          const float before = std::exchange((*tensor)[at], special);
          // Beside a huge number a sum may have lost all its digits.
          expect_as_in_oracle(host, host.run(*executable), special != kHuge);
          (*tensor)[at] = before;
        }
    }
  }
}

TEST_P(CpuAlgorithms, SameBitsForAnyNumberOfThreadsWhereverTensorsBegin) {
  for (const ConvProblem& problem : problems())
    for (const Config& config : one_of_each_kind(problem)) {
      const std::vector<float> expected = Host(problem).run(*build(problem, config, 1));
      for (const auto& [threads, shift] : {std::pair{1, 1}, {2, 0}, {2, 4}, {3, 5}, {4, 8}, {16, 15}})
        EXPECT_EQ(Host(problem, shift).run(*build(problem, config, threads)), expected)
            << to_string(problem) << " with " << to_string(config) << ", " << threads << " threads";
    }
}

// Covers outputs that the last part of a vector or the last tile computes twice: a residual is added once.
TEST_P(CpuAlgorithms, TheResidualMayBeTheOutput) {
  for (const ConvProblem& problem : problems())
    for (const Config& config : one_of_each_kind(problem)) {
      if (!problem.residual) continue;
      const auto executable = build(problem, config);
      const Host host(problem);
      EXPECT_EQ(host.run(*executable, true), host.run(*executable))
          << to_string(problem) << " with " << to_string(config);
    }
}

// Six of the pairs of an activation and a residual or none a problem: all of them with three problems.
TEST_P(CpuAlgorithms, FinishesByEveryActivationBesideAResidual) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Activation> activations = all_activations();
  std::size_t pair = 0;
  for (ConvProblem problem : problems()) {
    for (int i = 0; i < 6; ++i, ++pair) {
      problem.activation = activations[pair / 2 % activations.size()];
      problem.residual = pair % 2 == 0;
      problem.alpha = problem.beta = 0;
      if (problem.activation == Activation::clip) problem.alpha = -0.5F, problem.beta = 1.5F;
      if (problem.activation == Activation::leaky_relu) problem.alpha = 0.25F;
      ASSERT_TRUE(takes(problem)) << to_string(problem);
      Host host(problem);
      const std::vector<Config> kinds = one_of_each_kind(problem);
      const Config& config = kinds[pair % kinds.size()];
      SCOPED_TRACE(to_string(problem) + " with " + to_string(config));
      const auto executable = build(problem, config);
      for (const float special : {0.0F, kNan, kInf, -kInf}) {
        host.x[random_bits(31, pair) % host.x.size()] = special;
        host.residual[random_bits(37, pair) % host.residual.size()] = -special;
        const std::vector<float> y = host.run(*executable);
        expect_as_in_oracle(host, y);
        if (!problem.residual) continue;
        const std::vector<float> in_place = host.run(*executable, true);
        EXPECT_EQ(std::memcmp(in_place.data(), y.data(), y.size() * sizeof(float)), 0);
      }
    }
  }
}

TEST_P(CpuAlgorithms, RunsInSeveralThreadsAtOnce) {
  const ConvProblem problem = problems().front();
  const auto executable = build(problem, one_of_each_kind(problem).front());
  const Host host(problem);
  const std::vector<float> expected = host.run(*executable);
  const auto repeat = [&] {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(host.run(*executable), expected);
  };
  std::thread other(repeat);
  repeat();
  other.join();
}

TEST_P(CpuAlgorithms, OffersEachConfigOnce) {
  std::vector<ConvProblem> all = problems();
  for (std::uint64_t i = 0; i < 200; ++i) {
    all.push_back(random_problem_of_any_kind(5, i));
    if (i % 2 == 0) all.back().dtype.x = all.back().dtype.w = DType::bf16;
  }
  for (const ConvProblem& problem : all) {
    const std::vector<Config> offered = algorithm().candidates(problem, device());
    std::set<std::string> texts;
    for (const Config& config : offered) texts.insert(to_string(config));
    EXPECT_EQ(texts.size(), offered.size()) << to_string(problem);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, CpuAlgorithms, testing::ValuesIn(own_algorithms()),
                         [](const auto& info) { return std::string(info.param->name()); });

}  // namespace
}  // namespace convtune::cpu_algorithms_test
