// Where cuDNN cannot be loaded, or what is loaded is not cuDNN, it is not in the table and says why. A
// process looks once, so each test starts one: this program again, with that test alone.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <iostream>

#include "convtune/error.h"
#include "cuda/cudnn/cudnn.h"
#include "cuda/cudnn/cudnn_api.h"

namespace convtune {
namespace {

class CudnnAbsentDeathTest : public testing::Test {
 protected:
  CudnnAbsentDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Ends the process with 0 where everybody is told the same reason, which it writes to standard error.
[[noreturn]] void look_for(const char* library) {
  ::setenv("CONVTUNE_CUDNN", library, 1);
  EXPECT_EQ(cuda::cudnn(), nullptr);
  const std::string reason = cuda::cudnn_found().reason();
  EXPECT_EQ(cuda::cudnn_version(), reason);
  try {
    cuda::cudnn_functions();
    ADD_FAILURE() << "it gave functions";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_EQ(error.what(), reason);
  }
  std::cerr << reason << '\n';
  std::exit(testing::Test::HasFailure() ? 1 : 0);
}

TEST_F(CudnnAbsentDeathTest, SaysWhereItLooked) {
  EXPECT_EXIT(look_for("/nowhere/libcudnn.so.9"), testing::ExitedWithCode(0),
              "/nowhere/libcudnn.so.9: no such file");
}

TEST_F(CudnnAbsentDeathTest, TakesNoOtherLibrary) {
  Dl_info info{};
  ASSERT_NE(::dladdr(reinterpret_cast<const void*>(&::getenv), &info), 0);
  ASSERT_EQ(*info.dli_fname, '/');
  EXPECT_EXIT(look_for(info.dli_fname), testing::ExitedWithCode(0), "has no function cudnnGetVersion");
}

}  // namespace
}  // namespace convtune
