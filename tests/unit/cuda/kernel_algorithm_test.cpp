// Tests the parts that the algorithms with kernels of our own share: the order of candidates, and refusals.
#include "cuda/launch/kernel_algorithm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "contract/most_images.h"
#include "cuda/launch/bare_residues.h"
#include "kernel_expectations.h"

namespace convtune::cuda::kernel_algorithm_test {
namespace {

TEST(BestOf, KeepsTheOrderOfEquals) {
  EXPECT_EQ(best_of<int>({{2, 1}, {1, 2}, {2, 3}, {1, 4}}), (std::vector<int>{2, 4, 1, 3}));
  EXPECT_EQ(best_of<int>({}), std::vector<int>{});
}

TEST(BestOf, LeavesOutWhatIsTooManyOrHopeless) {
  const std::vector<Ranked<int>> ranked = {{4, 1}, {2, 2}, {4.1, 3}, {3, 4}};
  EXPECT_EQ(best_of(ranked, 3), (std::vector<int>{2, 4, 1}));
  EXPECT_EQ(best_of(ranked, 9, 2), (std::vector<int>{2, 4, 1}));
  EXPECT_EQ(best_of(ranked, 2, 2), (std::vector<int>{2, 4}));
}

// Several parts would each convert the tensors: of NCHW in half precision they are none.
TEST(Parts, AreNotStoredInAnotherLayout) {
  const DeviceInfo h200 = gpu();
  const std::string layer = "mb1ic40ih7oc24kh3sh2ph1 dir=transposed dtype=bf16 precision=bf16";
  EXPECT_FALSE(implicit_gemm_half_sm90().supports(parse_problem(layer), h200));
  EXPECT_TRUE(implicit_gemm_half_sm90().supports(parse_problem(layer + " layout=nhwc"), h200));
  EXPECT_TRUE(direct_body_half_sm90().supports(parse_problem(layer), h200));
}

class AnyBatch : public testing::TestWithParam<const Algorithm*> {
 protected:
  AnyBatch() : algorithm_(*kernel_algorithm(*GetParam())) {
    largest_.n = 64;
    config_ = algorithm_.candidates(largest_, h200_).front();
    any_ = config_;
    any_.values.emplace_back(kMostImages, largest_.n);
  }
  ConvProblem of(std::int64_t batch) const {
    ConvProblem problem = largest_;
    problem.n = batch;
    return problem;
  }
  std::string text(std::int64_t batch, const Config& config) const {
    return algorithm_.plan(of(batch), h200_, config).configs.front();
  }

  const DeviceInfo h200_ = gpu();
  const KernelAlgorithm& algorithm_;
  ConvProblem largest_ = parse_problem(
      GetParam()->name() == "direct_stem_half"
          ? "mb1ic3ih24oc64kh7sh2ph3 layout=nhwc dtype=bf16 precision=bf16"
          : "mb1ic64ih16oc128kh3ph1 dtype=bf16 precision=bf16 residual=1 layout=" +
                std::string(GetParam()->name() == "direct_body_half_nchw_sm90" ? "nchw" : "nhwc"));
  Config config_, any_;
};

TEST_P(AnyBatch, IsOneText) {
  EXPECT_EQ(text(1, any_), text(63, any_));
  EXPECT_NE(text(64, any_), text(64, config_));
  const LaunchPlan one = algorithm_.plan(of(1), h200_, any_), fixed = algorithm_.plan(of(64), h200_, config_);
  EXPECT_EQ(one.packed.words(), fixed.packed.words());
  EXPECT_EQ(one.kernel_launch().dynamic_smem_bytes, fixed.kernel_launch().dynamic_smem_bytes);
  EXPECT_LT(one.kernel_launch().blocks(), fixed.kernel_launch().blocks());
  EXPECT_EQ(std::get<int>(one.kernel_launch().arguments.back()), 1);
  EXPECT_EQ(algorithm_.packed_order(of(1), h200_, any_), algorithm_.packed_order(of(64), h200_, config_));
}

TEST_P(AnyBatch, IsNoLargerOne) {
  EXPECT_TRUE(algorithm_.accepts(of(64), h200_, any_));
  const Support support = algorithm_.accepts(of(65), h200_, any_);
  EXPECT_EQ(support.reason(), "it is compiled for 64 images at most, not for 65");
}

INSTANTIATE_TEST_SUITE_P(Kernels, AnyBatch,
                         testing::Values(&direct_body_half_sm90(), &direct_body_half_nchw_sm90(),
                                         &implicit_gemm_half_sm90(), &direct_stem_half()),
                         [](const auto& info) { return std::string(info.param->name()); });

TEST(AnyBatchField, IsNotForEveryKernel) {
  const ConvProblem problem = parse_problem("mb8ic64ih14oc64kh3ph1 precision=tf32");
  Config config = implicit_gemm_sm90().candidates(problem, gpu()).front();
  config.values.emplace_back(kMostImages, 8);
  EXPECT_FALSE(implicit_gemm_sm90().accepts(problem, gpu(), config));
}

// A constant, since a shift by more bits than there are is none.
TEST(BareResidues, AreNoneOfAStrideWithoutBits) {
  constexpr BareResidues what{.stride_h = 100, .stride_w = 2, .met_h = -1};
  static_assert(what.is_met(0, 99, 0) && !what.is_met(0, 99, 1));
}

TEST(BareResidues, AreUnitsOf16BytesChannelsLast) {
  const auto of = [](int channels, bool nhwc, ElementType type) {
    return BareResidues{.conv = {.n = 2, .k = channels, .p = 15, .q = 15, .nhwc = nhwc, .y_type = type},
                        .stride_h = 2,
                        .stride_w = 2};
  };
  EXPECT_EQ(of(64, true, ElementType::bf16).unit(), 8);
  EXPECT_EQ(of(64, true, ElementType::bf16).blocks(), 2);  // 3,600 units, 2,048 a block
  EXPECT_EQ(of(20, true, ElementType::f32).unit(), 4);
  EXPECT_EQ(of(20, true, ElementType::f16).unit(), 1);
  EXPECT_EQ(of(64, false, ElementType::bf16).unit(), 1);
}

// Three quarters of dx, by a kernel of their own.
TEST(KernelAlgorithm, CountsWhatNoTapMeets) {
  const ConvProblem problem =
      parse_problem("mb2ic64ih16oc128kh1sh2 dtype=bf16 precision=bf16 layout=nhwc dir=bwd_d bias=0");
  const KernelAlgorithm& gemm = *kernel_algorithm(implicit_gemm_half_sm90());
  const TileWork work = gemm.work(problem, gpu(), gemm.candidates(problem, gpu()).front());
  EXPECT_EQ(work.conversions, 1);
  EXPECT_EQ(work.converted_bytes, 0.75 * 2 * 2 * 64 * 16 * 16);
}

// The reason for which cuTensorMapEncode refuses a map, for images of a few pixels too.
std::string refused_by_the_driver(const TensorMapLayout& map) {
  for (const std::uint64_t extent : map.extents)
    if (extent == 0 || extent > 1ULL << 32) return fmt::format("an extent of {}", extent);
  for (const std::uint64_t stride : map.strides)
    if (stride % 16 != 0 || stride >= 1ULL << 40) return fmt::format("a stride of {} bytes", stride);
  for (const std::uint32_t side : map.box)
    if (side == 0 || (!map.walk && side > 256)) return fmt::format("a box of {}", side);
  return {};
}

TEST(KernelAlgorithm, DescribesTensorsThatTheDriverTakes) {
  std::vector<ConvProblem> problems = random_layers(200);
  for (const char* layer :
       {"mb1ic24ih4oc24kh3", "mb4ic8ih2iw3oc8kh1kw1", "mb2ic72ih1oc72kh1", "mb2ic8ih3oc8kh3ph1"})
    for (const char* type : {" dtype=bf16 precision=bf16", " precision=tf32"})
      for (const char* layout : {" layout=nchw", " layout=nhwc"})
        for (const char* direction : {"", " dir=bwd_d bias=0", " dir=bwd_w"})
          problems.push_back(parse_problem(std::string(layer) + type + layout + direction));
  int maps = 0;
  for (const auto* algorithm : own_algorithms())
    for (const ConvProblem& problem : supported(*algorithm, gpu(), problems))
      for (const Step& step :
           algorithm->plan(problem, gpu(), algorithm->candidates(problem, gpu()).front()).run)
        if (const auto* launch = std::get_if<KernelLaunch>(&step))
          for (const Argument& argument : launch->arguments)
            if (const auto* all = std::get_if<TensorMaps>(&argument))
              for (const TensorMapGroup& group : all->groups)
                for (const TensorMapLayout& map : group.maps) {
                  EXPECT_EQ(refused_by_the_driver(map), "") << algorithm->name() << " " << to_string(problem);
                  ++maps;
                }
  EXPECT_GT(maps, 100);
}

}  // namespace
}  // namespace convtune::cuda::kernel_algorithm_test
