// Packed weights without a GPU: what each kernel prepares has every weight, and nothing that there is not.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/algorithms/direct_body_sm90/config.h"
#include "cuda/algorithms/direct_depthwise_3d_sm80/config.h"
#include "cuda/algorithms/direct_depthwise_half/config.h"
#include "cuda/algorithms/direct_depthwise_half_sm90/config.h"
#include "cuda/algorithms/direct_depthwise_sm80/config.h"
#include "cuda/algorithms/direct_few_half/config.h"
#include "cuda/algorithms/direct_fma_sm80/config.h"
#include "cuda/algorithms/direct_grouped_half/config.h"
#include "cuda/algorithms/direct_patch_sm90/config.h"
#include "cuda/algorithms/direct_stem_half/config.h"
#include "cuda/algorithms/direct_stem_sm80/candidates.h"
#include "cuda/algorithms/direct_stem_sm90/config.h"
#include "cuda/algorithms/implicit_gemm_half_sm80/config.h"
#include "cuda/algorithms/implicit_gemm_half_sm90/config.h"
#include "cuda/algorithms/implicit_gemm_sm90/config.h"
#include "kernel_expectations.h"

namespace convtune::packed_test {
namespace {

// How often each weight, and behind them each bias, is prepared. Halves are two to a word.
template <class Kernel>
std::vector<int> prepared(const Kernel& kernel) {
  const Packed at = kernel.packed();
  std::vector<int> times(static_cast<std::size_t>(at.weights + kernel.conv.k));
  for (long long i = 0; i < at.prepared * 4 / size_of(kernel.conv.x_type); ++i)
    if (const long long source = kernel.source_of(i); source >= 0) {
      EXPECT_LT(source, at.weights + kernel.conv.k);
      ++times.at(static_cast<std::size_t>(source));
    }
  return times;
}

// The first and the last candidate of some problems.
template <class Kernel, class KernelOf>
void expect_all(const Algorithm& algorithm, const std::vector<const char*>& problems, bool with_biases,
                const KernelOf& of) {
  for (const char* text : problems) {
    const ConvProblem problem = tf32(text);
    const std::vector<Config> configs = algorithm.candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : {configs.front(), configs.back()}) {
      const Kernel kernel = of(problem, config);
      const std::vector<int> times = prepared(kernel);
      const auto weights = static_cast<std::size_t>(kernel.packed().weights);
      for (std::size_t i = 0; i < times.size(); ++i)
        ASSERT_EQ(times[i], i < weights || with_biases) << text << " with " << to_string(config) << ": " << i;
      EXPECT_EQ(kernel.packed().exact_at(), kernel.packed().prepared);
      EXPECT_EQ(kernel.packed().biases, kernel.conv.k);
      EXPECT_EQ(kernel.packed().words(), kernel.packed().flag_at() + kernel.packed().flagged);
    }
  }
}

template <class Kernel>
void expect_all(const Algorithm& algorithm, const std::vector<const char*>& problems,
                bool with_biases = false) {
  expect_all<Kernel>(algorithm, problems, with_biases, [](const ConvProblem& problem, const Config& config) {
    return kernel_of<Kernel>(problem, config);
  });
}

TEST(Packed, HasEveryWeightOnce) {
  expect_all<DirectBodySm90>(cuda::direct_body_sm90(),
                             {"mb2ic21ih13oc70kh3ph1", "mb2ic16ih9oc64kh1", "mb1ic9ih12oc130kh2kw5sh2",
                              "mb1ic21id4ih7iw6oc70kd3kh3kw3 layout=nhwc", "mb2ic16ih13oc3kh3 layout=nhwc"});
  expect_all<DirectDepthwise3dSm80>(
      cuda::direct_depthwise_3d_sm80(),
      {"mb2g20ic20id5ih9iw9oc20kd3kh3kw3 layout=nhwc", "mb2g5ic5id7ih9iw9oc5kd2kh3kw3sd2sh1sw1"});
  expect_all<DirectDepthwiseSm80>(cuda::direct_depthwise_sm80(),
                                  {"mb2g20ic20ih9oc20kh3ph1 layout=nhwc", "mb1g5ic5ih30oc5kh7 layout=nhwc"});
  expect_all<DirectFmaSm80>(cuda::direct_fma_sm80(),
                            {"mb2g12ic12ih9oc12kh3ph1", "mb2g4ic8ih12oc20kh3kw2", "mb1ic3ih12oc7kh3"}, true);
  expect_all<DirectFewHalf>(cuda::direct_few_half(), {"mb2ic36ih9iw20oc3kh5ph2 layout=nhwc dtype=bf16",
                                                      "mb1ic20id5ih9iw19oc2kd3kh3kw3 layout=nhwc dtype=f16"});
  expect_all<DirectGroupedHalf>(
      cuda::direct_grouped_half(),
      {"g6mb2ic36ih9oc54kh3sh2ph1 layout=nhwc dtype=bf16", "g4mb1ic64ih9oc64kh1 layout=nhwc dtype=f16",
       "g3mb1ic60id5ih9iw9oc36kd3kh3kw2 layout=nhwc dtype=bf16"});
  expect_all<DirectPatchSm90>(cuda::direct_patch_sm90(), {"mb2ic3ih64oc70kh16sh16", "mb1ic5ih32oc33kh8sh8"});
  expect_all<ImplicitGemmSm90>(cuda::implicit_gemm_sm90(), {"mb2ic21ih13oc70kh3sh2ph1", "mb2ic40ih9oc33kh1"});
  expect_all<DirectStemSm90>(cuda::direct_stem_sm90(),
                             {"mb2ic3ih64oc96kh11sh4ph2", "mb2ic2ih33iw69oc13kh5kw3sh2sw4ph1pw2"});
  expect_all<DirectStemSm80>(
      cuda::direct_stem_sm80(),
      {"mb2ic3ih32oc35kh7sh2ph3", "mb2ic4ih16oc16kh3ph1", "mb2ic3id8ih16iw16oc20kd3kh5kw3"}, false,
      [](const ConvProblem& problem, const Config& config) {
        const cuda::DirectStemPlanned planned(problem);
        return planned.laid_out(from_config(config, planned.plain()));
      });
}

// Each weight at the same place for every batch whose kernel has that config, which
// Convolution::packed_order() takes for granted.
template <class Kernel, class KernelOf>
void expect_same_places(const cuda::KernelAlgorithm& algorithm, const std::vector<const char*>& problems,
                        const KernelOf& of) {
  int compared = 0;
  for (const char* text : problems) {
    const ConvProblem problem = tf32(text);
    const std::vector<Config> configs = spread(algorithm.candidates(problem, gpu()), 12);
    EXPECT_FALSE(configs.empty()) << text << ": " << algorithm.supports(problem, gpu()).reason();
    for (const Config& config : configs)
      for (const int batch : {1, 7, 64}) {
        ConvProblem other = problem;
        other.n = batch;
        if (!algorithm.accepts(other, gpu(), config)) continue;
        const Kernel one = of(problem, config), another = of(other, config);
        ASSERT_EQ(one.packed().prepared, another.packed().prepared) << text << " with " << to_string(config);
        ASSERT_EQ(one.packed().words(), another.packed().words()) << text << " with " << to_string(config);
        for (long long i = 0; i < one.packed().prepared * 4 / size_of(one.conv.x_type); ++i)
          ASSERT_EQ(one.source_of(i), another.source_of(i)) << text << " with " << to_string(config);
        ++compared;
      }
  }
  EXPECT_GE(compared, 6) << algorithm.name();
}

template <class Kernel>
void expect_same_places(const Algorithm& algorithm, const std::vector<const char*>& problems) {
  expect_same_places<Kernel>(
      *cuda::kernel_algorithm(algorithm), problems,
      [](const ConvProblem& problem, const Config& config) { return kernel_of<Kernel>(problem, config); });
}

TEST(Packed, LiesTheSameForEveryBatch) {
  expect_same_places<DirectBodySm90>(cuda::direct_body_sm90(),
                                     {"mb2ic21ih13oc70kh3ph1", "mb2ic16ih9oc64kh1"});
  expect_same_places<DirectDepthwise3dSm80>(
      cuda::direct_depthwise_3d_sm80(),
      {"mb2g20ic20id5ih9iw9oc20kd3kh3kw3 layout=nhwc", "mb2g5ic5id7ih9iw9oc5kd2kh3kw3sd2sh1sw1"});
  expect_same_places<DirectDepthwiseHalf>(
      cuda::direct_depthwise_half(),
      {"mb2g32ic32ih14oc32kh7ph3 layout=nhwc dtype=bf16", "mb2g40ic40ih19oc40kh7ph3 layout=nhwc dtype=f16"});
  expect_same_places<DirectDepthwiseHalfSm90>(cuda::direct_depthwise_half_sm90(),
                                              {"mb2g64ic64ih14oc64kh7ph3 layout=nhwc dtype=bf16"});
  expect_same_places<DirectDepthwiseSm80>(cuda::direct_depthwise_sm80(),
                                          {"mb2g20ic20ih9oc20kh3ph1 layout=nhwc"});
  expect_same_places<DirectFmaSm80>(cuda::direct_fma_sm80(),
                                    {"mb2g12ic12ih9oc12kh3ph1", "mb2g4ic8ih12oc20kh3kw2"});
  expect_same_places<DirectFewHalf>(cuda::direct_few_half(),
                                    {"mb2ic36ih9iw20oc3kh5ph2 layout=nhwc dtype=bf16"});
  expect_same_places<DirectGroupedHalf>(cuda::direct_grouped_half(),
                                        {"g6mb2ic36ih9oc54kh3sh2ph1 layout=nhwc dtype=bf16"});
  expect_same_places<DirectPatchSm90>(cuda::direct_patch_sm90(), {"mb2ic3ih64oc70kh16sh16"});
  expect_same_places<DirectStemHalf>(
      cuda::direct_stem_half(),
      {"mb2ic3ih64oc64kh7sh2ph3 layout=nhwc dtype=bf16", "mb2ic18ih28oc36kh3ph1 layout=nhwc dtype=bf16"});
  expect_same_places<ImplicitGemmHalfSm80>(cuda::implicit_gemm_half_sm80(),
                                           {"mb2ic64ih14oc64kh3ph1 layout=nhwc dtype=bf16"});
  expect_same_places<ImplicitGemmHalfSm90>(
      cuda::implicit_gemm_half_sm90(),
      {"mb2ic64ih14oc256kh1 layout=nhwc dtype=bf16", "mb2ic64ih14oc64kh3sh2ph1 layout=nhwc dtype=bf16"});
  expect_same_places<ImplicitGemmSm90>(cuda::implicit_gemm_sm90(), {"mb2ic21ih13oc70kh3sh2ph1"});
  expect_same_places<DirectStemSm90>(cuda::direct_stem_sm90(), {"mb2ic3ih64oc96kh11sh4ph2"});
  expect_same_places<DirectStemSm80>(*cuda::kernel_algorithm(cuda::direct_stem_sm80()),
                                     {"mb2ic3ih32oc35kh7sh2ph3", "mb2ic4ih16oc16kh3ph1"},
                                     [](const ConvProblem& problem, const Config& config) {
                                       const cuda::DirectStemPlanned planned(problem);
                                       return planned.laid_out(from_config(config, planned.plain()));
                                     });
}

}  // namespace
}  // namespace convtune::packed_test
