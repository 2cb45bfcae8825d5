// Why a GPU's clock is lowered, asked of a stand-in for NVIDIA's management library.
#include "cuda/device/nvml.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/cudnn/cudnn.h"

namespace convtune::cuda::nvml_test {
namespace {

constexpr const char* kGpu = "0000:1b:00.0";

class NvmlTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ::setenv("CONVTUNE_NVML", GetParam(), 1);
    void* const library = ::dlopen(GetParam(), RTLD_NOW);
    ASSERT_NE(library, nullptr) << ::dlerror();
    const auto find = [&](auto*& variable, const char* name) {
      variable = static_cast<std::remove_reference_t<decltype(variable)>>(::dlsym(library, name));
      ASSERT_NE(variable, nullptr) << name;
    };
    find(init_, "stand_in_init");
    find(fails_, "stand_in_fails");
    find(reasons_, "stand_in_reasons");
    find(mhz_, "stand_in_mhz");
    *init_ = *fails_ = 0;
    *reasons_ = 0;
    *mhz_ = 1980;
  }
  void TearDown() override { ::unsetenv("CONVTUNE_NVML"); }
  std::string words(unsigned long long reasons) const {
    *reasons_ = reasons;
    const auto events = Nvml::open().clock_events(kGpu);
    return events ? clock_drift_in_words(*events) : "nothing is known";
  }

  int *init_ = nullptr, *fails_ = nullptr;
  unsigned long long* reasons_ = nullptr;
  unsigned* mhz_ = nullptr;
};

TEST_P(NvmlTest, HeatAndPowerInWords) {
  EXPECT_TRUE(Nvml::open());
  EXPECT_EQ(Nvml::open().detail(), GetParam());
  EXPECT_EQ(words(0), "");
  *mhz_ = 1200;
  EXPECT_EQ(words(0x20), "it is too hot (software thermal slowdown), at 1200 MHz");
  EXPECT_EQ(words(0x48), "it is too hot (hardware thermal slowdown), at 1200 MHz");
  EXPECT_EQ(words(0x88), "its power supply has it brake (hardware power brake), at 1200 MHz");
  EXPECT_EQ(words(0x8), "its hardware lowers the clock (slowdown), at 1200 MHz");
  *mhz_ = 0;
  EXPECT_EQ(words(0x60),
            "it is too hot (software thermal slowdown), it is too hot (hardware thermal slowdown)");
}

// Idle, a clock that somebody has set, the power limit, boosts in step, a display.
TEST_P(NvmlTest, WhatIsNobodysFaultIsNotSaid) {
  for (const unsigned reasons : {0x1U, 0x2U, 0x4U, 0x10U, 0x100U, 0x117U}) EXPECT_EQ(words(reasons), "");
}

TEST_P(NvmlTest, WhatItDoesNotKnowIsNotSaid) {
  *reasons_ = 0x40;
  EXPECT_FALSE(Nvml::open().clock_events("0000:2b:00.0"));
  EXPECT_FALSE(Nvml::open().clock_events(""));
  *fails_ = 1;
  EXPECT_FALSE(Nvml::open().clock_events(kGpu));
  *fails_ = 0;
  *init_ = 9;
  const Nvml broken = Nvml::open();
  EXPECT_FALSE(broken);
  EXPECT_EQ(broken.detail(), std::string(GetParam()) + " does not start: error 9");
  EXPECT_FALSE(broken.clock_events(kGpu));
}

INSTANTIATE_TEST_SUITE_P(OfToday, NvmlTest, testing::Values(CONVTUNE_NVML_STAND_IN));
INSTANTIATE_TEST_SUITE_P(Before12_2, NvmlTest, testing::Values(CONVTUNE_NVML_STAND_IN_OLD));

TEST(NvmlAbsent, IsNotUsedAndSaysWhy) {
  ::setenv("CONVTUNE_NVML", "/nowhere/libnvidia-ml.so.1", 1);
  const Nvml absent = Nvml::open();
  EXPECT_FALSE(absent);
  EXPECT_EQ(absent.detail(), "/nowhere/libnvidia-ml.so.1: no such file");
  EXPECT_FALSE(absent.clock_events(kGpu));
  ::setenv("CONVTUNE_NVML", "/lib/x86_64-linux-gnu/libm.so.6", 1);
  EXPECT_FALSE(Nvml::open());
  ::unsetenv("CONVTUNE_NVML");
}

TEST(NvmlAbsent, TheDoctorSaysSo) {
  bool told = false;
  for (const Probe& probe : probes())
    if (probe.what == "NVML") {
      told = true;
      EXPECT_EQ(probe.found, static_cast<bool>(nvml()));
      EXPECT_NE(probe.detail, "");
    }
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace convtune::cuda::nvml_test
