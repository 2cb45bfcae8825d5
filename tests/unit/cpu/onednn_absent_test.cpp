// If there is no oneDNN, it is not in the table and says why and what to install.
#include "cpu/onednn/onednn.h"
#include "cpu/onednn/onednn_api.h"
#include "unit/absent_library.h"

namespace convtune::onednn_absent_test {
namespace {

using OnednnAbsentDeathTest = AbsentLibraryDeathTest;

[[noreturn]] void look_for(const std::string& library) {
  ::setenv("CONVTUNE_ONEDNN", library.c_str(), 1);
  EXPECT_EQ(cpu::onednn(), nullptr);
  expect_absent(cpu::onednn_found().reason(), {cpu::onednn_version(), cpu::describe_onednn()},
                [] { cpu::onednn_functions(); });
}

TEST_F(OnednnAbsentDeathTest, SaysWhatToInstallAndWhereItLooked) {
  EXPECT_EXIT(look_for("/nowhere/libdnnl.so.3"), testing::ExitedWithCode(0),
              "install Debian's libdnnl.*onednn-cpu-gomp.*/nowhere/libdnnl.so.3: no such file");
}

TEST_F(OnednnAbsentDeathTest, TakesNoOtherLibrary) {
  EXPECT_EXIT(look_for(another_library()), testing::ExitedWithCode(0), "has no function dnnl_version");
}

// Stand-ins of oneDNN's shape (onednn_stand_in.cpp) that must not be used.
TEST_F(OnednnAbsentDeathTest, TakesNoVersionThatItDoesNotKnow) {
  EXPECT_EXIT(look_for(CONVTUNE_ONEDNN_4), testing::ExitedWithCode(0),
              "oneDNN 2 or 3 is needed, .* is 4.1.0");
}

TEST_F(OnednnAbsentDeathTest, TakesNoneOnOtherThreads) {
  EXPECT_EXIT(look_for(CONVTUNE_ONEDNN_TBB), testing::ExitedWithCode(0),
              "oneDNN 3.9.0 .* does not run on convtune's OpenMP threads");
}

}  // namespace
}  // namespace convtune::onednn_absent_test
