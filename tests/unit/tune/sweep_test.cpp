// Tests the choice of problems and configs of verify, and of those compiled for a GPU that is elsewhere.
#include "tune/sweep.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "convtune/cubin_cache.h"
#include "cuda/compile/compiler.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"
#include "refusal.h"

namespace convtune::sweep_test {
namespace {

const Target kH100 = find_target("h100");
const ConvProblem kProblem = parse_problem("mb2ic3ih9oc4kh3ph1");

Draw drawn(std::uint64_t index, const SweptDevice& on, const VerifyOptions& options = {}) {
  StallWatch silent({}, std::chrono::milliseconds(1));
  return draw(7, index, on, options, silent);
}

TEST(Sweep, DrawsTheSameWhereTheGpuIsElsewhereButForTheVendor) {
  const DeviceInfo device = device_of(kH100);
  std::size_t checks = 0;
  for (std::uint64_t i = 0; i < 64; ++i) {
    const Draw here = drawn(i, {device, Precision::tf32});
    Draw ours = here;
    std::erase_if(ours.chosen, [](const auto& pair) { return pair.first->vendor(); });
    const Draw elsewhere = drawn(i, {device, Precision::tf32, false});
    EXPECT_EQ(elsewhere.problem, here.problem);
    EXPECT_EQ(elsewhere.chosen, ours.chosen) << to_string(here.problem);
    checks += ours.chosen.size();
  }
  EXPECT_GT(checks, 64u);
}

TEST(Sweep, TakesTypesLayoutAndAlgorithmFromTheOptions) {
  const DeviceInfo device = device_of(kH100);
  VerifyOptions options;
  options.algorithm = "direct_body_half_sm90", options.layout = Layout::nhwc;
  options.dtype = parse_dtypes("bf16");
  for (std::uint64_t i = 0; i < 8; ++i) {
    const Draw one = drawn(i, {device, Precision::tf32, false}, options);
    EXPECT_EQ(one.problem.layout, Layout::nhwc);
    EXPECT_EQ(one.problem.precision, Precision::bf16);
    ASSERT_EQ(one.chosen.size(), 1u) << to_string(one.problem);
    EXPECT_EQ(one.chosen[0].first->name(), options.algorithm);
  }
}

TEST(Sweep, DrawsProblemsWithADepthAlone) {
  const DeviceInfo device = device_of(kH100);
  VerifyOptions options;
  options.depth = true;
  for (std::uint64_t i = 0; i < 64; ++i)
    EXPECT_TRUE(drawn(i, {device, Precision::tf32, false}, options).problem.has_depth()) << i;
}

bool is_row(const ConvProblem& problem) {
  return !problem.has_depth() && problem.h == 1 && problem.r == 1 &&
         problem.pad_top + problem.pad_bottom == 0;
}

TEST(Sweep, DrawsRowsAlone) {
  const DeviceInfo device = device_of(kH100);
  VerifyOptions options;
  options.row = true;
  int long_filters = 0, wide = 0;
  for (std::uint64_t i = 0; i < 64; ++i) {
    const ConvProblem one = drawn(i, {device, Precision::tf32, false}, options).problem;
    EXPECT_TRUE(is_row(one)) << to_string(one);
    EXPECT_NO_THROW(validate(one)) << to_string(one);
    long_filters += one.s > 2, wide += one.w > 64;
  }
  EXPECT_GT(long_filters, 16);
  EXPECT_GT(wide, 8);
}

TEST(Sweep, DrawsOneDirectionAloneInEveryDimension) {
  const DeviceInfo device = device_of(kH100);
  for (const Direction direction :
       {Direction::forward, Direction::backward_data, Direction::backward_weights})
    for (const int dimensions : {1, 2, 3}) {
      VerifyOptions options;
      options.direction = direction, options.row = dimensions == 1, options.depth = dimensions == 3;
      int layers = 0;
      for (std::uint64_t i = 0; i < 32; ++i) {
        const ConvProblem one = drawn(i, {device, Precision::tf32, false}, options).problem;
        EXPECT_EQ(one.direction, direction) << to_string(one);
        EXPECT_TRUE(dimensions == 1 ? is_row(one) : dimensions == 2 || one.has_depth()) << to_string(one);
        layers += one.bias || one.activation != Activation::none;
      }
      // Transposed layers and gradients of x.
      EXPECT_GT(layers, 2);
      EXPECT_LT(layers, 32);
    }
}

// Counts the problems with a Snake among `draws` drawn ones: in the place of the sum, and beside it.
std::pair<int, int> snakes_of(std::uint64_t draws, const std::string& algorithm) {
  const DeviceInfo device = device_of(kH100);
  VerifyOptions options;
  options.algorithm = algorithm;
  std::pair<int, int> found;
  for (std::uint64_t i = 0; i < draws; ++i) {
    const Draw one = drawn(i, {device, Precision::tf32, false}, options);
    EXPECT_NO_THROW(validate(one.problem)) << to_string(one.problem);
    if (one.problem.snake == Snake::none) continue;
    (one.problem.snake == Snake::after ? found.first : found.second) += 1;
    EXPECT_TRUE(algorithm.empty() || one.chosen.size() == 1) << to_string(one.problem);
  }
  return found;
}

TEST(Sweep, DrawsSnakesWhereTheyAreTaken) {
  const auto [after, beside] = snakes_of(64, "implicit_gemm_half_sm90");
  EXPECT_GE(after, 4);
  EXPECT_GE(beside, 4);
  EXPECT_EQ(snakes_of(16, "direct_body_half_sm90"), std::pair(0, 0));
  const auto [some, others] = snakes_of(256, "");
  EXPECT_GE(some + others, 2);
  EXPECT_LE(some + others, 20);
}

// Never one of another kind in its place, whose answer would be told as that of one asked for.
TEST(Sweep, ChecksNothingWhereAnAlgorithmHasNoneOfTheKind) {
  const DeviceInfo device = device_of(kH100);
  for (const Algorithm* algorithm : algorithms(Device::Kind::cuda))
    for (const bool depth : {false, true}) {
      if (algorithm->vendor()) continue;
      VerifyOptions options;
      options.algorithm = algorithm->name(), options.depth = depth;
      if (!depth) options.direction = Direction::backward_weights;
      for (std::uint64_t i = 0; i < 6; ++i) {
        const Draw one = drawn(i, {device, Precision::tf32, false}, options);
        if (one.chosen.empty()) continue;
        EXPECT_TRUE(depth ? one.problem.has_depth() : one.problem.direction == *options.direction)
            << options.algorithm << " runs " << to_string(one.problem);
      }
    }
}

TEST(Sweep, NamesWhyAnAlgorithmCannot) {
  const DeviceInfo device = device_of(kH100);
  VerifyOptions options;
  options.algorithm = "direct_body_half_sm90";
  const auto why = [&] {
    return refusal([&] { all_candidates(kProblem, {device, Precision::tf32, false}, options); });
  };
  EXPECT_NE(why().find("f16, bf16 tensors only"), std::string::npos) << why();
  options.algorithm.clear();
  options.config = parse_config("stages=2");
  EXPECT_NE(why().find("the name of its algorithm"), std::string::npos) << why();
}

class Compiling : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::has_nvrtc()) GTEST_SKIP() << cuda::describe_nvrtc();
    std::string folder = (std::filesystem::temp_directory_path() / "convtune_sweep_XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    ::setenv("CONVTUNE_CACHE_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("CONVTUNE_CACHE_DIR");
    std::filesystem::remove_all(folder_);
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(Compiling, LeavesInTheCacheWhatTheSweepWouldCompile) {
  const CompileReport report = compile_random(3, 7, kH100);
  EXPECT_EQ(report.problems, 3);
  EXPECT_TRUE(report.failures.empty());
  EXPECT_GT(report.kernels, 3);  // the first problem has one of each algorithm compiled
  EXPECT_EQ(cubin_cache_contents().kernels, report.kernels);
  EXPECT_EQ(compile_random(3, 7, kH100).kernels, report.kernels);
  EXPECT_EQ(cubin_cache_contents().kernels, report.kernels) << "the same kernels were compiled again";
}

TEST_F(Compiling, CompilesEveryCandidateOfAProblem) {
  VerifyOptions options;
  options.algorithm = "direct_fma_sm80";
  options.config =
      find_algorithm(Device::Kind::cuda, options.algorithm).candidates(kProblem, device_of(kH100)).front();
  std::string waited;
  options.stalled = [&](const std::string& what) {
    if (waited.empty()) waited = what;
  };
  options.stall_ms = 1;
  EXPECT_EQ(compile_candidates(kProblem, kH100, options).kernels, 1);
  EXPECT_EQ(waited.find("candidate 0 has waited"), 0u) << waited;
  EXPECT_EQ(cubin_cache_contents().kernels, 1);
  const std::atomic<bool> stopped = true;
  options.cancel = &stopped;
  EXPECT_TRUE(compile_candidates(kProblem, kH100, options).interrupted);
}

TEST_F(Compiling, SaysWhatIsWrong) {
  VerifyOptions options;
  options.algorithm = "direct_stem_sm70";
  EXPECT_NE(refusal([&] { compile_random(1, 1, kH100, options); }).find("sm70"), std::string::npos);
  EXPECT_NE(refusal([&] { compile_random(-1, 1, kH100); }).find("-1"), std::string::npos);
}

}  // namespace
}  // namespace convtune::sweep_test
