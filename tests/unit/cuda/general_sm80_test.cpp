// The kernel that takes everything, without a GPU: its own code over host memory against the oracle, that it
// refuses nothing, compiles for all of it, and is chosen where nothing else can.
#include <gtest/gtest.h>

#include <vector>

#include "cpu/reference/oracle.h"
#include "cuda/algorithms/general_sm80/config.h"
#include "kernel_expectations.h"
#include "plan/planner.h"
#include "problem/random_problem.h"

namespace convtune::general_sm80_test {
namespace {

std::vector<float> integers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(random_bits(seed, i) % 7) - 3);
  return values;
}

// A problem's tensors, its numbers as the kernel is told them, and what every result must be.
struct Emulation {
  explicit Emulation(const ConvProblem& problem)
      : problem(problem),
        numbers(cuda::numbers_of(problem)),
        x(integers(problem.input_elements(), 1)),
        w(integers(problem.weight_elements(), 2)),
        dy(integers(problem.output_elements(), 3)),
        bias(static_cast<std::size_t>(problem.bias_elements())),
        residual(static_cast<std::size_t>(problem.result_elements())) {}

  double oracle(std::int64_t index) const {
    return cpu::oracle(problem, {x.data(), w.data(), bias.data(), residual.data(), dy.data()}, index).sum;
  }
  // Every result by the threads of a kernel, none of them twice.
  template <GeneralSm80 config, class Index>
  void expect_right() const {
    const bool forward = config.forward();
    const std::vector<float>& input = forward ? x : dy;
    std::vector<float> packed(w.size());
    for (std::size_t i = 0; i < packed.size(); ++i)
      packed[i] = w.at(static_cast<std::size_t>(config.source_of(numbers, static_cast<long long>(i))));
    std::vector<int> stored(forward ? dy.size() : x.size());
    const long long items = numbers.n * config.channel_threads(numbers) * config.position_threads(numbers);
    ASSERT_LE(items, config.blocks(numbers, false) * GeneralSm80::kThreads);
    for (long long item = 0; item < items; ++item) {
      GeneralResults<config, Index> results(numbers, static_cast<Index>(item));
      const auto read = [&](Index offset) { return input.at(static_cast<std::size_t>(offset)); };
      results.add(
          numbers, read, [&](Index offset) { return packed.at(static_cast<std::size_t>(offset)); }, read);
      for (int filter = 0; filter < results.filters(numbers); ++filter)
        for (int pixel = 0; pixel < config.pixels; ++pixel) {
          if (!results.exists[pixel]) continue;
          const auto to = static_cast<std::size_t>(results.offset(numbers, filter, pixel));
          ++stored.at(to);
          ASSERT_EQ(static_cast<double>(results.sums[filter][pixel]), oracle(static_cast<std::int64_t>(to)))
              << to_string(problem) << " at " << to;
        }
    }
    for (const int times : stored) ASSERT_EQ(times, 1) << to_string(problem);
  }
  template <GeneralSm80 config, class Index>
  void expect_right_gradients() const {
    std::vector<int> stored(w.size() + (problem.bias ? bias.size() : 0));
    for (long long block = 0; block < config.blocks(numbers, problem.bias); ++block) {
      std::vector<float> sums(GeneralSm80::kThreads);
      for (int thread = GeneralSm80::kThreads - 1; thread >= 0; --thread) {
        const GeneralGradient<config, Index> gradient(numbers, static_cast<Index>(block), thread);
        float& sum = sums[static_cast<std::size_t>(thread % config.pairs_abreast())];
        sum += gradient.sum(
            numbers, thread, [&](Index offset) { return x.at(static_cast<std::size_t>(offset)); },
            [&](Index offset) { return dy.at(static_cast<std::size_t>(offset)); });
        if (thread >= config.pairs_abreast() || !gradient.exists) continue;
        const auto to =
            static_cast<std::size_t>(gradient.offset(numbers)) + (gradient.of_bias ? w.size() : 0);
        ++stored.at(to);
        ASSERT_EQ(static_cast<double>(sum), oracle(static_cast<std::int64_t>(to)))
            << to_string(problem) << " at " << to;
      }
    }
    for (const int times : stored) ASSERT_EQ(times, 1) << to_string(problem);
  }

  template <ConvDirection direction, bool nhwc>
  void expect_right() const {
    if constexpr (direction == ConvDirection::backward_weights) {
      expect_right_gradients<GeneralSm80{.direction = direction, .nhwc = nhwc}, int>();
      expect_right_gradients<GeneralSm80{.direction = direction, .nhwc = nhwc, .wide = true}, long long>();
    } else {
      expect_right<GeneralSm80{.direction = direction, .nhwc = nhwc}, int>();
      expect_right<GeneralSm80{.direction = direction, .nhwc = nhwc, .filters = 4, .pixels = 4}, int>();
      expect_right<GeneralSm80{.direction = direction, .nhwc = nhwc, .filters = 2, .pixels = 1}, int>();
      expect_right<GeneralSm80{.direction = direction, .nhwc = nhwc, .wide = true, .filters = 1, .pixels = 2},
                   long long>();
    }
  }
  template <ConvDirection direction>
  void expect_right() const {
    problem.layout == Layout::nhwc ? expect_right<direction, true>() : expect_right<direction, false>();
  }

  const ConvProblem problem;
  const ConvNumbers numbers;
  std::vector<float> x, w, dy, bias, residual;
};

TEST(GeneralSm80, ComputesEveryResultOnceAsTheOracleDoes) {
  int of_direction[3] = {}, with_depth = 0;
  for (std::uint64_t i = 0; i < 2400; ++i) {
    const ConvProblem problem = random_problem_of_any_kind(11, i, 1e4);
    const Emulation emulation(problem);
    ++of_direction[static_cast<int>(problem.direction)];
    with_depth += problem.has_depth();
    switch (problem.direction) {
      case Direction::forward:
        emulation.expect_right<ConvDirection::forward>();
        break;
      case Direction::backward_data:
        emulation.expect_right<ConvDirection::backward_data>();
        break;
      case Direction::backward_weights:
        emulation.expect_right<ConvDirection::backward_weights>();
        break;
    }
    if (HasFatalFailure()) return;
  }
  for (const int problems : of_direction) EXPECT_GE(problems, 100);
  EXPECT_GE(with_depth, 100);
}

TEST(GeneralSm80, RefusesNothing) {
  const Algorithm& algorithm = cuda::general_sm80();
  for (const ComputeCapability capability : kCapabilities)
    for (std::uint64_t i = 0; i < 300; ++i) {
      const ConvProblem problem = random_problem_of_any_kind(5, i);
      ASSERT_TRUE(algorithm.supports(problem, gpu(capability))) << to_string(problem);
      for (const Config& config : algorithm.candidates(problem, gpu(capability)))
        ASSERT_TRUE(algorithm.accepts(problem, gpu(capability), config)) << to_string(problem);
    }
  for (const char* text :
       {"mb1ic1ih1iw3000000000oc1kh1kw3 dtype=f16", "mb70000g2ic2iw9oc4kw3 dtype=bf16",
        "mb1ic3id70iw70ih70oc3000000kd3kh3kw3 layout=nhwc", "mb0ic3id7iw7ih7oc3kd3kh3kw3 dir=bwd_w"}) {
    const ConvProblem problem = tf32(text);
    EXPECT_TRUE(algorithm.supports(problem, gpu())) << text;
    const std::vector<Config> configs = algorithm.candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    EXPECT_GT(*algorithm.estimated_us(problem, gpu(), configs.front()), 0) << text;
  }
  EXPECT_FALSE(algorithm.supports(tf32("ic3ih9oc3kh3"), gpu({7, 5})));
}

TEST(GeneralSm80, CompilesForEverything) {
  std::vector<PlannedKernel> kernels;
  for (const char* text :
       {"ic8ih9oc8kh3ph1 dtype=f16 layout=nhwc act=silu residual=1",
        "ic8ih9oc8kh3ph1 dtype=bf16 rounding=eager",
        "ic8id5ih9iw9oc8kd3kh3kw3 dtype=bf16:f16:f32:bf16 act=gelu_erf residual=1 rounding=eager",
        "ic8ih9oc8kh3ph1 dir=bwd_d dtype=bf16", "ic8ih9oc8kh3ph1 dir=bwd_d layout=nhwc",
        "ic8ih9oc8kh3ph1 dir=bwd_w dtype=f16 layout=nhwc", "ic8ih9oc8kh3ph1 dir=bwd_w bias=0",
        "mb1ic1ih1iw3000000000oc1kh1kw3 dtype=f16", "mb1ic1ih1iw3000000000oc1kh1kw3 dir=bwd_w"}) {
    const ConvProblem problem = tf32(text);
    for (const ComputeCapability capability : {ComputeCapability{8, 0}, {9, 0}})
      kernels.push_back(
          {problem, cuda::general_sm80().candidates(problem, gpu(capability)).back(), capability});
  }
  expect_compiles_as_planned(*cuda::kernel_algorithm(cuda::general_sm80()), kernels);
}

// A kernel that is made for a layer is forecast to take less, and so the planner takes it. (Of the smallest
// problems, which are all launch, any may be the best.)
TEST(GeneralSm80, IsChosenWhereNothingElseCan) {
  std::vector<ConvProblem> problems = suite_problems(256);
  for (ConvProblem problem : suite_problems(256)) {
    problem.dtype = DType::bf16, problem.precision = Precision::bf16, problem.layout = Layout::nhwc;
    problems.push_back(problem);
  }
  for (const ConvProblem& problem : problems) {
    bool others = false;
    for (const cuda::KernelAlgorithm* other : own_algorithms())
      others = others || (other->name() != "general_sm80" && other->supports(problem, gpu()));
    EXPECT_EQ(first_guess(problem, gpu(), true).algorithm == "general_sm80", !others) << to_string(problem);
  }
  EXPECT_EQ(first_guess(tf32("ic8id9ih9iw9oc8kd3kh3kw3sd2sh2sw2dd1dh1dw1 layout=nhwc dir=bwd_d"), gpu(), true)
                .algorithm,
            "general_sm80");
}

}  // namespace
}  // namespace convtune::general_sm80_test
