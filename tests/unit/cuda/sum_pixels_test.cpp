// Sums of dy beside a library that has no gradient of a bias, compiled without a GPU.
#include <gtest/gtest.h>

#include "cuda/launch/sum_pixels_step.h"
#include "kernel_problems.h"

namespace convtune::sum_pixels_test {
namespace {

TEST(PixelSums, Compile) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << cuda::describe_nvrtc();
  for (const char* text : {"mb3ic8ih5oc24kh1 dtype=bf16", "mb2ic8ih9oc13kh1 dtype=f16", "mb2ic8ih9oc12kh1"})
    for (const char* arch : {"sm_80", "sm_90a"}) {
      const SumPixels sums = cuda::sums_of_dy(parse_problem(text + std::string(" layout=nhwc dir=bwd_w")));
      const cuda::CompileJob job = cuda::PixelSums::job(sums, arch);
      ASSERT_EQ(job.kernels.size(), 2u);
      EXPECT_NO_THROW(cuda::compile(job)) << text << " for " << arch;
    }
}

TEST(PixelSums, LoadWordsWhereChannelsAreWhole) {
  EXPECT_EQ((SumPixels{.channels = 24, .type = ElementType::bf16}.width()), 8);
  EXPECT_EQ((SumPixels{.channels = 12, .type = ElementType::bf16}.width()), 1);
  EXPECT_EQ((SumPixels{.channels = 12}.width()), 4);
}

}  // namespace
}  // namespace convtune::sum_pixels_test
