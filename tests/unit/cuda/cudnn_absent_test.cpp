// Where cuDNN cannot be loaded, or what is loaded is not cuDNN, it is not in the table and says why. A
// process looks once, so each of these tests wants one of its own, as ctest gives it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "convtune/error.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/cudnn/cudnn.h"
#include "cuda/cudnn/cudnn_api.h"

namespace convtune {
namespace {

class CudnnAbsent : public testing::Test {
 protected:
  void SetUp() override {
    static bool looked = false;
    if (looked) GTEST_SKIP() << "another test of this process has looked for cuDNN already";
    looked = true;
  }
};

std::string reason_with(const char* library) {
  ::setenv("CONVTUNE_CUDNN", library, 1);
  EXPECT_EQ(cuda::cudnn(), nullptr);
  EXPECT_EQ(cuda::cudnn_version(), cuda::cudnn_found().reason());
  try {
    cuda::cudnn_functions();
    ADD_FAILURE() << "it gave functions";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_EQ(error.what(), cuda::cudnn_found().reason());
  }
  return cuda::cudnn_found().reason();
}

TEST_F(CudnnAbsent, SaysWhereItLooked) {
  EXPECT_NE(reason_with("/nowhere/libcudnn.so.9").find("/nowhere/libcudnn.so.9: no such file"),
            std::string::npos);
}

TEST_F(CudnnAbsent, TakesNoOtherLibrary) {
  Dl_info info{};
  ASSERT_NE(::dladdr(reinterpret_cast<const void*>(&::getenv), &info), 0);
  ASSERT_EQ(*info.dli_fname, '/');
  EXPECT_NE(reason_with(info.dli_fname).find("has no function cudnnGetVersion"), std::string::npos);
}

}  // namespace
}  // namespace convtune
