// Checks the answers where a vendor's library cannot be loaded, or the loaded file is another: everybody is
// told the same reason. A process looks once, so each test starts one: this program again, with that test
// alone.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "convtune/error.h"

namespace convtune {

class AbsentLibraryDeathTest : public testing::Test {
 protected:
  AbsentLibraryDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Ends the process with 0 where all of `told` are `reason`, which it writes to standard error, and where what
// asks for functions is refused with it.
[[noreturn]] inline void expect_absent(const std::string& reason, const std::vector<std::string>& told,
                                       const std::function<void()>& ask_for_functions) {
  for (const std::string& one : told) EXPECT_EQ(one, reason);
  try {
    ask_for_functions();
    ADD_FAILURE() << "it gave functions";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_EQ(error.what(), reason);
  }
  std::cerr << reason << '\n';
  std::exit(testing::Test::HasFailure() ? 1 : 0);
}

// The file of a library that is no vendor's: the C library.
inline std::string another_library() {
  Dl_info info{};
  EXPECT_NE(::dladdr(reinterpret_cast<const void*>(&::getenv), &info), 0);
  EXPECT_EQ(*info.dli_fname, '/');
  return info.dli_fname;
}

}  // namespace convtune
