// Defines the fixture of the tests of records: a folder that vanishes with the test, and a record to put
// there.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "convtune/database.h"
#include "convtune/error.h"

namespace convtune {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = ::testing::TempDir() + "convtune-test-XXXXXX";
    const char* made = ::mkdtemp(pattern.data());
    if (made == nullptr) throw std::runtime_error("no scratch folder at " + pattern);
    path_ = made;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline Record sample_record() {
  Record record;
  record.problem = parse_problem(R"(mb256ic3ih224oc96kh11sh4ph2n"alexnet_conv1" precision=tf32 act=relu)");
  record.device = "AMD EPYC 9575F avx512 2 threads";
  record.algorithm = "direct";
  record.config = parse_config("vectors=4 channels=6");
  record.time_us = 12345.678901234567;
  record.mad_us = 12.5;
  record.n = 40;
  record.roofline_fraction = 0.71;
  record.roofline_bound = "compute";
  record.max_error = 3.1e-7;
  record.runner_up = "direct vectors=2 channels=6";
  record.runner_up_us = 13000;
  record.vendor = "onednn blocked=0";
  record.vendor_us = 20000.25;
  record.decision =
      "takes 38.3 % less time (99 % interval 37.0..39.1 %) over 10 rounds, more than the 2 % asked";
  record.kernel_hash = "0123abcd";
  record.software = "convtune 0.1.0, g++ 12.2.0, oneDNN 2.6.3";
  record.date = "2026-01-31T23:59:59Z";
  return record;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  return names;
}

class DatabaseTest : public ::testing::Test {
 protected:
  DatabaseTest() : record_(sample_record()), database_(scratch_.path() / "data") {
    Database::take_warnings();
  }

  std::filesystem::path record_path() const { return database_.path_of(record_.problem, record_.device); }
  std::optional<Record> find() const { return database_.find(record_.problem, record_.device); }

  // Looked for twice, listed once: a miss each time, one warning that names the record and says why.
  void expect_miss_with_one_warning(const std::string& why) const {
    EXPECT_EQ(find(), std::nullopt);
    EXPECT_EQ(find(), std::nullopt);
    EXPECT_TRUE(database_.list().empty());
    const std::vector<std::string> warnings = Database::take_warnings();
    ASSERT_EQ(warnings.size(), 1u) << (warnings.empty() ? "" : warnings[1]);
    EXPECT_NE(warnings[0].find(record_path().string()), std::string::npos) << warnings[0];
    EXPECT_NE(warnings[0].find(why), std::string::npos) << warnings[0];
    EXPECT_EQ(find(), std::nullopt);
    EXPECT_TRUE(Database::take_warnings().empty());
  }

  ScratchFolder scratch_;
  Record record_;
  Database database_;
};

inline std::string io_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// Runs the body in a child; its answer is the exit status.
inline int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);  // or the child would say it again
  const pid_t child = ::fork();
  if (child == 0) {
    int answer = 99;
    try {
      answer = body();
    } catch (...) {
    }
    ::_exit(answer);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace convtune
