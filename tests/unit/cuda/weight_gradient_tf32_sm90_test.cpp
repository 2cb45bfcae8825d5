// The gradients of weights in TF32 on tensor cores of 9.0 without a GPU: where sums and slices lie, refusals,
// and the tightest configs compiled. That the kernel computes the same as any other is host_gpu's.

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "cuda/algorithms/gradients.h"
#include "cuda/algorithms/weight_gradient_tf32_sm90/config.h"
#include "cuda/launch/extents.h"
#include "kernel_expectations.h"

namespace convtune::weight_gradient_tf32_sm90_test {
namespace {

using Kernel = WeightGradientTf32Sm90;

const cuda::KernelAlgorithm& algorithm() {
  return *cuda::kernel_algorithm(cuda::weight_gradient_tf32_sm90());
}
ConvProblem nhwc(const std::string& text) {
  return tf32(text + " layout=nhwc dir=bwd_w");
}

Kernel planes_of(const ConvProblem& problem, const Config& config) {
  return from_config(config, Kernel{.conv = cuda::extents_of(problem), .planes = true});
}

constexpr const char* kProblems[] = {"mb64ic64ih56oc64kh3ph1",
                                     "mb64ic128ih28oc128kh3ph1 bias=0",
                                     "mb64ic256ih14oc256kh3ph1 bias=0",
                                     "mb64ic512ih7oc512kh3ph1",
                                     "mb64ic128ih56oc128kh3sh2ph1",
                                     "mb64ic1024ih14oc256kh1 bias=0",
                                     "mb64ic64ih56oc256kh1",
                                     "mb2ic20ih9iw11oc24kh3ph1",
                                     "mb2ic36ih19iw23oc72kh3kw2ph2pw1dh1dw0",
                                     "mb2ic32ih14iw15oc40kh2kw4sh1sw3ph1pw1"};

// A stage's rows are all in its slices, and a row of the filter meets rows that lie one behind the other.
TEST(WeightGradientTf32Sm90, SlicesHoldTheirStages) {
  for (const char* text : kProblems) {
    const ConvProblem problem = nhwc(text);
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : configs) {
      const Kernel a = kernel_of<Kernel>(problem, config);
      const int of_input = a.slices() - a.gradient_slices();
      EXPECT_GE(a.gradient_slices() * a.gradient_slice_rows(), a.rows) << to_string(config);
      EXPECT_GE(of_input * a.input_slice_rows(), a.input_rows()) << to_string(config);
      EXPECT_LE(a.smem_bytes(), Kernel::kMostSmem) << to_string(config);
      EXPECT_EQ(a.smem().slices % 128, 0) << to_string(config);
      EXPECT_EQ(a.smem().full % 8, 0) << to_string(config);
      std::vector<int> times(static_cast<std::size_t>(a.input_rows()));
      for (int row = 0; row < a.input_rows(); ++row)
        ++times.at(static_cast<std::size_t>(a.place_of_row(row)));
      EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << to_string(config);
      for (int r = 0; r < a.conv.r; ++r)
        for (int row = 0; row < a.rows; ++row)
          EXPECT_EQ(a.place_of_row(r * a.conv.dilation_h + row * a.conv.stride_h),
                    a.place_of_row(r * a.conv.dilation_h) + row)
              << to_string(config);
    }
  }
}

// Each gradient of a tile is one column of a filter's, and blocks of the second kernel have all of them.
TEST(WeightGradientTf32Sm90, HasEachGradientOnce) {
  for (const char* text : kProblems) {
    const ConvProblem problem = nhwc(text);
    for (const Config& config : spread(algorithm().candidates(problem, gpu()), 8)) {
      const Kernel a = kernel_of<Kernel>(problem, config);
      std::vector<int> times(static_cast<std::size_t>(a.tile_columns()));
      for (int tap = 0; tap < a.taps(); ++tap)
        for (int channel = 0; channel < a.tile_channels(); ++channel)
          ++times.at(static_cast<std::size_t>(a.column_of(tap, channel)));
      EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << text << " with " << to_string(config);
      EXPECT_EQ(a.tile_channels() % a.added_channels(), 0) << to_string(config);
      EXPECT_EQ(a.tile_rows() % a.added_filters(), 0) << to_string(config);
      EXPECT_EQ(a.added_channels() % 4, 0) << to_string(config);
    }
  }
}

// Planes whose rows TMA knows are read as they lie, other tensors in NCHW are converted before.
TEST(WeightGradientTf32Sm90, ConvertsWhatItCannotRead) {
  for (const auto& [text, steps] : {std::pair{"mb8ic64ih28oc64kh3ph1 layout=nhwc", 2u},
                                    {"mb8ic64ih28oc64kh3ph1", 2u},
                                    {"mb8ic64ih28iw36oc64kh3pw1ph0", 2u},
                                    {"mb8ic64ih14oc64kh3ph1", 4u},
                                    {"mb8ic64ih14oc64kh1", 2u},
                                    {"mb8ic64ih7oc64kh1", 4u},
                                    {"mb8ic64ih28oc64kh3sh2ph1", 4u},
                                    {"mb8ic64ih28oc64kh3ph5dh4", 4u}}) {
    const ConvProblem problem = tf32(std::string(text) + " dir=bwd_w");
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    EXPECT_EQ(algorithm().plan(problem, gpu(), configs.front()).run.size(), steps) << text;
    EXPECT_EQ(algorithm().remark(problem).empty(), steps == 2) << algorithm().remark(problem);
  }
}

// A slice of planes begins at a multiple of 16 bytes and has what eight columns meet.
TEST(WeightGradientTf32Sm90, PlanesHoldTheirColumns) {
  for (const char* text :
       {"mb64ic64ih56oc64kh3ph1", "mb64ic128ih28oc128kh3ph1 bias=0", "mb2ic72ih12iw20oc72kh3kw1ph1pw0",
        "mb2ic20ih9iw12oc24kh2kw3sh2sw1ph1pw1", "mb64ic1024ih14oc256kh1"}) {
    const ConvProblem problem = tf32(std::string(text) + " dir=bwd_w");
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : configs) {
      const Kernel a = planes_of(problem, config);
      ASSERT_TRUE(a.planes);
      EXPECT_LE(a.early() + a.input_columns(), a.plane_input_columns()) << to_string(config);
      EXPECT_EQ(a.input_slices() * a.slice_channels(), a.tile_channels()) << to_string(config);
      EXPECT_EQ(a.gradient_slices() * Kernel::kBlock, a.tile_rows()) << to_string(config);
      EXPECT_EQ(a.smem().slices % 1024, 0) << to_string(config);
      EXPECT_EQ(a.slice_bytes() % 1024, 0) << to_string(config);
    }
  }
}

TEST(WeightGradientTf32Sm90, RefusesWithAReason) {
  const std::string nhwc = " layout=nhwc dir=bwd_w";
  expect_refusals(algorithm(),
                  {{"mb2ic64ih9oc64kh3ph1" + nhwc, "this is 8.0", {8, 0}},
                   {"mb2ic64ih9oc64kh3ph1", "it computes bwd_w only"},
                   {"mb2ic64ih9oc64kh3ph1 dtype=f16" + nhwc, "x and dy in f32"},
                   {"mb2ic64ih9oc64kh3ph1 precision=fp32" + nhwc, "tf32"},
                   {"g2mb2ic64ih9oc64kh3ph1" + nhwc, "one group"},
                   {"mb2ic66ih9oc64kh3ph1" + nhwc, "multiples of 4 channels"},
                   {"mb2ic64ih9oc8kh3ph1" + nhwc, "from 16 on"},
                   {"mb2ic64ih9oc64kh5ph2" + nhwc, "up to 3 rows of up to 3, or 2 of up to 4, not of 5 of 5"},
                   {"mb2ic64ih9iw9oc64kh3kw4ph1pw1" + nhwc, "not of 3 of 4"},
                   {"mb0ic64ih9oc64kh3ph1" + nhwc, "there is no image"}});
  expect_config_refusals(algorithm(), tf32("mb8ic64ih28oc128kh3ph1" + nhwc),
                         "filter_groups=1 row_blocks=1 channel_blocks=1 rows=4 columns=8 stages=2 split=8",
                         {"filter_groups=2", "row_blocks=2", "channel_blocks=2", "rows=64", "columns=6",
                          "columns=4 rows=1", "stages=4 rows=8", "split=4000"});
}

TEST(WeightGradientTf32Sm90, CompilesAsPlanned) {
  std::vector<PlannedKernel> kernels;
  for (const char* text : kProblems) {
    const ConvProblem problem = nhwc(text);
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    kernels.push_back({problem, configs.front()});
    kernels.push_back({problem, most<Kernel>(problem, configs,
                                             [](const Kernel& a) { return a.sums() + 8 * a.consumers(); })});
  }
  for (const char* text : {"mb64ic64ih56oc64kh3ph1 bias=0", "mb64ic128ih28oc128kh3ph1"}) {
    const ConvProblem problem = tf32(std::string(text) + " dir=bwd_w");
    kernels.push_back({problem, algorithm().candidates(problem, gpu()).front()});
  }
  kernels.push_back({kernels.front().problem, kernels.front().config, {9, 0}, true});
  kernels.push_back({kernels[kernels.size() - 2].problem, kernels[kernels.size() - 2].config, {9, 0}, true});
  expect_compiles_as_planned(algorithm(), kernels);
}

}  // namespace
}  // namespace convtune::weight_gradient_tf32_sm90_test
