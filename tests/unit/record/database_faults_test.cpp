// Tests that a file that cannot be trusted is a miss with one warning, and that no failure shows half a
// record. Runs as root too, whom permission bits do not stop.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "records_fixture.h"

namespace convtune::database_faults_test {
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

// As HPC projects and volumes lend them: refused, and the message says how they are taken over.
TEST_F(DatabaseTest, WhatOthersLendIsRefusedWithAWayOut) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  database_.store(record_);
  if (::chown(record_path().c_str(), 65534, 65534) != 0) GTEST_SKIP() << "this file system has one owner";
  expect_miss_with_one_warning("`convtune db import " + record_path().string() + "` takes it over");
  EXPECT_EQ(database_.import_pack(record_path()).imported, 1);
  EXPECT_EQ(find(), record_);

  ASSERT_EQ(::chown(database_.folder().c_str(), 65534, 65534), 0);
  const std::string way_out =
      "set CONVTUNE_DATA_DIR to a folder of your own, into which `convtune db import " +
      database_.folder().string() + "/*.json`";
  EXPECT_EQ(find(), std::nullopt);
  const std::vector<std::string> warnings = Database::take_warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find(way_out), std::string::npos) << warnings[0];
  const std::string message = io_error([&] { database_.store(record_); });
  EXPECT_NE(message.find(way_out), std::string::npos) << message;
}

TEST_F(DatabaseTest, FolderThatAnybodyMayExchangeIsNotUsed) {
  const fs::path everybodys = scratch_.path() / "everybodys", link = scratch_.path() / "link";
  fs::create_directories(everybodys / "a");
  fs::create_symlink(everybodys / "a", link);
  const Database below(everybodys / "a" / "b"), through_link(link / "b");
  for (const Database* database : {&below, &through_link}) {
    fs::permissions(everybodys, fs::perms::all);
    const std::string message = io_error([&] { database->store(record_); });
    for (const std::string& needle : {database->folder().string(), everybodys.string() + " above it",
                                      std::string("mode 777"), std::string("chmod +t")})
      EXPECT_NE(message.find(needle), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(everybodys / "a" / "b")) << "made where nothing is safe";

    fs::permissions(everybodys, fs::perms::all | fs::perms::sticky_bit);  // as /tmp is
    database->store(record_);
    EXPECT_EQ(database->find(record_.problem, record_.device), record_);
    fs::permissions(everybodys, fs::perms::owner_all | fs::perms::group_all);  // umask 002
    EXPECT_EQ(database->find(record_.problem, record_.device), record_);
    EXPECT_TRUE(Database::take_warnings().empty());

    fs::permissions(everybodys, fs::perms::all);
    EXPECT_EQ(database->find(record_.problem, record_.device), std::nullopt);
    EXPECT_EQ(Database::take_warnings().size(), 1u);
    fs::remove_all(everybodys / "a" / "b");
  }
}

// The first thing that stopped it, not the last.
TEST_F(DatabaseTest, FolderThatCannotBeMadeSaysWhy) {
  const fs::path closed = scratch_.path() / "closed", file = scratch_.path() / "file";
  fs::create_directory(closed);
  write_text(file, "not a folder");
  fs::permissions(scratch_.path(), fs::perms(0755));
  fs::permissions(closed, fs::perms(0555));
  const auto message_of = [&](const fs::path& folder) {
    return io_error([&] { Database(folder).store(record_); });
  };
  EXPECT_EQ(in_child([&] {
              if (::geteuid() == 0 && ::setuid(65534) != 0) return 1;
              const std::string message = message_of(closed / "a" / "b" / "c");
              return message.find((closed / "a").string() + ": Permission denied") == message.npos ? 2 : 0;
            }),
            0);
  EXPECT_EQ(message_of(file).find(file.string() + ": is not a folder; set CONVTUNE_DATA_DIR"), 0u)
      << message_of(file);
  EXPECT_NE(message_of(file / "data").find(file.string() + " is not a folder"), std::string::npos);
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

}  // namespace
}  // namespace convtune::database_faults_test
