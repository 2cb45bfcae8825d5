// Libraries that are found while the program runs: the order of places, and what is said of each.
#include "base/library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "convtune/error.h"

namespace convtune::library_test {
namespace {

namespace fs = std::filesystem;

class LibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "convtune_library_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const char* variable : kVariables) ::unsetenv(variable);
  }
  void TearDown() override {
    for (const char* variable : kVariables) ::unsetenv(variable);
    fs::remove_all(folder_);
  }
  static constexpr const char* kVariables[] = {"CONVTUNE_TEST_LIBRARY", "VIRTUAL_ENV", "CONDA_PREFIX",
                                               "CUDA_HOME", "CUDA_PATH"};
  // A library of another name: the C library's mathematics.
  static LibrarySearch mathematics() { return {"mathematics", "CONVTUNE_TEST_LIBRARY", {"libm.so.6"}, {}}; }
  static LibrarySearch absent() {
    return {"Absent",
            "CONVTUNE_TEST_LIBRARY",
            {"libconvtune_absent.so.2", "libconvtune_absent.so.1"},
            {"nvidia/absent/lib"}};
  }
  // The file of a library that is loaded already.
  static std::string real_file() { return Library::open(mathematics()).path(); }
  fs::path folder_;
};

TEST_F(LibraryTest, FunctionsByName) {
  const Library library = Library::open(mathematics());
  ASSERT_TRUE(library) << library.why_not();
  EXPECT_TRUE(fs::path(library.path()).is_absolute()) << library.path();
  double (*cosine)(double) = nullptr;
  library.bind(cosine, "cos");
  EXPECT_EQ(cosine(0), 1);
  EXPECT_FALSE(library.bind_if_there(cosine, "cosecant_of_nothing"));
  EXPECT_EQ(cosine, nullptr);
  try {
    library.bind(cosine, "cosecant_of_nothing");
    FAIL() << "a function that is not there was bound";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    const std::string message = error.what();
    EXPECT_NE(message.find("mathematics"), std::string::npos) << message;
    EXPECT_NE(message.find("cosecant_of_nothing"), std::string::npos) << message;
  }
}

TEST_F(LibraryTest, AnAbsentOneSaysEveryPlace) {
  ::setenv("CUDA_HOME", "/absent/toolkit", 1);
  ::setenv("CUDA_PATH", "relative/toolkit", 1);
  const Library library = Library::open(absent());
  EXPECT_FALSE(library);
  const std::string why = library.why_not();
  EXPECT_NE(why.find("/absent/toolkit/lib64/libconvtune_absent.so.2: no such file"), std::string::npos)
      << why;
  EXPECT_NE(why.find("/usr/local/cuda/lib64/libconvtune_absent.so.1: no such file"), std::string::npos)
      << why;
  EXPECT_EQ(why.find("relative"), std::string::npos) << why;
  EXPECT_EQ(library.tried().back().find("libconvtune_absent.so.1: "), 0u) << library.tried().back();
  void (*function)() = nullptr;
  EXPECT_THROW(library.bind(function, "anything"), Error);
  EXPECT_FALSE(library.bind_if_there(function, "anything"));
}

TEST(SitePackages, AreThoseOfAnInstalledPackage) {
  EXPECT_EQ(site_packages_of("/opt/lib/python3.12/site-packages/convtune/lib/libconvtune_c.so"),
            "/opt/lib/python3.12/site-packages");
  EXPECT_EQ(site_packages_of("/usr/lib/python3/dist-packages/convtune/bin/convtune"),
            "/usr/lib/python3/dist-packages");
  for (const char* other : {"", "/usr/lib/libconvtune_c.so", "/home/me/convtune/build/libconvtune_c.so",
                            "/opt/site-packages/convtuned/lib/libconvtune_c.so"})
    EXPECT_EQ(site_packages_of(other), "") << other;
}

TEST_F(LibraryTest, WhatIsNamedIsTakenOrRefusedAlone) {
  ::setenv("CONVTUNE_TEST_LIBRARY", real_file().c_str(), 1);
  EXPECT_TRUE(Library::open(absent())) << "the file that the variable names was not taken";
  for (const char* wrong : {"/absent/libm.so.6", "libm.so.6", "/proc/self/status"}) {
    ::setenv("CONVTUNE_TEST_LIBRARY", wrong, 1);
    const Library library = Library::open(mathematics());
    EXPECT_FALSE(library) << wrong;
    ASSERT_EQ(library.tried().size(), 1u) << library.why_not();
    EXPECT_EQ(library.tried()[0].find(std::string(wrong) + ": "), 0u) << library.tried()[0];
  }
}

TEST_F(LibraryTest, WheelsComeBeforeTheToolkitAndBetterNamesFirst) {
  const fs::path wheel = folder_ / "lib/python3.11/site-packages/nvidia/absent/lib";
  fs::create_directories(wheel);
  std::ofstream(wheel / "libconvtune_absent.so.2") << "no library at all";
  fs::create_symlink(real_file(), wheel / "libconvtune_absent.so.1");
  ::setenv("VIRTUAL_ENV", folder_.c_str(), 1);
  const Library library = Library::open(absent());
  EXPECT_TRUE(library) << library.why_not();
  ASSERT_EQ(library.tried().size(), 1u) << "something came before the wheel: " << library.why_not();
  EXPECT_NE(library.tried()[0].find("libconvtune_absent.so.2"), std::string::npos) << library.tried()[0];

  LibrarySearch outside = absent();
  outside.wheel_folders.clear();
  EXPECT_FALSE(Library::open(outside));
  outside.in_toolkit = false;
  const Library loader_alone = Library::open(outside);
  for (const std::string& place : loader_alone.tried()) EXPECT_NE(place[0], '/') << place;
}

TEST_F(LibraryTest, WhatIsThereAndDoesNotLoadIsToldFromWhatIsAbsent) {
  EXPECT_FALSE(Library::open(absent()).is_unloadable());
  EXPECT_FALSE(Library::open(mathematics()).is_unloadable());
  const std::string file = folder_ / "broken.so";
  ::setenv("CONVTUNE_TEST_LIBRARY", file.c_str(), 1);
  EXPECT_FALSE(Library::open(absent()).is_unloadable()) << "the file that the variable names is not there";
  std::ofstream(file) << "no library";
  EXPECT_TRUE(Library::open(absent()).is_unloadable());
}

}  // namespace
}  // namespace convtune::library_test
