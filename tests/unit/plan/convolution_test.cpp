// The library's face: plan, pack, run, explain, and how each says no.
#include "convtune/convolution.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "convtune/error.h"
#include "convtune/verify.h"
#include "cpu/reference/oracle.h"
#include "problem/rewrite.h"

namespace convtune::convolution_test {
namespace {

const ConvProblem kProblem = parse_problem("mb2ic16ih9oc16kh3ph1");

class ConvolutionTest : public testing::Test {
 protected:
  void SetUp() override { setenv("CONVTUNE_DATA_DIR", "/nonexistent/convtune", 1); }
  std::vector<float> x_ = std::vector<float>(static_cast<std::size_t>(kProblem.input_elements()), 0.5f);
  std::vector<float> w_ = std::vector<float>(static_cast<std::size_t>(kProblem.weight_elements()), 0.25f);
  std::vector<float> bias_ = std::vector<float>(static_cast<std::size_t>(kProblem.k), 1.0f);
  std::vector<float> y_ = std::vector<float>(static_cast<std::size_t>(kProblem.output_elements()));
};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(ConvolutionTest, EveryAlgorithmGivesTheSameAnswer) {
  int run = 0;
  for (const AlgorithmAnswer& answer : answers(kProblem)) {
    if (!answer.supported) continue;  // it is for depthwise problems
    ++run;
    const Convolution conv = plan(kProblem, {}, answer.algorithm);
    EXPECT_EQ(conv.plan().source, PlanSource::forced);
    conv.run({.x = x_.data(), .y = y_.data()}, w_.data(), bias_.data());
    for (std::int64_t k = 0; k < kProblem.k; ++k)
      EXPECT_FLOAT_EQ(y_[static_cast<std::size_t>(k * 81)],
                      static_cast<float>(cpu::oracle(kProblem, {x_.data(), w_.data(), bias_.data()},
                                                     k * kProblem.p() * kProblem.q())
                                             .value));
  }
  EXPECT_GE(run, 4);
}

TEST_F(ConvolutionTest, PlansAreToldWhereTheEnvironmentAsks) {
  const auto said = [](const char* value) {
    value ? setenv("CONVTUNE_VERBOSE", value, 1) : unsetenv("CONVTUNE_VERBOSE");
    testing::internal::CaptureStderr();
    const Plan chosen = plan(kProblem).plan();
    unsetenv("CONVTUNE_VERBOSE");
    return std::pair(testing::internal::GetCapturedStderr(), chosen);
  };
  const auto [line, chosen] = said("1");
  EXPECT_EQ(line, "convtune: plan: " + to_string(plan(kProblem).problem()) + " on cpu: " + chosen.algorithm +
                      ' ' + to_string(chosen.config) + " (estimate: " + chosen.why + ")\n");
  for (const char* off : {static_cast<const char*>(nullptr), "", "0"}) EXPECT_EQ(said(off).first, "");
}

TEST_F(ConvolutionTest, PackedWeightsOutliveTheirSourceAndServeCopies) {
  const Convolution conv = plan(kProblem);
  PackedWeights packed;
  {
    std::vector<float> w = w_;
    packed = conv.pack(w.data(), bias_.data());
  }
  const Convolution copy = conv;
  copy.run({.x = x_.data(), .y = y_.data()}, packed);
  EXPECT_FLOAT_EQ(y_[40], 144 * 0.125f + 1);  // the middle of the first plane
}

TEST_F(ConvolutionTest, SaysWhatIsWrongWithAnArgument) {
  const Convolution conv = plan(kProblem);
  const PackedWeights packed = conv.pack(w_.data(), bias_.data());
  EXPECT_NE(message_of([&] { conv.run({.y = y_.data()}, packed); }).find("x is null"), std::string::npos);
  EXPECT_NE(message_of([&] { conv.run({.x = x_.data()}, packed); }).find("y is null"), std::string::npos);
  EXPECT_NE(message_of([&] { conv.run({.x = x_.data(), .y = y_.data()}, PackedWeights()); }).find("empty"),
            std::string::npos);
  EXPECT_NE(message_of([&] { conv.pack(nullptr, bias_.data()); }).find("w is null"), std::string::npos);
  EXPECT_NE(message_of([&] { conv.pack(w_.data(), nullptr); }).find("bias is null"), std::string::npos);
  EXPECT_NE(message_of([&] {
              plan(kProblem).run({.x = x_.data(), .y = y_.data()}, packed);
            }).find("another Convolution"),
            std::string::npos);
}

// Bytes at an address that is aligned for a CPU.
class Block {
 public:
  explicit Block(std::size_t bytes) : bytes_(bytes + kAlignment, std::byte{0xA5}) {}
  std::byte* data() {
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + (kAlignment - begin % kAlignment) % kAlignment;
  }

 private:
  static constexpr std::size_t kAlignment = packed_alignment(Device::Kind::cpu);
  std::vector<std::byte> bytes_;
};

TEST_F(ConvolutionTest, PackedWeightsMayBeTheCallersMemory) {
  for (const AlgorithmAnswer& answer : answers(kProblem)) {
    if (!answer.supported) continue;
    const Convolution conv = plan(kProblem, {}, answer.algorithm);
    const std::size_t bytes = conv.packed_bytes();
    ASSERT_GE(bytes, 1u);
    Block block(bytes + 1);
    conv.pack_into(w_.data(), bias_.data(), block.data());
    EXPECT_EQ(block.data()[bytes], std::byte{0xA5}) << answer.algorithm << " wrote behind packed_bytes()";
    // They serve another Convolution of an equal plan, too.
    const Convolution twin = plan(kProblem, {}, conv.plan().algorithm, conv.plan().config);
    std::vector<float> other(y_.size(), -1);
    conv.run({.x = x_.data(), .y = y_.data()}, w_.data(), bias_.data());
    twin.run_packed({.x = x_.data(), .y = other.data()}, block.data());
    EXPECT_EQ(other, y_) << answer.algorithm;
  }
}

TEST_F(ConvolutionTest, SaysWhatIsWrongWithTheCallersMemory) {
  const Convolution conv = plan(kProblem);
  Block block(conv.packed_bytes());
  std::byte* const odd = block.data() + 4;
  const auto says = [&](const std::function<void()>& call, const std::string& what) {
    EXPECT_NE(message_of(call).find(what), std::string::npos) << message_of(call);
  };
  says([&] { conv.pack_into(nullptr, bias_.data(), block.data()); }, "w is null");
  says([&] { conv.pack_into(w_.data(), nullptr, block.data()); }, "bias is null");
  says([&] { conv.pack_into(w_.data(), bias_.data(), nullptr); }, "pack: packed is null");
  says([&] { conv.pack_into(w_.data(), bias_.data(), odd); }, "not aligned to 64 bytes");
  conv.pack_into(w_.data(), bias_.data(), block.data());
  says([&] { conv.run_packed({.y = y_.data()}, block.data()); }, "x is null");
  says([&] { conv.run_packed({.x = x_.data()}, block.data()); }, "y is null");
  says([&] { conv.run_packed({.x = x_.data(), .y = y_.data()}, nullptr); }, "run: packed is null");
  says([&] { conv.run_packed({.x = x_.data(), .y = y_.data()}, odd); }, "not aligned to 64 bytes");
}

// Each direction has a kernel, and names the tensor that is missing.
TEST_F(ConvolutionTest, RunsEveryDirection) {
  const Convolution data = plan(parse_problem("mb1ic1ih2iw2oc1kh1 dir=bwd_d"));
  EXPECT_NE(data.plan().algorithm, "reference");
  const float w = 3, dy[] = {1, 2, 3, 4};
  float dx[4] = {}, dw = 0, dbias = 0;
  EXPECT_NE(message_of([&] { data.run({.dx = dx}, &w, nullptr); }).find("dy is null"), std::string::npos);
  EXPECT_NE(message_of([&] { data.run({.dy = dy}, &w, nullptr); }).find("dx is null"), std::string::npos);
  data.run({.dy = dy, .dx = dx}, &w, nullptr);
  EXPECT_EQ(dx[3], 12);
  const Convolution weights = plan(parse_problem("mb1ic1ih2iw2oc1kh1 dir=bwd_w"));
  EXPECT_NE(weights.plan().algorithm, "reference");
  EXPECT_NE(
      message_of([&] { weights.run({.x = dx, .dy = dy, .dw = &dw}, PackedWeights()); }).find("dbias is null"),
      std::string::npos);
  EXPECT_NE(message_of([&] { static_cast<void>(weights.pack(&w, nullptr)); }).find("reads no weights"),
            std::string::npos);
  weights.run({.x = dx, .dy = dy, .dw = &dw, .dbias = &dbias}, PackedWeights());
  EXPECT_EQ(dw, 3 * (1 + 4 + 9 + 16));
  EXPECT_EQ(dbias, 10);
  const Convolution none = plan(parse_problem("mb0ic1ih2iw2oc1kh1 dir=bwd_w bias=0"));
  none.run({.dw = &dw}, PackedWeights());
  EXPECT_EQ(dw, 0);  // a sum of no image
}

// By every algorithm of this processor, in both layouts; and the frames that the next call needs.
TEST_F(ConvolutionTest, TakesACacheAndKeepsTheNext) {
  for (const char* const layout : {"nchw", "nhwc"})
    for (const std::string_view algorithm : {"", "reference", "onednn"}) {
      const ConvProblem cached = parse_problem(
          fmt::format("mb2ic2id3ih3iw2oc3kd3kh1kw1dd1dh0dw0pd4ph0pw0 pad_back=0 cache=2 layout={}", layout));
      const ConvProblem whole = joined(cached);
      const std::vector<std::string> names = algorithm_names(Device::Kind::cpu);
      if (!algorithm.empty() && std::ranges::find(names, algorithm) == names.end()) continue;
      const Convolution conv = algorithm.empty() ? plan(cached) : plan(cached, {}, std::string(algorithm));
      const auto of = [](std::int64_t elements) {
        return std::vector<float>(static_cast<std::size_t>(elements));
      };
      std::vector<float> cache = of(cached.cache_elements()), x = of(cached.input_elements());
      std::vector<float> w = of(cached.weight_elements()), bias = {1, 2, 3};
      for (std::size_t i = 0; i < cache.size(); ++i) cache[i] = static_cast<float>(i % 5);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
      for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 3) - 1;
      const std::vector<float> frames = cpu::join_frames(cached, cache, x);
      std::vector<float> y = of(cached.output_elements()), expected = y;
      plan(whole, {}, "reference").run({.x = frames.data(), .y = expected.data()}, w.data(), bias.data());
      std::vector<float> kept = of(2 * cached.cache_elements());
      conv.run({.x = x.data(), .cache = cache.data(), .y = y.data(), .cache_out = kept.data()}, w.data(),
               bias.data());
      EXPECT_EQ(y, expected) << layout << " " << algorithm;
      // All but the first of five frames.
      const FrameRuns runs = frame_runs(cached);
      for (std::int64_t run = 0; run < runs.count; ++run)
        for (std::int64_t i = 0; i < 4 * runs.frame; ++i)
          ASSERT_EQ(kept[static_cast<std::size_t>(run * 4 * runs.frame + i)],
                    frames[static_cast<std::size_t>((run * 5 + 1) * runs.frame + i)]);
    }
}

TEST_F(ConvolutionTest, KeepsZerosWhereFramesAreFewAndSaysWhatIsWrong) {
  const Convolution first = plan(parse_problem("mb1ic1id1ih1iw2oc1kd3kh1kw1pd2ph0pw0 pad_back=0"));
  const float w[] = {1, 1, 1}, bias = 0, x[] = {3, 4};
  float y[2] = {}, kept[4] = {9, 9, 9, 9};
  first.run({.x = x, .y = y, .cache_out = kept}, w, &bias);
  EXPECT_THAT(kept, testing::ElementsAre(0, 0, 3, 4));
  const Convolution next = plan(parse_problem("mb1ic1id1ih1iw2oc1kd3kh1kw1pd2ph0pw0 pad_back=0 cache=2"));
  next.run({.x = x, .cache = kept, .y = y, .cache_out = kept}, w, &bias);  // in place
  EXPECT_THAT(kept, testing::ElementsAre(3, 4, 3, 4));
  EXPECT_THAT(y, testing::ElementsAre(6, 8));
  EXPECT_THAT(message_of([&] { next.run({.x = x, .y = y}, w, &bias); }), testing::HasSubstr("cache is null"));
  const Convolution flat = plan(parse_problem("mb1ic1id2ih1iw2oc1kd1kh1kw1"));
  const float two[4] = {};
  float of_two[4] = {};
  EXPECT_THAT(message_of([&] { flat.run({.x = two, .y = of_two, .cache_out = kept}, w, &bias); }),
              testing::HasSubstr("needs no frames"));
}

TEST_F(ConvolutionTest, RefusesBadPlans) {
  EXPECT_NE(message_of([] { plan(kProblem, {}, "fourier"); }).find("direct"), std::string::npos);
  EXPECT_NE(message_of([] { plan(kProblem, {}, "direct", parse_config("rows=1")); }), "");
  EXPECT_NE(message_of([] { plan(parse_problem("mb1ic3ih8oc4kh3 dtype=f16"), {}, "direct"); }).find("f16"),
            std::string::npos);
  ConvProblem bad = kProblem;
  bad.groups = 3;
  EXPECT_NE(message_of([&] { plan(bad); }).find("groups"), std::string::npos);
  try {
    plan(kProblem, {Device::Kind::cuda, 3});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
  }
}

TEST_F(ConvolutionTest, ABatchOfNoneIsNoWork) {
  const Convolution conv = plan(parse_problem("mb0ic3ih9oc4kh3ph1"));
  conv.run({}, conv.pack(w_.data(), bias_.data()));
  conv.run_packed({}, nullptr);
}

TEST_F(ConvolutionTest, ExplainsItself) {
  const std::string text = plan(kProblem).explain();
  for (const char* word : {"ic16ih9oc16", "cpu", "direct", "estimate", "reference"})
    EXPECT_NE(text.find(word), std::string::npos) << word << " in\n" << text;
}

TEST_F(ConvolutionTest, VerifyFindsNothingWrongAndNamesItsRepro) {
  VerifyOptions options;
  const VerifyReport one = verify(parse_problem("mb1ic2ih9oc3kh3ph1"), {}, options);
  EXPECT_EQ(one.mismatches, 0);
  EXPECT_GT(one.checks, 10);
  EXPECT_EQ(one.special, one.checks);
  const VerifyReport sweep = verify_random(300, 5, {}, options);
  EXPECT_EQ(sweep.problems, 300);
  EXPECT_GT(sweep.special, sweep.checks / 2);
  EXPECT_EQ(sweep.mismatches, 0) << sweep.failures.front().repro << ": " << sweep.failures.front().what;
  options.config = parse_config("rows=1");
  EXPECT_NE(message_of([&] { verify(kProblem, {}, options); }), "");
  options.algorithm = "nothing";
  EXPECT_NE(message_of([&] { verify_random(1, 1, {}, options); }), "");
}

// Hardly a shape that is drawn at random is one of Winograd's.
TEST(VerifyRandom, DrawsWhatTheAlgorithmTakes) {
  VerifyOptions options;
  options.algorithm = "winograd";
  const VerifyReport report = verify_random(40, 5, {}, options);
  EXPECT_EQ(report.problems, 40);
  EXPECT_GE(report.checks, 40);
  EXPECT_EQ(report.mismatches, 0);
}

TEST(VerifyRandom, TakesTheTypesAndTheLayoutThatAreAskedFor) {
  VerifyOptions options;
  options.algorithm = "direct";
  EXPECT_GE(verify_random(10, 5, {}, options).checks, 10);
  options.dtype = DType::f16;  // which it has not
  EXPECT_EQ(verify_random(2, 5, {}, options).checks, 0);
  options.algorithm = "implicit_gemm", options.layout = Layout::nhwc;
  EXPECT_GE(verify_random(10, 5, {}, options).checks, 10);
}

TEST(VerifyRandom, NamesWhatAStallWaitsFor) {
  VerifyOptions options;
  options.stall_ms = 0;  // any time at all is a stall
  std::vector<std::string> said;
  options.stalled = [&](const std::string& what) {
    said.push_back(what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  EXPECT_EQ(verify_random(50, 5, {}, options).problems, 50);
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said.front().rfind("problem ", 0), 0u) << said.front();
  EXPECT_TRUE(std::any_of(said.begin(), said.end(), [](const std::string& what) {
    return what.find("for the answer of ") != what.npos;
  })) << said.back();
}

}  // namespace
}  // namespace convtune::convolution_test
