// The folder of records: stores, finds, lists, erases, and packs that travel. Runs as root too.
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <barrier>
#include <thread>

#include "records_fixture.h"

namespace convtune::database_test {
namespace {

namespace fs = std::filesystem;

TEST_F(DatabaseTest, StoresFindsListsAndErases) {
  EXPECT_EQ(find(), std::nullopt);
  EXPECT_FALSE(fs::exists(database_.folder()));  // looking makes nothing
  database_.store(record_);
  EXPECT_EQ(find(), record_);
  EXPECT_EQ(read_text(record_path()), to_json_line(record_) + "\n");

  Record unnamed = record_;
  unnamed.problem.name.clear();
  EXPECT_EQ(database_.find(unnamed.problem, record_.device), record_);  // the name is only a label
  EXPECT_EQ(database_.find(record_.problem, "another device"), std::nullopt);
  Record other = record_;
  other.problem.n = 1;
  EXPECT_EQ(database_.find(other.problem, record_.device), std::nullopt);

  other.device = "A device";
  database_.store(other);
  Record smaller = record_;
  smaller.problem.n = 128;
  database_.store(smaller);
  EXPECT_EQ(database_.list(), (std::vector<Record>{other, smaller, record_}));

  record_.time_us = 1;
  database_.store(record_);
  EXPECT_EQ(find()->time_us, 1);
  EXPECT_EQ(database_.list().size(), 3u);

  EXPECT_TRUE(database_.erase(record_.problem, record_.device));
  EXPECT_FALSE(database_.erase(record_.problem, record_.device));
  EXPECT_EQ(find(), std::nullopt);
  EXPECT_EQ(database_.erase_all(), 2);
  EXPECT_EQ(database_.erase_all(), 0);
  EXPECT_TRUE(database_.list().empty());
  EXPECT_TRUE(Database::take_warnings().empty());
}

TEST_F(DatabaseTest, FilesArePrivateAndReadableNames) {
  const Database nested(scratch_.path() / "a" / "b" / "c");
  nested.store(record_);
  for (const char* folder : {"a", "a/b", "a/b/c"})
    EXPECT_EQ(fs::status(scratch_.path() / folder).permissions(), fs::perms::owner_all) << folder;
  const fs::path path = nested.path_of(record_.problem, record_.device);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(path.filename().string().rfind("mb256ic3ih224oc96kh11sh4ph2", 0), 0u) << path;
  EXPECT_EQ(path.extension(), ".json");
  EXPECT_EQ(names_in(nested.folder()).size(), 1u);
}

TEST_F(DatabaseTest, EraseAllLeavesForeignFilesAlone) {
  database_.store(record_);
  write_text(database_.folder() / "notes.json", "mine");
  EXPECT_EQ(database_.list().size(), 1u);
  EXPECT_EQ(database_.erase_all(), 1);
  EXPECT_EQ(names_in(database_.folder()), std::vector<std::string>{"notes.json"});
}

TEST_F(DatabaseTest, EraseAllForgetsWhatSearchesHaveTried) {
  database_.store(record_);
  const fs::path trials = database_.folder() / "trials";
  fs::create_directory(trials);
  fs::permissions(trials, fs::perms::owner_all);
  write_text(trials / record_path().filename().replace_extension(".jsonl"), "{}\n");
  write_text(trials / "notes.jsonl", "mine");
  EXPECT_EQ(database_.erase_all(), 1);
  EXPECT_EQ(names_in(trials), std::vector<std::string>{"notes.jsonl"});
}

TEST_F(DatabaseTest, EraseAllStopsAtNothing) {
  fs::create_directories(record_path() / "by mistake");
  fs::permissions(database_.folder(), fs::perms::owner_all);
  std::vector<Record> others;
  for (int n = 1; n < 20; ++n) {  // before it and after it in the folder
    others.push_back(record_);
    others.back().problem.n = n;
    database_.store(others.back());
  }
  const std::string message = io_error([&] { database_.erase_all(); });
  EXPECT_NE(message.find(record_path().string()), std::string::npos) << message;
  EXPECT_NE(message.find("19 records"), std::string::npos) << message;
  EXPECT_EQ(names_in(database_.folder()), std::vector<std::string>{record_path().filename()});
}

TEST_F(DatabaseTest, StoresWhatIsMissingAndNothingElse) {
  EXPECT_TRUE(database_.store_if_missing(record_));
  Record faster = record_;
  faster.time_us /= 2;
  EXPECT_FALSE(database_.store_if_missing(faster));
  EXPECT_EQ(find(), record_);
  faster.device = "another device";
  EXPECT_TRUE(database_.store_if_missing(faster));
  EXPECT_EQ(database_.list().size(), 2u);
}

TEST_F(DatabaseTest, BadRecordIsNotStored) {
  database_.store(record_);
  Record bad = record_;
  bad.time_us = 0;
  EXPECT_THROW(database_.store(bad), Error);
  EXPECT_EQ(find(), record_);
}

TEST_F(DatabaseTest, PackGoesOutAndComesIn) {
  for (const int batch : {64, 1, 8}) {
    record_.problem.n = batch;
    database_.store(record_);
  }
  const fs::path pack = scratch_.path() / "pack.jsonl";
  write_text(pack, "what was there before");
  database_.export_pack(pack);
  std::string expected;
  for (const Record& record : database_.list()) expected += to_json_line(record) + "\n";
  EXPECT_EQ(read_text(pack), expected);

  const Database other(scratch_.path() / "other");
  auto result = other.import_pack(pack);
  EXPECT_EQ(result.imported, 3);
  EXPECT_EQ(result.kept + result.rejected, 0);
  EXPECT_EQ(other.list(), database_.list());
  result = other.import_pack(pack);
  EXPECT_EQ(result.kept, 3);  // as fast is no reason to replace
  EXPECT_EQ(result.imported, 0);
  const fs::path second = scratch_.path() / "second.jsonl";
  other.export_pack(second);
  EXPECT_EQ(read_text(second), expected);

  EXPECT_EQ(database_.pack(), expected);
  const Database third(scratch_.path() / "third");
  result = third.import_lines("\n" + database_.pack() + "garbage", "worker a:1");
  EXPECT_EQ(result.imported, 3);
  EXPECT_EQ(result.rejected, 1);
  ASSERT_EQ(result.problems.size(), 1u);
  EXPECT_TRUE(result.problems[0].starts_with("worker a:1:5: ")) << result.problems[0];
  EXPECT_EQ(third.list(), database_.list());
}

TEST_F(DatabaseTest, ImportKeepsTheFasterRecord) {
  database_.store(record_);
  Record slower = record_, faster = record_;
  slower.time_us *= 2;
  faster.time_us /= 2;
  const fs::path pack = scratch_.path() / "pack.jsonl";
  write_text(pack, to_json_line(slower));  // without a newline at the end
  EXPECT_EQ(database_.import_pack(pack).kept, 1);
  EXPECT_EQ(find(), record_);
  write_text(pack, to_json_line(faster) + "\r\n\n" + to_json_line(slower) + "\n");
  const auto result = database_.import_pack(pack);
  EXPECT_EQ(result.imported, 1);
  EXPECT_EQ(result.kept, 1);
  EXPECT_EQ(find(), faster);
}

TEST_F(DatabaseTest, ImportSaysWhichLinesAreBad) {
  const fs::path pack = scratch_.path() / "pack.jsonl";
  std::string text = "garbage\n" + to_json_line(record_) + "\n";
  for (int i = 0; i < 30; ++i) text += "{\"schema\":7}\n";
  write_text(pack, text + std::string(1'000'000, 'x'));
  const auto result = database_.import_pack(pack);
  EXPECT_EQ(result.imported, 1);
  EXPECT_EQ(result.rejected, 32);
  ASSERT_EQ(result.problems.size(), 20u);
  EXPECT_EQ(result.problems[0].rfind(pack.string() + ":1: record: ", 0), 0u) << result.problems[0];
  EXPECT_EQ(result.problems[1].rfind(pack.string() + ":3: record: field 'schema'", 0), 0u)
      << result.problems[1];
  EXPECT_EQ(find(), record_);
}

TEST_F(DatabaseTest, ImportTakesAtMostAMillionRecords) {
  const fs::path pack = scratch_.path() / "pack.jsonl";
  std::string text = to_json_line(record_) + "\n";
  for (int i = 0; i < 1'000'000; ++i) text += "x\n";
  write_text(pack, text);
  const std::string message = io_error([&] { database_.import_pack(pack); });
  EXPECT_NE(message.find("more than 1000000 records"), std::string::npos) << message;
  EXPECT_NE(message.find("1 of them imported"), std::string::npos) << message;
  EXPECT_EQ(find(), record_);
}

// 100,000 records are 93 MB.
TEST_F(DatabaseTest, ImportTakesWhatExportHasWritten) {
  const fs::path pack = scratch_.path() / "pack.jsonl";
  const std::string line = to_json_line(record_) + std::string(200'000, ' ') + "\n";
  std::ofstream out(pack, std::ios::binary);
  constexpr int kLines = 400;
  for (int i = 0; i < kLines; ++i) out << line;
  out.close();
  ASSERT_GT(fs::file_size(pack), std::uintmax_t{64} << 20);
  const auto result = database_.import_pack(pack);
  EXPECT_EQ(result.imported, 1);
  EXPECT_EQ(result.kept, kLines - 1);
  EXPECT_EQ(result.rejected, 0);
  EXPECT_EQ(find(), record_);
}

// Two at once: whichever comes second sees what the first has written.
TEST_F(DatabaseTest, ImportsAtOnceKeepTheFasterRecord) {
  fs::path packs[2];
  for (int i = 0; i < 2; ++i) {
    record_.time_us = 5 + i;
    packs[i] = scratch_.path() / std::to_string(i);
    write_text(packs[i], to_json_line(record_) + "\n");
  }
  for (int round = 0; round < 100; ++round) {
    std::barrier start(2);
    const auto import = [&](const fs::path& pack) {
      start.arrive_and_wait();
      database_.import_pack(pack);
    };
    std::thread other(import, packs[0]);
    import(packs[1]);
    other.join();
    ASSERT_EQ(find()->time_us, 5) << "in round " << round;
    database_.erase_all();
  }
  EXPECT_TRUE(Database::take_warnings().empty());
}

TEST_F(DatabaseTest, ImportOfWhatCannotBeRead) {
  const fs::path large = scratch_.path() / "large";
  write_text(large, "");
  fs::resize_file(large, (std::uintmax_t{64} << 20) + 1);
  EXPECT_NE(io_error([&] { database_.import_pack(large); }).find("more than 67108864 bytes"),
            std::string::npos);
  for (const fs::path& file : {scratch_.path() / "absent", scratch_.path(), fs::path("/dev/zero")})
    EXPECT_NE(io_error([&] { database_.import_pack(file); }).find(file.string()), std::string::npos);
  EXPECT_FALSE(fs::exists(database_.folder()));
}

TEST_F(DatabaseTest, ExportToWhatCannotBeWritten) {
  database_.store(record_);
  for (const fs::path& file : {fs::path("/dev/full"), fs::path("/proc/convtune"), scratch_.path(),
                               scratch_.path() / "absent" / "pack"})
    EXPECT_NE(io_error([&] { database_.export_pack(file); }).find(file.string()), std::string::npos);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));

  const fs::path pack = scratch_.path() / "pack.jsonl", link = scratch_.path() / "link";
  write_text(pack, "old");
  EXPECT_EQ(in_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit size{100, 100};
              ::setrlimit(RLIMIT_FSIZE, &size);
              try {
                database_.export_pack(pack);
                return 1;
              } catch (const Error& error) {
                return error.kind() == ErrorKind::io ? 0 : 2;
              }
            }),
            0);
  EXPECT_EQ(read_text(pack), "old");
  fs::create_symlink(pack, link);
  database_.export_pack(link);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(read_text(pack), to_json_line(record_) + "\n");
  EXPECT_EQ(names_in(scratch_.path()).size(), 3u);  // data, pack.jsonl, link: nothing left beside
}

TEST_F(DatabaseTest, ExportToStandardOutput) {
  database_.store(record_);
  const fs::path out = scratch_.path() / "out";
  const auto export_to = [&](const char* path) {
    return in_child([&] {
      const int fd = ::open(path, O_WRONLY | O_CREAT, 0600);
      if (fd < 0 || ::dup2(fd, STDOUT_FILENO) < 0) return 1;
      try {
        database_.export_pack("-");
      } catch (const Error& error) {
        return error.kind() == ErrorKind::io ? 2 : 3;
      }
      return 0;
    });
  };
  EXPECT_EQ(export_to(out.c_str()), 0);
  EXPECT_EQ(read_text(out), to_json_line(record_) + "\n");
  EXPECT_EQ(export_to("/dev/full"), 2);
}

class DefaultFolderTest : public ::testing::Test {
 protected:
  DefaultFolderTest() {
    for (const char* name : kNames)
      if (const char* value = ::getenv(name)) saved_.emplace_back(name, value);
    for (const char* name : kNames) ::unsetenv(name);
  }
  ~DefaultFolderTest() override {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : saved_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  static constexpr const char* kNames[] = {"CONVTUNE_DATA_DIR", "XDG_DATA_HOME", "HOME"};
  std::vector<std::pair<std::string, std::string>> saved_;
};

TEST_F(DefaultFolderTest, FollowsTheEnvironment) {
  ::setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(Database::default_folder(), "/home/someone/.local/share/convtune");
  ::setenv("XDG_DATA_HOME", "relative/data", 1);  // XDG: to be ignored
  EXPECT_EQ(Database::default_folder(), "/home/someone/.local/share/convtune");
  ::setenv("XDG_DATA_HOME", "", 1);
  EXPECT_EQ(Database::default_folder(), "/home/someone/.local/share/convtune");
  ::setenv("XDG_DATA_HOME", "/xdg/data", 1);
  EXPECT_EQ(Database::default_folder(), "/xdg/data/convtune");
  ::setenv("CONVTUNE_DATA_DIR", "/own/place", 1);
  EXPECT_EQ(Database::default_folder(), "/own/place");
  EXPECT_EQ(Database().folder(), "/own/place");
  ::setenv("CONVTUNE_DATA_DIR", "own/place", 1);
  EXPECT_EQ(Database().folder(), fs::current_path() / "own/place");
}

TEST_F(DefaultFolderTest, AsksThePasswordFileWithoutAHome) {
  const passwd* user = ::getpwuid(::geteuid());
  if (user == nullptr) GTEST_SKIP() << "this user has no entry";
  EXPECT_EQ(Database::default_folder(), fs::path(user->pw_dir) / ".local/share/convtune");
  ::setenv("HOME", "relative", 1);
  EXPECT_EQ(Database::default_folder(), fs::path(user->pw_dir) / ".local/share/convtune");
}

}  // namespace
}  // namespace convtune::database_test
