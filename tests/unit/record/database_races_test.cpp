// No kill and no race of processes or threads ever shows half a record, or leaves one for long.
#include <signal.h>

#include <chrono>
#include <set>
#include <thread>

#include "base/private_file.h"
#include "base/process_identity.h"
#include "records_fixture.h"

namespace convtune::database_races_test {
namespace {

namespace fs = std::filesystem;

std::string identity_of_dead_process() {
  int told[2];
  if (::pipe(told) != 0) return {};
  in_child([&] {
    const std::string mine = process_identity();
    return ::write(told[1], mine.data(), mine.size()) > 0 ? 0 : 1;
  });
  char text[200];
  const ssize_t length = ::read(told[0], text, sizeof text);
  ::close(told[0]);
  ::close(told[1]);
  return {text, static_cast<std::size_t>(length)};
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

TEST_F(DatabaseTest, EraseAllTakesNothingFromLivingWriters) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      for (int i = 0; i < 200; ++i) database_.store(record_);
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) database_.erase_all();
  EXPECT_EQ(status, 0) << "a living process's file was taken away before it had its name";
}

// In all of the folders, by erase_all() and by who comes to write.
TEST_F(DatabaseTest, LeftOversAreThoseOfWhoHasEnded) {
  const std::string ended = ".new-" + identity_of_dead_process() + "-0";
  const std::string living = ".new-" + process_identity() + "-x";
  const std::string young = ".new-12345-1-0123456789abcdef-0", old = ".new-12345-0";
  const fs::path trials = database_.folder() / "trials";
  const auto litter = [&] {
    for (const fs::path& folder : {database_.folder(), trials}) {
      fs::create_directories(folder);
      fs::permissions(folder, fs::perms::owner_all);
      for (const std::string& name : {ended, living, young, old}) write_text(folder / name, "half a rec");
      fs::last_write_time(folder / old, fs::file_time_type::clock::now() - std::chrono::hours(25));
    }
  };
  const std::set<std::string> expected = {living, young};
  const auto left_in = [](const fs::path& folder) {
    std::set<std::string> left;
    for (const std::string& name : names_in(folder))
      if (name.starts_with(".new-")) left.insert(name);
    return left;
  };
  litter();
  EXPECT_EQ(database_.erase_all(), 0);
  EXPECT_EQ(left_in(database_.folder()), expected);
  EXPECT_EQ(left_in(trials), expected);
  litter();
  database_.store(record_);
  EXPECT_EQ(left_in(database_.folder()), expected);
  PrivateFolder::create(trials).replace("any", "text");
  EXPECT_EQ(left_in(trials), expected);
}

TEST_F(DatabaseTest, KillsWhileStoringLeaveNothingForLong) {
  for (int kill = 0; kill < 40; ++kill) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0)
      while (true) database_.store(record_);
    std::this_thread::sleep_for(std::chrono::microseconds(200 + 137 * kill));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  }
  EXPECT_EQ(in_child([&] {
              database_.store(record_);
              return 0;
            }),
            0);
  EXPECT_EQ(names_in(database_.folder()).size(), 1u);
}

TEST_F(DatabaseTest, NobodyWaitsForEverForALock) {
  database_.store(record_);
  const auto folder = PrivateFolder::open(database_.folder()),
             other = PrivateFolder::open(database_.folder());
  ASSERT_TRUE(folder && other);
  {
    const auto lock = folder->lock();
    const auto second = other->lock(0);
    const std::vector<std::string> warnings = Database::take_warnings();
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("keeps the folder locked"), std::string::npos) << warnings[0];
  }
  EXPECT_EQ(in_child([&] {  // one that is killed holds nothing
              const auto lock = PrivateFolder::open(database_.folder())->lock(0);
              ::raise(SIGKILL);
              return 0;
            }),
            -SIGKILL);
  const auto lock = other->lock(0);
  database_.erase(record_.problem, record_.device);
  EXPECT_TRUE(Database::take_warnings().empty());
}

TEST_F(DatabaseTest, ConcurrentProcessesNeverSeeATornRecord) {
  database_.store(record_);
  constexpr int kProcesses = 8,
                kTimes = 50;  // more would keep the lock from one of them for longer than it waits
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Record mine = record_;
      mine.runner_up =
          std::string(static_cast<std::size_t>(100 * process), 'x');  // names of different lengths
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
}  // namespace convtune::database_races_test
