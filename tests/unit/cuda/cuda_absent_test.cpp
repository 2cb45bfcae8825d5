// A machine without an NVIDIA driver: everything works as if there were no GPUs in the world, and whoever
// asks for one is told what was looked for.
#include <gtest/gtest.h>

#include "convtune/device.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/cudnn/cudnn.h"
#include "cuda/device/driver.h"
#include "plan/algorithms.h"

namespace convtune::cuda_absent_test {
namespace {

class WithoutDriver : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::find_driver() != nullptr) GTEST_SKIP() << "there is a driver here: " << cuda::describe_driver();
  }
};

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST_F(WithoutDriver, ThereIsTheCpuAlone) {
  EXPECT_EQ(cuda::device_count(), 0);
  EXPECT_TRUE(cuda::devices().empty());
  ASSERT_EQ(devices().size(), 1u);
  EXPECT_EQ(best_device(), Device{});
}

TEST_F(WithoutDriver, WhoAsksForAGpuIsToldWhy) {
  const Device gpu = parse_device("cuda:0");
  for (const std::string& message :
       {message_of([&] { device_info(gpu); }), message_of([&] { backend(gpu); })}) {
    EXPECT_NE(message.find("cuda:0"), std::string::npos) << message;
    EXPECT_NE(message.find("NVIDIA driver: libcuda.so.1"), std::string::npos) << message;
  }
  EXPECT_NE(message_of([] { cuda::driver(); }).find("libcuda.so.1"), std::string::npos);
  EXPECT_NE(message_of([&] { cuda::backend(gpu); }).find("cuda:0"), std::string::npos);
  EXPECT_NE(message_of([] { cuda::primary_context(0); }).find("cuda:0"), std::string::npos);
  EXPECT_NE(message_of([] { const cuda::DeviceScope scope(2); }).find("cuda:2"), std::string::npos);
}

TEST_F(WithoutDriver, TheProbeSaysWhatWasLookedFor) {
  const std::vector<Probe> probes = cuda::probes();
  ASSERT_GE(probes.size(), 2u);
  EXPECT_EQ(probes[0].what, "NVIDIA driver");
  EXPECT_FALSE(probes[0].found);
  EXPECT_NE(probes[0].detail.find("libcuda.so.1"), std::string::npos) << probes[0].detail;
  EXPECT_EQ(probes[1].what, "NVRTC");
}

TEST(DriverErrors, NameWhatWasAttemptedAndWhatIsLost) {
  const auto thrown = [](cuda::CUresult result) {
    try {
      cuda::check(result, "copying {} bytes", 12);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorKind::internal, "nothing was thrown");
  };
  EXPECT_NO_THROW(cuda::check(0, "copying {} bytes", 12));
  constexpr cuda::CUresult kOutOfMemory = 2, kNoDevice = 100, kInvalidValue = 1, kIllegalAddress = 700;
  constexpr cuda::CUresult kNotInitialized = 3;
  EXPECT_EQ(thrown(kOutOfMemory).kind(), ErrorKind::unsupported);
  EXPECT_EQ(thrown(kNoDevice).kind(), ErrorKind::no_device);
  EXPECT_EQ(thrown(kInvalidValue).kind(), ErrorKind::internal);
  const std::string harmless = thrown(kInvalidValue).what(), sticky = thrown(kIllegalAddress).what();
  EXPECT_EQ(harmless.find("copying 12 bytes failed: "), 0u) << harmless;
  EXPECT_EQ(harmless.find("new process"), std::string::npos) << harmless;
  EXPECT_NE(sticky.find("start a new process"), std::string::npos) << sticky;
  const std::string forked = thrown(kNotInitialized).what();
  EXPECT_NE(forked.find("forked"), std::string::npos) << forked;
}

}  // namespace
}  // namespace convtune::cuda_absent_test
