// Where oneDNN cannot be loaded, or what is loaded is not oneDNN, it is not in the table and says why and
// what to install. A process looks once, so each test starts one: this program again, with that test alone.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <iostream>

#include "cpu/cpu.h"
#include "cpu/onednn/onednn_api.h"

namespace convtune {
namespace {

class OnednnAbsentDeathTest : public testing::Test {
 protected:
  OnednnAbsentDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Ends the process with 0 where everybody is told the same reason, which it writes to standard error.
[[noreturn]] void look_for(const char* library) {
  ::setenv("CONVTUNE_ONEDNN", library, 1);
  EXPECT_EQ(cpu::onednn(), nullptr);
  const std::string reason = cpu::onednn_found().reason();
  EXPECT_EQ(cpu::onednn_version(), reason);
  EXPECT_EQ(cpu::describe_onednn(), reason);
  try {
    cpu::onednn_functions();
    ADD_FAILURE() << "it gave functions";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_EQ(error.what(), reason);
  }
  std::cerr << reason << '\n';
  std::exit(testing::Test::HasFailure() ? 1 : 0);
}

TEST_F(OnednnAbsentDeathTest, SaysWhatToInstallAndWhereItLooked) {
  EXPECT_EXIT(look_for("/nowhere/libdnnl.so.3"), testing::ExitedWithCode(0),
              "install Debian's libdnnl.*onednn-cpu-gomp.*/nowhere/libdnnl.so.3: no such file");
}

TEST_F(OnednnAbsentDeathTest, TakesNoOtherLibrary) {
  Dl_info info{};
  ASSERT_NE(::dladdr(reinterpret_cast<const void*>(&::getenv), &info), 0);
  ASSERT_EQ(*info.dli_fname, '/');
  EXPECT_EXIT(look_for(info.dli_fname), testing::ExitedWithCode(0), "has no function dnnl_version");
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
}  // namespace convtune
