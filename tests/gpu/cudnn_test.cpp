// cuDNN through our eyes, on a real GPU: every form, type and epilogue against the oracle; badly aligned
// pointers, two streams, memory, refusals.
#include "cuda/cudnn/cudnn.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <thread>

#include "convtune/cases.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/cudnn/cudnn_api.h"
#include "cuda/device/driver.h"
#include "measure/testbed.h"
#include "problem/random_problem.h"

namespace convtune::cudnn_test {
namespace {

bool has_bias_or_more(const ConvProblem& problem) {
  return problem.bias || problem.residual || problem.activation != Activation::none;
}

class Cudnn : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no NVIDIA GPU: " << cuda::describe_driver();
    if (cuda::cudnn() == nullptr) GTEST_SKIP() << "cuDNN: " << cuda::cudnn_version();
  }
  Backend& gpu() { return cuda::backend({Device::Kind::cuda, 0}); }
  const DeviceInfo& device() { return gpu().info(); }
  const Algorithm& cudnn() { return *cuda::cudnn(); }

  std::string check(const ConvProblem& problem, const Config& config, TestData data) {
    Testbed bed(problem, gpu(), data, 5, 1000);
    return bed.check(*cudnn().build(problem, device(), config)).failure;
  }
};

TEST_F(Cudnn, EqualsTheOracleOnRandomProblems) {
  std::array<int, 2> by_nhwc{};
  int nhwc_problems = 0, fp32 = 0, unsupported = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    ConvProblem problem = random_problem(33, i);
    problem.precision = i % 2 == 0 ? Precision::tf32 : Precision::fp32;
    if (!cudnn().supports(problem, device())) {
      ++unsupported;
      continue;
    }
    const std::vector<Config> configs = cudnn().candidates(problem, device());
    ASSERT_FALSE(configs.empty()) << to_string(problem);
    // The first two (one of each layout, where there are two) and one from further down.
    std::set<std::size_t> chosen = {0, std::min<std::size_t>(1, configs.size() - 1), i * 7 % configs.size()};
    Testbed bed(problem, gpu(), TestData::integer, i, 2000);
    for (const std::size_t index : chosen) {
      const auto executable = cudnn().build(problem, device(), configs[index]);
      EXPECT_EQ(bed.check(*executable).failure, "")
          << to_string(problem) << " with " << to_string(configs[index]);
      ++by_nhwc[static_cast<std::size_t>(configs[index].at("nhwc"))];
    }
    nhwc_problems += problem.layout == Layout::nhwc;
    fp32 += problem.precision == Precision::fp32;
  }
  std::cout << by_nhwc[0] << " runs as NCHW, " << by_nhwc[1] << " channels-last, " << unsupported
            << " problems that cuDNN does not take\n";
  EXPECT_GT(by_nhwc[0], 50);
  EXPECT_GT(by_nhwc[1], 50);
  EXPECT_GT(nhwc_problems, 10);
  EXPECT_GT(fp32, 30);
  EXPECT_LT(unsupported, 10);
}

// Half precision, mixed types, three dimensions, residuals, every activation; fused and not.
// Says what cuDNN refuses, so that a descriptor that it does not understand shows.
TEST_F(Cudnn, EqualsTheOracleOnProblemsOfAnyKind) {
  std::map<std::string, int> refusals;
  std::map<Activation, int> activations;
  std::array<int, 2> by_fused{};
  int halves = 0, residuals = 0, depths = 0;
  for (std::uint64_t i = 0; i < 240; ++i) {  // a kernel that is compiled takes a second or more each
    ConvProblem problem = random_problem_of_any_kind(34, 2 * i + 1);
    problem.direction = Direction::forward;
    if (problem.precision == Precision::automatic) problem.precision = Precision::tf32;
    const Support support = cudnn().supports(problem, device());
    if (!support) {
      ++refusals[support.reason()];
      continue;
    }
    const std::vector<Config> configs = cudnn().candidates(problem, device());
    ASSERT_FALSE(configs.empty()) << to_string(problem);
    std::set<std::size_t> chosen;
    for (std::size_t at = 0; at < std::min<std::size_t>(3, configs.size()); ++at) chosen.insert(at);
    for (const TestData data : {TestData::integer, TestData::real}) {
      Testbed bed(problem, gpu(), data, i, 2000);
      for (const std::size_t index : chosen) {
        std::unique_ptr<Executable> executable;
        try {
          executable = cudnn().build(problem, device(), configs[index]);
        } catch (const Error& error) {
          ++refusals[error.what()];  // believed until it was compiled
          continue;
        }
        EXPECT_EQ(bed.check(*executable).failure, "")
            << to_string(problem) << " with " << to_string(configs[index]);
        ++by_fused[static_cast<std::size_t>(configs[index].at("fused"))];
      }
    }
    ++activations[problem.activation];
    halves += problem.dtype.x != DType::f32;
    residuals += problem.residual;
    depths += problem.has_depth();
  }
  for (const auto& [reason, count] : refusals) std::cout << count << " times: " << reason << "\n";
  EXPECT_GT(by_fused[0], 10);
  EXPECT_GT(by_fused[1], 20);
  EXPECT_GE(activations.size(), 5U);
  EXPECT_GT(halves, 10);
  EXPECT_GT(residuals, 5);
  EXPECT_GT(depths, 2);
}

// Every form for layers of real networks: which of them cuDNN has, and all of its first offers are right.
TEST_F(Cudnn, RunsHalfPrecisionInEveryForm) {
  struct Case {
    const char* shape;
    std::vector<const char*> epilogues;
  };
  const Case cases[] = {
      {"mb4ic64ih28oc96kh3ph1 dtype=f16 layout=nhwc",
       {"bias=0", "act=relu", "act=relu residual=1", "act=silu", "act=hardswish", "act=clip:-1:2",
        "act=gelu_erf", "act=gelu_tanh", "act=leaky_relu:0.1", "act=sigmoid",
        "act=silu residual=1 rounding=eager"}},
      {"mb4ic64ih28oc96kh3ph1 dtype=bf16",
       {"bias=0", "act=relu residual=1", "act=silu residual=1", "act=hardswish"}},
      {"mb4ic3ih64oc64kh7sh2ph3 dtype=bf16 layout=nhwc", {"act=relu", "act=silu"}},
      {"g96mb4ic96ih28oc96kh3ph1 dtype=f16 layout=nhwc", {"act=relu", "act=clip:0:6"}},
      {"g96mb4ic96ih28oc96kh3ph1 dtype=bf16", {"bias=1", "act=silu"}},
      {"mb1ic32id6ih28iw28oc64kd3kh3kw3ph1pw1 dtype=bf16 layout=nhwc", {"bias=1", "act=silu"}},
      {"mb1ic32id6ih28iw28oc64kd3kh3kw3ph1pw1 dtype=f16", {"bias=1", "residual=1"}},
  };
  for (const auto& [shape, epilogues] : cases)
    for (const char* epilogue : epilogues) {
      ConvProblem problem = parse_problem(std::string(shape) + " " + epilogue);
      problem.precision = problem.dtype.x == DType::f16 ? Precision::tf32 : Precision::bf16;
      const Support support = cudnn().supports(problem, device());
      EXPECT_TRUE(support) << to_string(problem) << ": " << support.reason();
      if (!support) continue;
      std::map<std::pair<std::int64_t, std::int64_t>, int> forms;
      Testbed integers(problem, gpu(), TestData::integer, 3, 2000);
      Testbed reals(problem, gpu(), TestData::real, 3, 2000);
      for (const Config& config : cudnn().candidates(problem, device())) {
        if (++forms[{config.at("nhwc"), config.at("fused")}] > 2) continue;
        try {
          const auto executable = cudnn().build(problem, device(), config);
          EXPECT_EQ(integers.check(*executable).failure, "")
              << to_string(problem) << " with " << to_string(config);
          EXPECT_EQ(reals.check(*executable).failure, "")
              << to_string(problem) << " with " << to_string(config);
        } catch (const Error& error) {
          std::cout << to_string(problem) << " with " << to_string(config) << ": " << error.what() << "\n";
        }
      }
      if (has_bias_or_more(problem) && problem.rounding == Rounding::once) {
        EXPECT_TRUE(forms.contains({1, 0})) << to_string(problem) << " has no sequence";
      }
    }
}

TEST_F(Cudnn, RunsEveryOfferForAlexNetsFirstLayer) {
  ConvProblem problem = find_problem("alexnet_conv1");
  problem.n = 32;
  ASSERT_TRUE(problem.bias);
  for (const Precision precision : {Precision::tf32, Precision::fp32}) {
    problem.precision = precision;
    std::set<std::int64_t> layouts;
    for (const Config& config : cudnn().candidates(problem, device())) {
      EXPECT_EQ(check(problem, config, TestData::integer), "") << to_string(config);
      EXPECT_EQ(check(problem, config, TestData::real), "")
          << to_string(config) << " at " << to_string(precision);
      layouts.insert(config.at("nhwc"));
    }
    EXPECT_EQ(layouts, (std::set<std::int64_t>{0, 1}));
  }
}

// Problems where engines of cuDNN 9.19.0 answer wrongly or break the device: odd numbers of channels, with a
// bias and without, and much padding.
TEST_F(Cudnn, OffersNoEngineThatAnswersWrongly) {
  for (const std::string bias : {"0", "1"})
    for (const char* text : {"mb2ic3ih9oc4kh3ph1", "mb2ic3ih9oc7kh3ph1", "mb2ic8ih9oc6kh3ph1",
                             "mb5ic29ih4oc5kh7ph9dh1 pad_bottom=0 pad_right=0"}) {
      const ConvProblem problem = parse_problem(std::string(text) + " precision=tf32 bias=" + bias);
      for (const Config& config : cudnn().candidates(problem, device()))
        ASSERT_EQ(check(problem, config, TestData::integer), "")
            << to_string(problem) << " with " << to_string(config);
    }
}

// TF32 would err by 1e-4: what is offered for fp32 must not.
TEST_F(Cudnn, KeepsFp32Exact) {
  const ConvProblem problem = parse_problem("mb4ic32ih28oc48kh3ph1 precision=fp32");
  Testbed bed(problem, gpu(), TestData::real, 9, 2000);
  const std::vector<Config> configs = cudnn().candidates(problem, device());
  ASSERT_FALSE(configs.empty());
  for (const Config& config : configs) {
    const CheckResult result = bed.check(*cudnn().build(problem, device(), config));
    EXPECT_EQ(result.failure, "") << to_string(config);
    EXPECT_LT(result.max_error, 1e-5) << to_string(config);
  }
}

// x and y need the alignment of float only, though cuDNN's engines want 16 bytes.
TEST_F(Cudnn, TakesBadlyAlignedPointers) {
  for (const char* text : {"mb2ic64ih14oc64kh3ph1", "mb2ic64ih14oc64kh3ph1 layout=nhwc"}) {
    ConvProblem problem = parse_problem(text);
    problem.precision = Precision::tf32;
    const auto elements = static_cast<std::size_t>(problem.output_elements());
    std::vector<float> x(static_cast<std::size_t>(problem.input_elements())), w(64 * 64 * 9), bias(64);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 5) - 2;
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
    const auto device_copy = [&](const std::vector<float>& values, std::size_t shift) {
      auto block = gpu().allocate((values.size() + shift) * sizeof(float));
      gpu().upload(static_cast<float*>(block.get()) + shift, values.data(), values.size() * sizeof(float));
      return block;
    };
    for (const Config& config : cudnn().candidates(problem, device())) {
      const auto executable = cudnn().build(problem, device(), config);
      const auto packed = gpu().allocate(executable->packed_bytes());
      std::array<std::vector<float>, 2> outputs;
      for (const std::size_t shift : {0, 1}) {
        const auto x_device = device_copy(x, shift), w_device = device_copy(w, shift),
                   bias_device = device_copy(bias, shift);
        const auto y_device = gpu().allocate((elements + shift) * sizeof(float));
        executable->pack(static_cast<float*>(w_device.get()) + shift,
                         static_cast<float*>(bias_device.get()) + shift, packed.get(), nullptr);
        float* const y = static_cast<float*>(y_device.get()) + shift;
        executable->run({.x = static_cast<float*>(x_device.get()) + shift, .y = y}, packed.get(), nullptr);
        gpu().synchronize(nullptr);
        outputs[shift].resize(elements);
        gpu().download(outputs[shift].data(), y, elements * sizeof(float));
      }
      ASSERT_EQ(outputs[0], outputs[1]) << text << " with " << to_string(config);
    }
  }
}

// Two threads with a stream each, one executable that converts and so owns a workspace.
TEST_F(Cudnn, RunsOnTwoStreamsAtOnce) {
  const ConvProblem problem = parse_problem("mb8ic16ih56oc64kh3ph1 precision=tf32");
  const std::vector<Config> configs = cudnn().candidates(problem, device());
  ASSERT_EQ(configs.front().at("nhwc"), 1);
  const auto executable = cudnn().build(problem, device(), configs.front());
  const cuda::DeviceScope scope(0);
  struct Lane {
    cuda::CUstream stream = nullptr;
    std::shared_ptr<void> x, y, packed;
    std::vector<float> first, last;
  };
  std::array<Lane, 2> lanes;
  const std::vector<float> w(static_cast<std::size_t>(problem.weight_elements()), 1), bias(64, 2);
  const auto elements = static_cast<std::size_t>(problem.output_elements());
  const auto w_device = gpu().allocate(w.size() * 4), bias_device = gpu().allocate(bias.size() * 4);
  gpu().upload(w_device.get(), w.data(), w.size() * 4);
  gpu().upload(bias_device.get(), bias.data(), bias.size() * 4);
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    Lane& lane = lanes[i];
    cuda::check(cuda::driver().cuStreamCreate(&lane.stream, 1), "creating a stream");
    std::vector<float> x(static_cast<std::size_t>(problem.input_elements()));
    for (std::size_t j = 0; j < x.size(); ++j) x[j] = static_cast<float>((j * (i + 3)) % 11) - 5;
    lane.x = gpu().allocate(x.size() * 4);
    lane.y = gpu().allocate(elements * 4);
    lane.packed = gpu().allocate(executable->packed_bytes());
    gpu().upload(lane.x.get(), x.data(), x.size() * 4);
    executable->pack(w_device.get(), bias_device.get(), lane.packed.get(), lane.stream);
  }
  const auto output_of = [&](const Lane& lane) {
    gpu().synchronize(lane.stream);
    std::vector<float> y(elements);
    gpu().download(y.data(), lane.y.get(), elements * 4);
    return y;
  };
  for (Lane& lane : lanes) {  // each alone
    executable->run({.x = lane.x.get(), .y = lane.y.get()}, lane.packed.get(), lane.stream);
    lane.first = output_of(lane);
  }
  std::vector<std::thread> threads;
  for (Lane& lane : lanes)
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 200; ++repeat)
        executable->run({.x = lane.x.get(), .y = lane.y.get()}, lane.packed.get(), lane.stream);
    });
  for (std::thread& thread : threads) thread.join();
  for (Lane& lane : lanes) {
    EXPECT_EQ(output_of(lane), lane.first);
    cuda::check(cuda::driver().cuStreamDestroy(lane.stream), "destroying a stream");
  }
  EXPECT_NE(lanes[0].first, lanes[1].first);
}

// Plans of a network run one after the other: they take the memory of the largest, not of all.
TEST_F(Cudnn, PlansShareTheirWorkspace) {
  const ConvProblem problem = parse_problem("mb64ic64ih56oc64kh3ph1 precision=tf32");  // 51 MB each, x and y
  const Config config = cudnn().candidates(problem, device()).front();
  ASSERT_EQ(config.at("nhwc"), 1);
  const cuda::DeviceScope scope(0);
  const auto free_bytes = [] {
    std::size_t free = 0, total = 0;
    cuda::driver().cuMemGetInfo(&free, &total);
    return free;
  };
  std::vector<std::unique_ptr<Executable>> plans;
  plans.push_back(cudnn().build(problem, device(), config));
  const std::size_t before = free_bytes();
  for (int i = 0; i < 8; ++i) plans.push_back(cudnn().build(problem, device(), config));
  EXPECT_LT(before - std::min(before, free_bytes()), std::size_t{100} << 20);
}

TEST_F(Cudnn, RefusesWithReasons) {
  ConvProblem problem = parse_problem("mb2ic16ih14oc32kh3ph1 precision=tf32");
  const Config good = cudnn().candidates(problem, device()).front();
  EXPECT_TRUE(cudnn().accepts(problem, device(), good));
  const auto reason_for = [&](std::int64_t nhwc, std::int64_t engine, std::int64_t heuristic,
                              std::int64_t fused = 1) {
    const Config config{{{"nhwc", nhwc}, {"fused", fused}, {"engine", engine}, {"heuristic", heuristic}}};
    const Support support = cudnn().accepts(problem, device(), config);
    EXPECT_FALSE(support) << to_string(config);
    EXPECT_THROW((void)cudnn().build(problem, device(), config), Error);
    return support ? "" : support.reason();
  };
  const std::int64_t engine = good.at("engine");
  EXPECT_NE(reason_for(2, engine, 0).find("nhwc must be 0 to 1"), std::string::npos);
  EXPECT_NE(reason_for(1, engine, -1).find("heuristic must be 0 to"), std::string::npos);
  EXPECT_NE(reason_for(1, engine, 100000).find("heuristic must be 0 to"), std::string::npos);
  EXPECT_NE(reason_for(1, 100000, 0).find("offers engine"), std::string::npos);
  EXPECT_FALSE(cudnn().accepts(problem, device(), Config{{{"nhwc", 1}}}));
  problem.layout = Layout::nhwc;
  EXPECT_NE(reason_for(0, engine, 0).find("nhwc must be 1"), std::string::npos);
  problem.bias = false;
  EXPECT_NE(reason_for(1, engine, 0, 0).find("fused must be 1"), std::string::npos);
  problem.direction = Direction::backward_data;
  EXPECT_NE(cudnn().supports(problem, device()).reason().find("forward"), std::string::npos);
}

}  // namespace
}  // namespace convtune::cudnn_test
