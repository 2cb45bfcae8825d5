// What cannot be trusted is a miss with one warning, and no failure, kill or race ever shows half a
// record. Runs as root too, whom permission bits do not stop.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "records_fixture.h"

namespace convtune {
namespace {

namespace fs = std::filesystem;

TEST_F(DatabaseTest, TruncatedRecordIsAMiss) {
  database_.store(record_);
  write_text(record_path(), read_text(record_path()).substr(0, 100));
  expect_miss_with_one_warning("not JSON");
  database_.store(record_);  // and is mended by the next search
  EXPECT_EQ(find(), record_);
}

TEST_F(DatabaseTest, EmptyRecordIsAMiss) {
  database_.store(record_);
  write_text(record_path(), "");
  expect_miss_with_one_warning("record");
}

TEST_F(DatabaseTest, GarbageIsAMiss) {
  database_.store(record_);
  write_text(record_path(), std::string("\x7f"
                                        "ELF\0\xff\xfe garbage",
                                        16));
  expect_miss_with_one_warning("not JSON");
}

TEST_F(DatabaseTest, RecordOfAnotherSchemaIsAMiss) {
  database_.store(record_);
  std::string text = read_text(record_path());
  write_text(record_path(), text.replace(text.find("\"schema\":1"), 10, "\"schema\":2"));
  expect_miss_with_one_warning("'schema'");
}

TEST_F(DatabaseTest, RecordOfAnotherProblemIsAMiss) {
  database_.store(record_);
  Record other = record_;
  other.problem.n = 1;
  write_text(record_path(), to_json_line(other));
  expect_miss_with_one_warning("another problem");
}

TEST_F(DatabaseTest, RecordOfAnotherDeviceIsAMiss) {
  database_.store(record_);
  Record other = record_;
  other.device = "another";
  write_text(record_path(), to_json_line(other));
  expect_miss_with_one_warning("another problem or device");
}

TEST_F(DatabaseTest, TooLargeRecordIsAMiss) {
  database_.store(record_);
  fs::resize_file(record_path(), 1 << 30);
  expect_miss_with_one_warning("more than");
}

TEST_F(DatabaseTest, LinkIsNotFollowed) {
  database_.store(record_);
  const fs::path elsewhere = scratch_.path() / "elsewhere.json";
  fs::rename(record_path(), elsewhere);
  fs::create_symlink(elsewhere, record_path());
  expect_miss_with_one_warning("symbolic link");
  const std::string before = read_text(elsewhere);
  record_.time_us = 1;
  database_.store(record_);  // replaces the link, not what it points to
  EXPECT_EQ(find(), record_);
  EXPECT_FALSE(fs::is_symlink(record_path()));
  EXPECT_EQ(read_text(elsewhere), before);
}

TEST_F(DatabaseTest, PipeDoesNotHoldTheCallerUp) {
  database_.store(record_);
  fs::remove(record_path());
  ASSERT_EQ(::mkfifo(record_path().c_str(), 0600), 0);
  expect_miss_with_one_warning("not a regular file");
}

TEST_F(DatabaseTest, FolderInThePlaceOfARecord) {
  fs::create_directories(record_path());
  fs::permissions(database_.folder(), fs::perms::owner_all);
  expect_miss_with_one_warning("not a regular file");
  EXPECT_NE(io_error([&] { database_.store(record_); }).find(record_path().string()), std::string::npos);
  EXPECT_EQ(names_in(database_.folder()).size(), 1u);
  EXPECT_TRUE(fs::is_directory(record_path()));
}

TEST_F(DatabaseTest, RecordThatOthersMayWriteIsAMiss) {
  database_.store(record_);
  ASSERT_EQ(::chmod(record_path().c_str(), 0622), 0);
  expect_miss_with_one_warning("mode 622");
}

TEST_F(DatabaseTest, RecordOfAnotherUserIsAMiss) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  database_.store(record_);
  if (::chown(record_path().c_str(), 65534, 65534) != 0) GTEST_SKIP() << "this file system has one owner";
  expect_miss_with_one_warning("another user (id 65534)");
}

TEST_F(DatabaseTest, FolderThatOthersMayWriteIsNotUsed) {
  database_.store(record_);
  ASSERT_EQ(::chmod(database_.folder().c_str(), 01777), 0);
  EXPECT_EQ(find(), std::nullopt);
  EXPECT_TRUE(database_.list().empty());
  EXPECT_EQ(database_.erase_all(), 0);
  const std::vector<std::string> warnings = Database::take_warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find(database_.folder().string() + ": may be written by other users"),
            std::string::npos);
  EXPECT_NE(io_error([&] { database_.store(record_); }).find("chmod go-w"), std::string::npos);
}

TEST_F(DatabaseTest, FolderOfAnotherUserIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  database_.store(record_);
  if (::chown(database_.folder().c_str(), 65534, 65534) != 0)
    GTEST_SKIP() << "this file system has one owner";
  EXPECT_EQ(find(), std::nullopt);
  EXPECT_EQ(Database::take_warnings().size(), 1u);
  io_error([&] { database_.store(record_); });
}

TEST_F(DatabaseTest, ImpossibleHomeIsAMissAndAClearError) {
  const fs::path file = scratch_.path() / "file";
  write_text(file, "not a folder");
  for (const fs::path& home : {fs::path("/proc/convtune"), fs::path("/proc/self/convtune/data"), file,
                               file / "data", scratch_.path() / std::string(300, 'x')}) {
    const Database database(home);
    EXPECT_EQ(database.find(record_.problem, record_.device), std::nullopt);
    EXPECT_TRUE(database.list().empty());
    EXPECT_EQ(database.erase_all(), 0);
    const std::string message = io_error([&] { database.store(record_); });
    EXPECT_NE(message.find(home.string()), std::string::npos) << message;
  }
  EXPECT_EQ(read_text(file), "not a folder");
  const Database nowhere{fs::path()};
  EXPECT_EQ(nowhere.find(record_.problem, record_.device), std::nullopt);
  EXPECT_NE(io_error([&] { nowhere.store(record_); }).find("CONVTUNE_DATA_DIR"), std::string::npos);
}

// A disk that fills up while the record is written, as root meets it too.
TEST_F(DatabaseTest, WriteThatFailsHalfWayLeavesTheOldRecord) {
  database_.store(record_);
  for (const rlim_t limit : {0u, 1u, 100u}) {
    const int answer = in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit size{limit, limit};
      if (::setrlimit(RLIMIT_FSIZE, &size) != 0) return 1;
      Record newer = record_;
      newer.time_us = 1;
      try {
        database_.store(newer);
        return 2;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::io) return 3;
        if (std::string(error.what()).find(record_path().string()) == std::string::npos) return 4;
      }
      return 0;
    });
    EXPECT_EQ(answer, 0);
    EXPECT_EQ(find(), record_);
    EXPECT_EQ(names_in(database_.folder()).size(), 1u);
  }
}

TEST_F(DatabaseTest, KillsLeaveAWholeRecord) {
  database_.store(record_);
  for (int kill = 0; kill < 60; ++kill) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Record newer = record_;
      for (newer.n = 1;; ++newer.n) database_.store(newer);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200 + 137 * kill));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    std::optional<Record> found = find();
    ASSERT_TRUE(found);
    found->n = record_.n;
    ASSERT_EQ(*found, record_);
  }
  EXPECT_TRUE(Database::take_warnings().empty());
  EXPECT_EQ(database_.erase_all(), 1);
  EXPECT_TRUE(fs::is_empty(database_.folder()));
}

TEST_F(DatabaseTest, ConcurrentProcessesNeverSeeATornRecord) {
  database_.store(record_);
  constexpr int kProcesses = 8, kTimes = 200;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Record mine = record_;
      mine.runner_up = std::string(static_cast<std::size_t>(100 * process), 'x');  // of different lengths
      mine.n = process + 1;
      int bad = 0;
      try {
        for (int i = 0; i < kTimes; ++i) {
          database_.store(mine);
          const std::optional<Record> found = find();
          if (!found) {
            bad = 1;
          } else if (found->runner_up.size() != 100 * static_cast<std::size_t>(found->n - 1)) {
            bad = 2;
          }
        }
      } catch (const Error&) {
        bad = 3;
      }
      ::_exit(!Database::take_warnings().empty() ? 4 : bad);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  EXPECT_EQ(names_in(database_.folder()).size(), 1u);
}

TEST_F(DatabaseTest, ConcurrentThreadsToo) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      Record mine = record_;
      mine.n = i + 1;
      for (int turn = 0; turn < 50; ++turn) {
        database_.store(mine);
        EXPECT_TRUE(find());
        EXPECT_EQ(database_.find(mine.problem, "nobody"), std::nullopt);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(names_in(database_.folder()).size(), 1u);
}

}  // namespace
}  // namespace convtune
