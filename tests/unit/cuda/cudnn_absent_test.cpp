// If there is no cuDNN, it is not in the table and says why.
#include "cuda/cudnn/cudnn.h"
#include "cuda/cudnn/cudnn_api.h"
#include "unit/absent_library.h"

namespace convtune::cudnn_absent_test {
namespace {

using CudnnAbsentDeathTest = AbsentLibraryDeathTest;

[[noreturn]] void look_for(const std::string& library) {
  ::setenv("CONVTUNE_CUDNN", library.c_str(), 1);
  EXPECT_EQ(cuda::cudnn(), nullptr);
  expect_absent(cuda::cudnn_found().reason(), {cuda::cudnn_version()}, [] { cuda::cudnn_functions(); });
}

TEST_F(CudnnAbsentDeathTest, SaysWhereItLooked) {
  EXPECT_EXIT(look_for("/nowhere/libcudnn.so.9"), testing::ExitedWithCode(0),
              "/nowhere/libcudnn.so.9: no such file");
}

TEST_F(CudnnAbsentDeathTest, TakesNoOtherLibrary) {
  EXPECT_EXIT(look_for(another_library()), testing::ExitedWithCode(0), "has no function cudnnGetVersion");
}

}  // namespace
}  // namespace convtune::cudnn_absent_test
