// The direct stem kernel of compute capability 8.0 and up without a GPU: that its offsets make a convolution,
// and its refusals.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cuda/algorithms/direct_stem_sm80/candidates.h"
#include "kernel_expectations.h"
#include "problem/random_problem.h"

namespace convtune::direct_stem_sm80_test {
namespace {

DirectStemSm80 stem_of(const ConvProblem& problem, const Config& config) {
  const cuda::DirectStemPlanned planned(problem);
  return planned.laid_out(from_config(config, planned.plain()));
}

// The window of a block as the kernel fills it; NaN where nothing is written.
std::vector<float> window_of(const DirectStemSm80& kernel, const std::vector<float>& image, int p, int q) {
  std::vector<float> window(static_cast<std::size_t>(kernel.smem_rows() * kernel.row_pitch), std::nanf(""));
  for (int row = 0; row < kernel.smem_rows(); ++row)
    for (int chunk = 0; chunk < kernel.window_columns(); chunk += kernel.load_width) {
      const int input_row = kernel.input_row(p, row / kernel.conv.c), channel = row % kernel.conv.c;
      const int column = kernel.input_column(q, chunk);
      const bool inside = row < kernel.window_rows() * kernel.conv.c && input_row >= 0 &&
                          input_row < kernel.conv.h && column >= 0 && column < kernel.conv.w;
      for (int i = 0; i < kernel.load_width; ++i)
        window[static_cast<std::size_t>(row * kernel.row_pitch + chunk + i)] =
            inside ? image[static_cast<std::size_t>((channel * kernel.conv.h + input_row) * kernel.conv.w +
                                                    column + i)]
                   : 0.0f;
    }
  return window;
}

// The loop of k-steps: each finds its weights in the ring, what is loaded is there, and a body further on all
// offsets are the same.
void expect_ring(const DirectStemSm80& kernel, const std::string& what) {
  const int body = kernel.body_steps(), parts = kernel.body_stages();
  const int slots = kernel.resident() ? 1 : kernel.stages;
  std::vector<int> first(static_cast<std::size_t>(slots), -1);  // k-step of each slot
  const auto load = [&](int at, int stage) {
    const int left = kernel.bodies() - 1 - at, begin = at * body + kernel.stage_begin(stage);
    if (left < kernel.stage_ahead(stage)) return;
    const int end = at * body + kernel.stage_begin(stage + 1), spare = kernel.spare_floats();
    ASSERT_LT(begin, kernel.k_steps()) << what;
    ASSERT_LE((end - begin) * kernel.step_floats(), kernel.stage_floats()) << what;
    ASSERT_LE(end * kernel.step_floats(), kernel.k_steps() * kernel.step_floats() + spare) << what;
    first[static_cast<std::size_t>((at * parts + stage) % slots)] = begin;
  };
  if (kernel.resident()) first[0] = 0;
  for (int stage = 0; stage < slots && !kernel.resident(); ++stage) load(0, stage);
  for (int step = 0; step < kernel.k_steps(); ++step) {
    const int at = step / body, part = kernel.part_of(step % body);
    if (!kernel.resident() && step > 0 && step % body == kernel.stage_begin(part)) {
      const int before = step % body == 0 ? at - 1 : at;  // it is loaded as the body at hand ends
      load(before, (step % body == 0 ? parts : part) + slots - 1);
    }
    const int slot = kernel.resident() ? 0 : (at * parts + part) % slots;
    const int in_stage = kernel.resident() ? step : step % body - kernel.stage_begin(part);
    ASSERT_EQ(first[static_cast<std::size_t>(slot)] + in_stage, step) << what;
    for (const int group : {2 * step, 2 * step + 1}) {
      if (!kernel.rolled()) continue;
      ASSERT_EQ(kernel.pattern(group), kernel.pattern(group - 2 * body * at)) << what;
      ASSERT_EQ(kernel.group_offset(group),
                kernel.group_offset(group - 2 * body * at) + at * kernel.body_offset())
          << what;
    }
  }
}

// Every output of every block, as its threads read the window, against the definition. What a thread reads
// must have been written, what it multiplies by zero too.
void expect_convolution(const DirectStemSm80& kernel, const std::string& what) {
  const ConvExtents& of = kernel.conv;
  std::vector<float> image(static_cast<std::size_t>(of.c * of.h * of.w)),
      weights(static_cast<std::size_t>(of.taps()));
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(random_bits(1, i) % 7) - 3;
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(random_bits(2, i) % 7) - 3;
  for (int p = 0; p < of.p; p += kernel.band())
    for (int q = 0; q < of.q; q += kernel.columns()) {
      const std::vector<float> window = window_of(kernel, image, p, q);
      for (int row = 0; row < kernel.band(); ++row)
        for (int column = 0; column < kernel.columns(); ++column) {
          float sum = 0, want = 0;
          for (int k = 0; k < 8 * kernel.k_steps(); ++k) {
            const int group = k / 4, weight = kernel.weight_of(k);
            const int at = kernel.pixel_offset(row, column) + kernel.group_offset(group) +
                           kernel.thread_offset(kernel.pattern(group), k % 4);
            ASSERT_GE(at, 0) << what;
            ASSERT_LT(at, static_cast<int>(window.size())) << what;
            sum += window[static_cast<std::size_t>(at)] *
                   (weight < 0 ? 0.0f : weights[static_cast<std::size_t>(weight)]);
          }
          ASSERT_FALSE(std::isnan(sum)) << what << ": reads what nobody wrote";
          if (p + row >= of.p || q + column >= of.q) continue;
          for (int tap = 0; tap < of.taps(); ++tap) {
            const int channel = tap / (of.r * of.s);
            const int y = (p + row) * of.stride_h + tap / of.s % of.r - of.pad_top;
            const int x = (q + column) * of.stride_w + tap % of.s - of.pad_left;
            if (y >= 0 && y < of.h && x >= 0 && x < of.w)
              want += image[static_cast<std::size_t>((channel * of.h + y) * of.w + x)] *
                      weights[static_cast<std::size_t>(tap)];
          }
          ASSERT_EQ(sum, want) << what << ": " << p + row << ", " << q + column;
        }
    }
}

TEST(DirectStemSm80, WindowAndOffsetsMakeAConvolution) {
  for (const int stride : {1, 2, 3, 4, 5, 16})
    for (const int s : {1, 2, 3, 4, 5, 7, 11, 16})
      for (const int width : {24, 27, 30})
        for (const int pad : {0, 1, 4}) {
          ConvProblem problem;
          problem.c = 1 + s % 3, problem.h = 11, problem.w = width, problem.k = 16;
          problem.r = 1 + (s + stride) % 5, problem.s = s;
          problem.stride_h = 1 + stride % 4, problem.stride_w = stride;
          problem.pad_top = problem.pad_left = problem.pad_right = std::min(pad, s - 1);
          problem.precision = Precision::tf32;
          const std::vector<Config> configs = cuda::direct_stem_sm80().candidates(problem, gpu());
          for (std::size_t i = 0; i < configs.size(); i += 1 + configs.size() / 2)
            expect_convolution(stem_of(problem, configs[i]),
                               to_string(problem) + " with " + to_string(configs[i]));
          for (std::size_t i = 0; i < configs.size(); i += 1 + configs.size() / 8)
            expect_ring(stem_of(problem, configs[i]), to_string(problem) + " with " + to_string(configs[i]));
          if (HasFatalFailure()) return;
        }
}

TEST(DirectStemSm80, FindsItsWeightsWithAnyStages) {
  for (const char* name : {"alexnet_conv1", "resnet_stem", "yolo_stem", "vit_b16_patchify", "mnist_conv1"}) {
    const ConvProblem problem = tf32(name);
    Config config = cuda::direct_stem_sm80().candidates(problem, gpu()).front();
    for (int steps = 1; steps <= 20; ++steps)
      for (int stages = 2; stages <= 9; ++stages) {
        for (auto& [field, value] : config.values)
          if (field == "steps" || field == "stages") value = field == "steps" ? steps : stages;
        expect_ring(stem_of(problem, config), std::string(name) + " with " + to_string(config));
        if (HasFatalFailure()) return;
      }
  }
}

TEST(DirectStemSm80, TakesSmallOutputs) {
  for (const char* text :
       {"mb3ic1ih5iw32oc24kh1kw5sh2sw5ph1pw5 pad_bottom=0 pad_right=3",
        "ic4ih6iw5oc131kh3kw4sh5sw2ph1pw0 pad_right=4", "mb1ic4ih13iw20oc25kh4kw9sh3sw4ph1pw8 pad_right=7",
        "mb1ic1ih1oc1kh1", "mb1ic1ih3oc5kh3"}) {
    const ConvProblem problem = tf32(text);
    const std::vector<Config> configs = cuda::direct_stem_sm80().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    expect_convolution(stem_of(problem, configs.front()), text);
    expect_convolution(stem_of(problem, configs.back()), text);
  }
}

// It asks for one config where it is asked whether there is any.
TEST(DirectStemSm80, SupportsWhatItHasConfigsFor) {
  int supported = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    ConvProblem problem = random_problem(5, i);
    problem.precision = Precision::tf32;
    const bool has = !cuda::direct_stem_sm80().candidates(problem, gpu()).empty();
    EXPECT_EQ(static_cast<bool>(cuda::direct_stem_sm80().supports(problem, gpu())), has)
        << to_string(problem);
    supported += has;
  }
  EXPECT_GT(supported, 20);
}

TEST(DirectStemSm80, RefusesWithAReason) {
  expect_refusals(cuda::direct_stem_sm80(), {{"mb2ic3ih32oc16kh3ph1 precision=fp32", "fp32"},
                                             {"mb2ic3ih32oc16kh3ph1 layout=nhwc", "NCHW"},
                                             {"mb2ic3ih32oc16kh3ph1 dtype=f16 precision=fp16", "f32"},
                                             {"mb2g2ic4ih32oc16kh3ph1", "group"},
                                             {"mb2ic3ih32oc16kh3ph1dh1", "dense"},
                                             {"mb2ic512ih32oc16kh3ph1", "few input channels"},
                                             {"mb1ic4ih40000oc16kh3ph1", "too large"}});
  expect_config_refusals(
      cuda::direct_stem_sm80(), tf32("alexnet_conv1"),
      "warp_filters=48 warp_columns=7 warp_rows=1 filter_warps=2 row_warps=4 "
      "column_warps=1 steps=2 stages=3 blocks=1 staged=1 stagger=0",
      {"warp_filters=0", "warp_filters=40", "warp_filters=144", "warp_columns=0", "warp_columns=200",
       "filter_warps=256", "row_warps=9", "stages=1", "stages=30", "steps=0", "blocks=0", "blocks=2",
       "blocks=9", "staged=2", "stagger=257", "warp_columns=4"});
}

TEST(DirectStemSm80, TakesEveryStemCaseEverywhere) {
  for (const ConvProblem& problem : load_suite("stem"))
    for (const ComputeCapability capability : kCapabilities) {
      const ConvProblem asked = tf32(to_string(problem));
      const std::vector<Config> configs = cuda::direct_stem_sm80().candidates(asked, gpu(capability));
      ASSERT_FALSE(configs.empty()) << to_string(problem);
      for (const Config& config : configs)
        expect_ring(stem_of(asked, config), to_string(problem) + " with " + to_string(config));
      if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace convtune::direct_stem_sm80_test
