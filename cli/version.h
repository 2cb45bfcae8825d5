// Prints the version, the build, and the libraries that it finds to run with.
#pragma once

#include <string>

namespace convtune::cli {

// The origin of the sources: "45d4f39c01ab", with " and changes" where files differ from it; empty where
// they were no checkout of git's. Written by cmake/commit.cmake.
extern const char* const kCommit;

// "convtune 0.1.0 (commit 45d4f39c01ab)"
std::string version_line();
// That, then the compiler, and the libraries as they are found now, a line each.
std::string version_text();

}  // namespace convtune::cli
