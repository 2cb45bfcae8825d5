// The direct kernel on CUDA cores without a GPU: its geometry, its refusals, and its largest configs
// compiled.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cuda/algorithms/direct_fma_sm80/config.h"
#include "kernel_expectations.h"

namespace convtune::direct_fma_sm80_test {
namespace {

// Computes the kernel's sums, in its order of loops, from an input laid out as in its shared memory.
long long sum_by_geometry(const DirectFmaSm80& a, const std::vector<int>& x, const std::vector<int>& w, int p,
                          int q) {
  const int band = p / a.band_rows(), row = p % a.band_rows() % a.rows;
  const int first_row = p % a.band_rows() / a.rows * a.rows, column = q / 4 * 4;
  long long sum = 0;
  for (int from = 0; from < a.strip_rows(); ++from) {
    const int r = a.filter_row(from, row);
    if (r < 0) continue;
    EXPECT_TRUE(a.is_used(from));
    for (int s = 0; s < a.conv.s; ++s) {
      const int at = q % 4 * a.conv.stride_w + s * a.conv.dilation_w;
      EXPECT_LT(at, a.window());
      const int pitch_column = column * a.conv.stride_w + a.first_column() + at;
      EXPECT_LT(pitch_column, a.pitch());
      const int smem_row = first_row * a.conv.stride_h + from;
      EXPECT_LT(smem_row, a.input_rows());
      const int image_row = band * a.band_rows() * a.conv.stride_h - a.conv.pad_top + smem_row;
      const int image_column = pitch_column - a.margin();
      const bool stored =
          image_row >= 0 && image_row < a.conv.h && image_column >= 0 && image_column < a.stored_columns();
      if (stored) sum += 1LL * x[image_row * a.conv.w + image_column] * w[r * a.conv.s + s];
    }
  }
  return sum;
}

TEST(DirectFmaSm80, FindsEveryProductInItsSharedMemory) {
  for (const char* text : {"mb1g1ic1ih9iw11oc1kh3ph1", "mb1g1ic1ih9iw12oc1kh3ph1",
                           "mb1ic1ih20iw16oc1kh5kw3sh2sw3ph2pw0", "mb1ic1ih15iw23oc1kh3kw4sh3sw2ph3pw4dh1dw2",
                           "mb1ic1ih12iw12oc1kh2sh4", "mb1ic1ih8iw8oc1kh7ph6", "mb1ic1ih4iw28oc1kh1sh5"}) {
    const ConvProblem problem = parse_problem(text);
    const auto number = [](int i) { return i * 7 % 11 - 5; };
    std::vector<int> x, w;
    for (int i = 0; i < problem.h * problem.w; ++i) x.push_back(number(i));
    for (int i = 0; i < problem.r * problem.s; ++i) w.push_back(number(i + 3));
    const std::vector<Config> configs = cuda::direct_fma_sm80().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    for (std::size_t c = 0; c < configs.size(); c += 1 + configs.size() / 12) {
      const DirectFmaSm80 kernel = kernel_of<DirectFmaSm80>(problem, configs[c]);
      EXPECT_EQ(kernel.pitch() % 4, 0);
      EXPECT_LE(kernel.margin() + kernel.stored_columns(), kernel.pitch());
      for (int p = 0; p < problem.p(); ++p)
        for (int q = 0; q < problem.q(); ++q) {
          long long want = 0;
          for (int r = 0; r < problem.r; ++r)
            for (int s = 0; s < problem.s; ++s) {
              const auto row = p * problem.stride_h + r * problem.dilation_h - problem.pad_top;
              const auto column = q * problem.stride_w + s * problem.dilation_w - problem.pad_left;
              if (row >= 0 && row < problem.h && column >= 0 && column < problem.w)
                want += 1LL * x[static_cast<std::size_t>(row * problem.w + column)] *
                        w[static_cast<std::size_t>(r * problem.s + s)];
            }
          ASSERT_EQ(sum_by_geometry(kernel, x, w, p, q), want)
              << text << " with " << to_string(configs[c]) << " at " << p << ", " << q;
        }
    }
  }
}

TEST(DirectFmaSm80, TakesAnyPrecisionEverywhere) {
  for (const char* precision : {"fp32", "tf32", "fp16", "bf16"})
    for (const ComputeCapability capability : kCapabilities)
      EXPECT_TRUE(cuda::direct_fma_sm80().supports(
          tf32(std::string("mb2g32ic32ih32oc32kh3ph1 precision=") + precision), gpu(capability)));
}

TEST(DirectFmaSm80, RefusesWithAReason) {
  expect_refusals(cuda::direct_fma_sm80(), {{"mb2g32ic32ih32oc32kh3ph1 layout=nhwc", "NCHW"},
                                            {"mb2g32ic32ih32oc32kh3ph1 dtype=bf16:bf16:f32", "f32"},
                                            {"mb2ic64ih32oc16kh3ph1", "few products"},
                                            {"mb2g2ic2ih64oc2kh40", "few products"},
                                            {"mb2g2ic2ih2000000iw1oc2kh3ph1pw1", "2000000"},
                                            {"mb1ic1ih40iw16384oc1kh40kw1sh1sw16", "shared memory"},
                                            {"mb1ic1ih512oc1kh1sh64", "columns"}});
  expect_config_refusals(cuda::direct_fma_sm80(), tf32("mnist_conv1"),
                         "rows=7 filters=1 down=4 units=1 chunks=32 passes=4 kept=1 uniform=1 staged=0",
                         {"rows=0", "kept=2",
                          "chunks=16 passes=3 uniform=0",  // 28 places do not divide the threads
                          "units=2",
                          "passes=60 kept=0",  // passes without work
                          "units=4096 chunks=4096 passes=1 kept=0 uniform=0",
                          "rows=16 filters=16 down=1 chunks=1 passes=1 kept=0 uniform=0"});
}

// Compiles the config with the most registers of those that keep, stage and share weights in a warp.
TEST(DirectFmaSm80, CompilesWithTheMostRegisters) {
  std::vector<PlannedKernel> kernels;
  for (const char* name : {"mobilenet_dw_3x3_144", "mobilenet_dw_3x3_s2_96", "convnext_dw_7x7_96",
                           "resnext_g32_3x3_128", "mnist_conv1", "sd_unet_conv_in"})
    for (const char* flag : {"kept", "staged", "uniform"}) {
      const ConvProblem problem = tf32(name);
      std::vector<Config> configs = cuda::direct_fma_sm80().candidates(problem, gpu());
      std::erase_if(configs, [&](const Config& config) { return config.at(flag) == 0; });
      if (configs.empty()) continue;
      kernels.push_back({problem, most<DirectFmaSm80>(problem, configs,
                                                      [](const DirectFmaSm80& a) { return a.registers(); })});
    }
  expect_compiles_as_planned(*cuda::kernel_algorithm(cuda::direct_fma_sm80()), kernels);
}

}  // namespace
}  // namespace convtune::direct_fma_sm80_test
