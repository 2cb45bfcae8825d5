// oneDNN through our eyes: both variants against the oracle, exactly; concurrent runs; refusals.
#include "cpu/onednn/onednn.h"

#include <gtest/gtest.h>
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <map>
#include <thread>

#include "cpu/onednn/onednn_faults.h"
#include "cpu/onednn/onednn_patience.h"
#include "host_tensors.h"
#include "measure/testbed.h"
#include "problem/random_problem.h"

namespace convtune::onednn_test {
namespace {

class Onednn : public testing::Test {
 protected:
  void SetUp() override {
    if (cpu::onednn() == nullptr) GTEST_SKIP() << "oneDNN: " << cpu::onednn_version();
  }
  const DeviceInfo& device() { return cpu::backend().info(); }
};

Config blocked(std::int64_t value) {
  return Config{{{"blocked", value}}};
}

TEST_F(Onednn, BothVariantsEqualTheOracleOnRandomProblems) {
  int runs = 0, nhwc = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    ConvProblem problem = random_problem(21, i, 1e5);
    if (i % 2 == 1) problem.layout = Layout::nhwc;
    const HostTensors tensors = small_integers(problem, i);
    const std::vector<float> expected = oracle_output(problem, tensors);
    for (const Config& config : cpu::onednn()->candidates(problem, device())) {
      const auto executable = cpu::onednn()->build(problem, device(), config);
      const auto packed = pack(*executable, tensors);
      if (problem.n == 0) continue;  // never reaches run()
      ASSERT_EQ(run(problem, *executable, tensors, packed.get()), expected)
          << to_string(problem) << " with " << config.at("blocked");
      ++runs;
      nhwc += problem.layout == Layout::nhwc;
    }
  }
  EXPECT_GT(runs, 400);
  EXPECT_GT(nhwc, 150);
}

// Half precision where the processor has it, three dimensions, residuals, every activation.
TEST_F(Onednn, EqualsTheOracleOnProblemsOfAnyKind) {
  std::map<Activation, int> activations;
  int halves = 0, residuals = 0, depths = 0;
  for (std::uint64_t i = 0; i < 1600; ++i) {
    ConvProblem problem = random_problem_of_any_kind(22, i, 1e5);
    problem.direction = Direction::forward;
    problem.rounding = Rounding::once;
    if (problem.precision == Precision::automatic) problem.precision = Precision::fp32;
    const std::vector<Config> configs = cpu::onednn()->candidates(problem, device());
    if (configs.empty()) continue;
    for (const TestData data : {TestData::integer, TestData::real}) {
      Testbed bed(problem, cpu::backend(), data, i, 500);
      for (const Config& config : configs)
        EXPECT_EQ(bed.check(*cpu::onednn()->build(problem, device(), config)).failure, "")
            << to_string(problem) << " with " << to_string(config);
    }
    ++activations[problem.activation];
    halves += problem.dtype.x != DType::f32;
    residuals += problem.residual;
    depths += problem.has_depth();
  }
  EXPECT_EQ(activations.size(), 9U);
  EXPECT_GT(residuals, 20);
  EXPECT_GT(depths, 20);
  RecordProperty("halves", halves);  // none before AVX-512
}

// NaN and infinities in every tensor, and denormal numbers.
TEST_F(Onednn, EqualsTheOracleOnSpecialNumbers) {
  std::map<Activation, int> activations;
  for (std::uint64_t i = 0; i < 1600; ++i) {
    ConvProblem problem = random_problem_of_any_kind(23, i, 1e5);
    problem.direction = Direction::forward;
    problem.rounding = Rounding::once;
    if (problem.precision == Precision::automatic) problem.precision = Precision::fp32;
    const std::vector<Config> configs = cpu::onednn()->candidates(problem, device());
    if (configs.empty()) continue;
    Testbed bed(problem, cpu::backend(), i % 4 == 0 ? TestData::denormal : TestData::non_finite, i, 500);
    for (const Config& config : configs)
      EXPECT_EQ(bed.check(*cpu::onednn()->build(problem, device(), config)).failure, "")
          << to_string(problem) << " with " << to_string(config);
    ++activations[problem.activation];
  }
  EXPECT_EQ(activations.size(), 9U);
}

TEST_F(Onednn, KeepsNaNThroughReluAndClip) {
  for (const char* text : {"mb1ic8id5ih9iw9oc8kd3kh3kw3pd1ph1pw1 act=relu", "mb1ic8ih12oc8kh3ph1 act=relu",
                           "mb1ic8ih12oc8kh3ph1 act=clip:0:6", "mb1ic8ih12oc8kh3ph1 act=leaky_relu:0",
                           "mb1ic8ih12oc8kh3ph1 act=sigmoid"}) {
    const ConvProblem problem = parse_problem(text);
    HostTensors tensors = small_integers(problem, 1);
    tensors.x[problem.input_elements() / 2] = std::numeric_limits<float>::quiet_NaN();
    const auto count = [](const std::vector<float>& y) {
      return std::ranges::count_if(y, [](float value) { return std::isnan(value); });
    };
    const auto expected = count(oracle_output(problem, tensors));
    EXPECT_GT(expected, 0);
    for (const Config& config : cpu::onednn()->candidates(problem, device())) {
      const auto executable = cpu::onednn()->build(problem, device(), config);
      EXPECT_EQ(count(run(problem, *executable, tensors, pack(*executable, tensors).get())), expected)
          << text << " with " << to_string(config);
    }
  }
}

// It multiplied padding.
TEST_F(Onednn, PaddingMakesNothingOfAnInfiniteWeight) {
  for (const char* activation : {"none", "clip:0:6"}) {
    const ConvProblem problem =
        parse_problem(std::string("g9mb2ic18id8ih3iw3oc9kd3kh3kw5sd3sh1sw8pd1ph0pw10 act=") + activation);
    HostTensors tensors = small_integers(problem, 1);
    tensors.w[4] = std::numeric_limits<float>::infinity();
    const std::vector<float> expected = oracle_output(problem, tensors);
    for (const Config& config : cpu::onednn()->candidates(problem, device())) {
      const auto executable = cpu::onednn()->build(problem, device(), config);
      const std::vector<float> got = run(problem, *executable, tensors, pack(*executable, tensors).get());
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
            << to_string(problem) << ": " << i << " is " << got[i] << ", not " << expected[i];
    }
  }
}

// The residual may lie where y does.
TEST_F(Onednn, AddsAResidualInPlaceBesideNaN) {
  const ConvProblem problem = parse_problem("mb1ic8ih12oc8kh3ph1 act=relu residual=1");
  if (!cpu::onednn()->supports(problem, device())) GTEST_SKIP() << "it takes no residual";
  HostTensors tensors = small_integers(problem, 1);
  tensors.x[0] = tensors.w[0] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> residual(problem.output_elements());
  for (std::size_t i = 0; i < residual.size(); ++i) residual[i] = static_cast<float>(i % 5);
  for (const Config& config : cpu::onednn()->candidates(problem, device())) {
    const auto executable = cpu::onednn()->build(problem, device(), config);
    std::vector<float> y = residual;
    executable->run({.x = tensors.x.data(), .residual = y.data(), .y = y.data()},
                    pack(*executable, tensors).get(), nullptr);
    const cpu::HostValues values{tensors.x.data(), tensors.w.data(), tensors.bias.data(), residual.data()};
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto expected =
          static_cast<float>(cpu::oracle(problem, values, static_cast<std::int64_t>(i)).value);
      EXPECT_TRUE(y[i] == expected || (std::isnan(y[i]) && std::isnan(expected))) << i;
    }
  }
}

// One executable, four threads of the program, two sets of weights and an input each.
TEST_F(Onednn, RunsConcurrently) {
  const ConvProblem problem{.n = 2,
                            .c = 19,
                            .h = 23,
                            .w = 17,
                            .k = 37,
                            .r = 3,
                            .s = 3,
                            .pad_top = 1,
                            .pad_left = 1,
                            .pad_bottom = 1,
                            .pad_right = 1,
                            .activation = Activation::relu};
  for (const std::int64_t variant : {0, 1}) {
    const auto executable = cpu::onednn()->build(problem, device(), blocked(variant));
    std::vector<HostTensors> tensors;
    std::vector<std::vector<float>> expected;
    std::vector<std::shared_ptr<void>> packed;
    for (int i = 0; i < 4; ++i) {
      tensors.push_back(small_integers(problem, 100 + i));
      expected.push_back(oracle_output(problem, tensors[i]));
      packed.push_back(pack(*executable, tensors[i]));
    }
    std::vector<int> wrong(4);
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int repeat = 0; repeat < 25; ++repeat) {
          const int which = (i + repeat) % 4;
          wrong[i] += run(problem, *executable, tensors[which], packed[which].get()) != expected[which];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(4)) << "blocked=" << variant;
  }
}

// A plan keeps its number of threads, whatever the number is where it runs.
TEST_F(Onednn, RunsWithTheThreadsItWasPlannedWith) {
  const ConvProblem problem{.n = 3, .c = 16, .h = 20, .w = 20, .k = 32, .r = 3, .s = 3};
  const HostTensors tensors = small_integers(problem, 7);
  const std::vector<float> expected = oracle_output(problem, tensors);
  DeviceInfo other = device();
  for (const int threads : {1, 2, 3, 5}) {
    other.units = threads;
    for (const std::int64_t variant : {0, 1}) {
      const auto executable = cpu::onednn()->build(problem, other, blocked(variant));
      EXPECT_EQ(run(problem, *executable, tensors, pack(*executable, tensors).get()), expected);
    }
  }
}

// Late threads are left alone: the same problem on one thread, with the same packed weights.
TEST_F(Onednn, GoesOnWithOneThreadWhereItsTeamIsLate) {
  using namespace std::chrono_literals;
  DeviceInfo two = device();
  two.units = 2;
  int runs = 0;
  for (std::uint64_t i = 0; i < 150; ++i) {
    ConvProblem problem = random_problem_of_any_kind(23, i, 1e5);
    if (problem.direction == Direction::backward_weights || problem.n == 0) continue;
    problem.rounding = Rounding::once;
    if (problem.precision == Precision::automatic) problem.precision = Precision::fp32;
    for (const Config& config : cpu::onednn()->candidates(problem, two)) {
      Testbed bed(problem, cpu::backend(), TestData::integer, i, 500);
      const auto executable = cpu::onednn()->build(problem, two, config);
      EXPECT_EQ(bed.check(*executable).failure, "") << to_string(problem) << " with " << to_string(config);
      executable->give_way();
      const auto now = cpu::OnednnPatience::Clock::now();
      cpu::OnednnPatience& patience = cpu::OnednnPatience::of_this_thread() = {};
      cpu::OnednnPatience::Runs late{.threads = 2, .least = 1ms};
      for (int late_runs = 0; late_runs < 3; ++late_runs) patience.ran_on_all(late, now - 10ms, now);
      ASSERT_TRUE(patience.leaves_team({}, now));
      EXPECT_EQ(bed.check(*executable).failure, "") << to_string(problem) << " with " << to_string(config);
      int left = 0;
      while (patience.leaves_team({}, now)) ++left;
      EXPECT_LT(left, 15) << "a run asks";
      ++runs;
    }
  }
  EXPECT_GT(runs, 80);
}

// Programs have handlers: an interpreter for Ctrl-C, a server for its end, a profiler for its clock.
TEST_F(Onednn, IsNotDisturbedBySignals) {
  static std::atomic<int> heard;
  heard = 0;
  struct sigaction before = {}, count = {};
  count.sa_handler = [](int) { ++heard; };
  ASSERT_EQ(sigaction(SIGALRM, &count, &before), 0);
  const itimerval often = {{0, 100}, {0, 100}}, never = {};
  setitimer(ITIMER_REAL, &often, nullptr);
  ConvProblem stem{.n = 1, .c = 3, .h = 131, .w = 131, .k = 96, .r = 11, .s = 11};
  stem.stride_h = stem.stride_w = 4;
  for (const ConvProblem& problem :
       {stem, ConvProblem{.n = 2, .c = 64, .h = 40, .w = 40, .k = 64, .r = 3, .s = 3}}) {
    const HostTensors tensors = small_integers(problem, 1);
    const std::vector<float> expected = oracle_output(problem, tensors);
    for (int build = 0; build < 5; ++build)
      for (const Config& config : cpu::onednn()->candidates(problem, device())) {
        const auto executable = cpu::onednn()->build(problem, device(), config);
        const auto packed = pack(*executable, tensors);
        for (int repeat = 0; repeat < 5; ++repeat)
          EXPECT_EQ(run(problem, *executable, tensors, packed.get()), expected) << to_string(problem);
      }
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(heard, 20);
}

// 2.6.3 with AVX2: y[1] was -5 in place of -3.
TEST(OnednnFaults, ResidualsOfChannelsLastAreNotTheOldOnes) {
  const ConvProblem found = parse_problem("g5mb1ic20ih31iw7oc55kh3kw1sh3sw1dh0dw2 layout=nhwc residual=1");
  EXPECT_NE(cpu::onednn_fault(found, {2, 6, 3, nullptr, 0}), "");
  EXPECT_EQ(cpu::onednn_fault(found, {3, 2, 0, nullptr, 0}), "");
  EXPECT_EQ(cpu::onednn_fault(parse_problem("g5mb1ic20ih31iw7oc55kh3 residual=1"), {2, 6, 3, nullptr, 0}),
            "");
}

// 2.6.3 with AVX-512: y[n=0, k=0, p=3, q=0] was 9 in place of 10.
TEST(OnednnFaults, ResidualsOfWideStridesAreNotTheOldOnes) {
  const cpu::OnednnVersion v2{2, 6, 3, nullptr, 0}, v3{3, 2, 0, nullptr, 0};
  const ConvProblem found =
      parse_problem("mb5ic3ih31iw17oc2kh5kw11sh1sw13ph2pw4 bias=0 residual=1 pad_right=1");
  EXPECT_NE(cpu::onednn_fault(found, v2), "");
  EXPECT_EQ(cpu::onednn_fault(found, v3), "");
  EXPECT_EQ(cpu::onednn_fault(parse_problem("mb5ic3ih31iw17oc2kh5kw11sh1sw2ph2pw4 residual=1"), v2), "");
}

// 3.2 with AMX: the process ended in dnnl_primitive_create().
TEST(OnednnFaults, OutputsOfPaddingAloneAreNotTheNewOnesInBf16) {
  const cpu::OnednnVersion v3{3, 2, 0, nullptr, 0};
  for (const char* found :
       {"mb0ic31id3ih1iw32oc1kd5kh4kw6sw2pd5ph4dd2dh2dw1 dtype=bf16 act=leaky_relu:0.75 pad_bottom=5",
        "mb1ic217ih1iw46oc1kh3kw4sh5sw1ph5pw0dh2dw0 dtype=bf16 bias=0 residual=1 pad_bottom=1",
        "g7mb1ic7ih2iw56oc42kh3sh2sw3ph4pw3dh2 dtype=bf16 pad_bottom=1",
        "mb4ic5ih1iw7oc128kh3kw1sh2sw2ph3pw0dh1dw0 dtype=bf16 bias=0",
        "g4mb4ic8ih2iw127oc24kh2kw1sh2sw1ph1pw0dh2dw0 dtype=bf16",
        "g3ic3id1ih158iw30oc6kd2kh4kw2sd3sh3sw4pd2ph91dd2dh157 layout=nhwc dtype=bf16 bias=0 pad_back=1 "
        "pad_bottom=226"})
    EXPECT_NE(cpu::onednn_fault(parse_problem(found), v3), "") << found;
  for (const char* right :
       {"ic8ih8oc8kh3ph3 dtype=bf16", "ic8ih8oc8kh3ph3 residual=1", "ic8ih8oc8kh3ph2 dtype=bf16 residual=1"})
    EXPECT_EQ(cpu::onednn_fault(parse_problem(right), v3), "") << right;
}

// 2.6.3 with AVX-512 and AMX: dw lacks pixels, or is what lay in memory before; 3.2 has one of the causes.
TEST(OnednnFaults, GradientsOfWeightsAreNotTheOldOnesIn16Bits) {
  const cpu::OnednnVersion v2{2, 6, 3, nullptr, 0}, v3{3, 2, 0, nullptr, 0};
  for (const char* found :
       {"g9mb1ic9ih2oc9kh3sh3 precision=bf16 layout=nhwc dtype=bf16 dir=bwd_w pad_bottom=1 pad_right=1",
        "g17mb1ic17ih1oc17kh5sh2ph2 precision=bf16 layout=nhwc dtype=bf16 dir=bwd_w"}) {
    EXPECT_NE(cpu::onednn_fault(parse_problem(found), v2), "") << found;
    EXPECT_NE(cpu::onednn_fault(parse_problem(found), v3), "") << found;
  }
  for (const char* found :
       {"ic169ih5oc3kh3ph0pw1dh1dw0 precision=bf16 dtype=bf16 dir=bwd_w",
        "g164mb1ic164ih5iw127oc164kh1kw3sh1sw4dh1dw0 precision=bf16 layout=nhwc dtype=bf16 dir=bwd_w",
        "mb5ic15id5ih1iw1oc2kd3kh11kw11sd2pd1ph5pw5 precision=bf16 dtype=bf16 dir=bwd_w"})
    EXPECT_NE(cpu::onednn_fault(parse_problem(found), v2), "") << found;
  EXPECT_EQ(cpu::onednn_fault(
                parse_problem("g9ic9ih2oc9kh3sh3 layout=nhwc dir=bwd_w pad_bottom=1 pad_right=1"), v2),
            "");  // f32
  for (const char* right : {"g9ic9ih3oc9kh3sh3 layout=nhwc dtype=bf16 dir=bwd_w",
                            "g9ic9ih2iw3oc9kh3sh3 layout=nhwc dtype=bf16 dir=bwd_w pad_bottom=1",
                            "g9ic9ih1oc9kh5ph2 layout=nhwc dtype=bf16 dir=bwd_w",
                            "g9ic9ih1oc9kh1sh2 layout=nhwc dtype=bf16 dir=bwd_w"})
    EXPECT_EQ(cpu::onednn_fault(parse_problem(right), v3), "") << right;
}

// 2.6.3 with AMX: the first ended the process, and others wrote behind memory of the size that oneDNN had
// said.
TEST(OnednnFaults, SixteenBitsAreNotTheOldOnes) {
  const cpu::OnednnVersion v2{2, 6, 3, nullptr, 0}, v3{3, 2, 0, nullptr, 0};
  for (const char* found : {"ic7id5ih4iw4oc11kd4kh1kw1sd2pd5 dtype=bf16", "ic16ih158oc16kh3 dtype=bf16",
                            "ic16ih158oc16kh3 dtype=f16 dir=bwd_d"}) {
    EXPECT_NE(cpu::onednn_fault(parse_problem(found), v2), "") << found;
    EXPECT_EQ(cpu::onednn_fault(parse_problem(found), v3), "") << found;
  }
  EXPECT_EQ(cpu::onednn_fault(parse_problem("ic16ih158oc16kh3"), v2), "");
}

// 2.6.3 with AVX2: 24 floats behind the scratchpad; by 3.8's sources it writes there, too.
TEST(OnednnFaults, GradientsOfWeightsOfStrided1x1AreNotTheirsInNhwc) {
  const cpu::OnednnVersion v2{2, 6, 3, nullptr, 0}, v3{3, 8, 0, nullptr, 0};
  for (const char* found :
       {"ic3ih220iw64oc1kh1sh2sw1 layout=nhwc dir=bwd_w",
        "ic64ih56oc128kh1sh2 layout=nhwc dtype=bf16 dir=bwd_w", "ic1ih64oc8kh1sh2 dir=bwd_w"}) {
    EXPECT_NE(cpu::onednn_fault(parse_problem(found), v2), "") << found;
    EXPECT_NE(cpu::onednn_fault(parse_problem(found), v3), "") << found;
  }
  for (const char* right :
       {"ic3ih220iw64oc1kh1sh2sw1 layout=nhwc", "ic3ih220iw64oc1kh1 layout=nhwc dir=bwd_w",
        "ic3ih220iw64oc1kh1sh2 dir=bwd_w", "ic3ih220iw64oc1kh3sh2ph1 layout=nhwc dir=bwd_w"}) {
    EXPECT_EQ(cpu::onednn_fault(parse_problem(right), v2), "") << right;
    EXPECT_EQ(cpu::onednn_fault(parse_problem(right), v3), "") << right;
  }
}

TEST_F(Onednn, RefusesWithAReason) {
  ConvProblem problem{.h = 3, .w = 3};
  const Algorithm& onednn = *cpu::onednn();
  EXPECT_TRUE(onednn.vendor());
  EXPECT_TRUE(onednn.supports(problem, device()));
  EXPECT_NE(onednn.accepts(problem, device(), blocked(2)).reason().find("not 2"), std::string::npos);
  EXPECT_NE(onednn.accepts(problem, device(), Config{{{"blokced", 1}}}).reason().find("blocked"),
            std::string::npos);
  EXPECT_THROW(static_cast<void>(onednn.build(problem, device(), blocked(2))), Error);

  // Whatever oneDNN itself cannot create: an output that would have no size.
  ConvProblem impossible{.h = 3, .w = 3, .r = 5, .s = 5};
  EXPECT_NE(onednn.supports(impossible, device()).reason().find("oneDNN"), std::string::npos);

  problem.dtype = DTypes(DType::bf16, DType::bf16, DType::bf16);
  problem.rounding = Rounding::eager;
  EXPECT_NE(onednn.supports(problem, device()).reason().find("eagerly"), std::string::npos);
  EXPECT_TRUE(onednn.candidates(problem, device()).empty());
}

TEST_F(Onednn, TriesItsOwnFormatsFirstForNchwOnly) {
  ConvProblem problem{.c = 16, .h = 8, .w = 8, .k = 16, .r = 3, .s = 3};
  EXPECT_EQ(cpu::onednn()->candidates(problem, device()), (std::vector<Config>{blocked(1), blocked(0)}));
  problem.layout = Layout::nhwc;
  EXPECT_EQ(cpu::onednn()->candidates(problem, device()), (std::vector<Config>{blocked(0), blocked(1)}));
}

}  // namespace
}  // namespace convtune::onednn_test
