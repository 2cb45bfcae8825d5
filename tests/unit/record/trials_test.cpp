// The log of a search: resumes after a kill, keeps quarantined configs, and never stops the search.
#include "record/trials.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "convtune/error.h"
#include "records_fixture.h"

namespace convtune::trials_test {
namespace {

namespace fs = std::filesystem;

class TrialLogTest : public ::testing::Test {
 protected:
  TrialLogTest() { Database::take_warnings(); }
  TrialLog open() const { return {scratch_.path(), sample_record().problem, sample_record().device}; }
  fs::path file() const {
    const std::vector<std::string> names = names_in(scratch_.path() / "trials");
    EXPECT_EQ(names.size(), 1u);
    return scratch_.path() / "trials" / names.at(0);
  }
  void begin_and_die(const Config& config) const {
    EXPECT_EQ(in_child([&] { return open().start("direct", config, "hash1") ? 0 : 1; }), 0);
  }
  int deaths(const Config& config) const { return open().deaths("direct", config, "hash1").processes; }
  ScratchFolder scratch_;
};

Trial trial(int vectors, double time_us, std::string failure = {}) {
  return {"direct", Config{{{"vectors", vectors}}}, "hash1", time_us, 1e-7, std::move(failure)};
}

const Trial* find(const TrialLog& log, int vectors, const char* hash = "hash1") {
  return log.find("direct", Config{{{"vectors", vectors}}}, hash);
}

TEST_F(TrialLogTest, NothingIsMadeBeforeTheFirstAppend) {
  const TrialLog log = open();
  EXPECT_TRUE(fs::is_empty(scratch_.path()));
  EXPECT_EQ(find(log, 1), nullptr);
}

TEST_F(TrialLogTest, LaterProcessFindsWhatWasTried) {
  TrialLog log = open();
  EXPECT_TRUE(log.append(trial(1, 10)));
  EXPECT_TRUE(log.append(trial(2, 0, "y[0,1,2,3] = 5, expected 4")));
  EXPECT_TRUE(log.append(trial(1, 9)));
  for (const TrialLog& reader : {log, open()}) {
    ASSERT_NE(find(reader, 1), nullptr);
    EXPECT_EQ(find(reader, 1)->time_us, 9);  // the last one
    EXPECT_EQ(find(reader, 1)->max_error, 1e-7);
    ASSERT_NE(find(reader, 2), nullptr);
    EXPECT_EQ(find(reader, 2)->failure, "y[0,1,2,3] = 5, expected 4");
    EXPECT_EQ(find(reader, 3), nullptr);
    EXPECT_EQ(find(reader, 1, "hash2"), nullptr);
    EXPECT_EQ(reader.find("onednn", Config{{{"vectors", 1}}}, "hash1"), nullptr);
  }
  EXPECT_EQ(fs::status(file()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(fs::status(file().parent_path()).permissions(), fs::perms::owner_all);
  ConvProblem other = sample_record().problem;
  other.n = 1;
  EXPECT_EQ(find(TrialLog(scratch_.path(), other, sample_record().device), 1), nullptr);
  EXPECT_EQ(find(TrialLog(scratch_.path(), sample_record().problem, "other device"), 1), nullptr);
}

TEST_F(TrialLogTest, BrokenLinesAreSkipped) {
  open().append(trial(1, 10));
  const std::string good = read_text(file());
  write_text(file(),
             "garbage\n" + good + "{}\n\n[[[[[\n" + std::string("\0\n", 2) + good.substr(0, good.size() / 2));
  EXPECT_EQ(find(open(), 1)->time_us, 10);
  open().append(trial(2, 20));  // not glued to the line that a kill cut short
  EXPECT_EQ(find(open(), 1)->time_us, 10);
  ASSERT_NE(find(open(), 2), nullptr);
  EXPECT_EQ(find(open(), 2)->time_us, 20);
  EXPECT_TRUE(Database::take_warnings().empty());
}

TEST_F(TrialLogTest, AnyFailureBecomesOneLine) {
  TrialLog log = open();
  Trial failed = trial(1, std::nan(""), "error:\n\x1b[31mred\xff" + std::string(100'000, 'x'));
  failed.max_error = INFINITY;
  EXPECT_TRUE(log.append(failed));
  ASSERT_NE(find(open(), 1), nullptr);
  EXPECT_EQ(find(open(), 1)->failure.substr(0, 8), "error:  ");
  EXPECT_LE(find(open(), 1)->failure.size(), 1000u);
  EXPECT_THROW(log.append(trial(2, std::nan(""))), Error);
  EXPECT_EQ(find(open(), 2), nullptr);
}

TEST_F(TrialLogTest, FinishKeepsTheQuarantineOnly) {
  TrialLog log = open();
  log.append(trial(1, 10));
  log.append(trial(2, 0, "wrong"));
  log.append(trial(3, 0, "could not be built"));
  log.append(trial(3, 30));  // and then it could
  open().append(trial(4, 0, "found out by another process"));
  log.finish(true);
  for (const TrialLog& reader : {log, open()}) {
    EXPECT_EQ(find(reader, 1), nullptr);
    ASSERT_NE(find(reader, 2), nullptr);
    EXPECT_EQ(find(reader, 2)->failure, "wrong");
    EXPECT_EQ(find(reader, 3), nullptr);
    EXPECT_NE(find(reader, 4), nullptr);
  }
}

TEST_F(TrialLogTest, FinishWithoutProofKeepsTheResults) {
  TrialLog log = open();
  log.append(trial(1, 10));
  log.append(trial(1, 9));
  log.append(trial(2, 0, "wrong"));
  log.finish(false);
  for (const TrialLog& reader : {log, open()}) {
    ASSERT_EQ(reader.results().size(), 1u);
    EXPECT_EQ(reader.results()[0].time_us, 9);
    EXPECT_EQ(find(reader, 2)->failure, "wrong");
  }
  log.finish(true);
  EXPECT_TRUE(open().results().empty());
}

TEST_F(TrialLogTest, DeathsAreCountedUntilAnEnd) {
  const Config config{{{"vectors", 1}}};
  for (int i = 1; i <= 3; ++i) {
    begin_and_die(config);
    EXPECT_EQ(deaths(config), i);
    EXPECT_EQ(open().deaths("direct", config, "hash2").processes, 0);
    EXPECT_EQ(find(open(), 1), nullptr);
  }
  open().finish(true);
  EXPECT_EQ(deaths(config), 3) << "no process has outlived it yet";
  open().append(trial(1, 10));
  EXPECT_EQ(deaths(config), 0);
  begin_and_die(config);
  EXPECT_EQ(deaths(config), 1);
  EXPECT_EQ(find(open(), 1)->time_us, 10);  // a record that was known stays known
  open().end("direct", config, "hash1");
  EXPECT_EQ(deaths(config), 0);
  EXPECT_EQ(find(open(), 1)->time_us, 10);
}

TEST_F(TrialLogTest, NobodyDiesOfWhatLivingProcessesHaveBegun) {
  const Config config{{{"vectors", 1}}};
  TrialLog own = open();
  own.start("direct", config, "hash1");
  own.start("direct", config, "hash1");
  int wait[2];
  ASSERT_EQ(::pipe(wait), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(::fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() == 0) {
      ::close(wait[1]);
      open().start("direct", config, "hash1");
      char end = 0;
      const ssize_t got = ::read(wait[0], &end, 1);  // until the test closes the other end
      open().end("direct", config, "hash1");
      ::_exit(static_cast<int>(got));
    }
  }
  const auto lines = [&] {
    const std::string text = read_text(file());
    return std::count(text.begin(), text.end(), '\n');
  };
  while (lines() < 10) ::usleep(1000);
  const TrialLog of_before = open();
  EXPECT_EQ(of_before.deaths("direct", config, "hash1").processes, 0);
  ::close(wait[0]);
  ::close(wait[1]);
  for (const pid_t child : children) ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  // All are dead by now, but each has said before that it came to an end.
  EXPECT_EQ(of_before.deaths("direct", config, "hash1").processes, 0);
}

// A home folder on the network is shared by machines, a volume by containers.
TEST_F(TrialLogTest, WhatBeganElsewhereIsDeadWhenItBeganLongAgo) {
  const Config config{{{"vectors", 1}}};
  begin_and_die(config);
  std::string line = read_text(file());
  const std::size_t boot = line.find(R"("process":")") + 11;
  line.replace(boot, 8,
               "01234567");  // a process of another boot, which /proc/sys/kernel/random/boot_id begins with
  const std::size_t began = line.find(R"("unix_seconds":)") + 15;
  const std::int64_t now = std::stoll(line.substr(began));
  for (const auto& [ago, expected] : {std::pair{0, 0}, {600, 0}, {4000, 1}, {-4000, 0}}) {
    write_text(file(), line.substr(0, began) + std::to_string(now - ago) + "}\n");
    EXPECT_EQ(deaths(config), expected) << ago << " s ago";
  }
}

TEST_F(TrialLogTest, SearchesThatLeftItOutAreCountedSinceTheLastDeath) {
  const Config config{{{"vectors", 1}}};
  begin_and_die(config);
  begin_and_die(config);
  open().leave_out("direct", config, "hash1");
  EXPECT_EQ(open().deaths("direct", config, "hash1").left_out, 1);
  open().finish(true);
  EXPECT_EQ(open().deaths("direct", config, "hash1").left_out, 1);
  begin_and_die(config);
  EXPECT_EQ(open().deaths("direct", config, "hash1").processes, 3);
  EXPECT_EQ(open().deaths("direct", config, "hash1").left_out, 0);
}

TEST_F(TrialLogTest, ToBeginAnewForgetsWhatWasKnownButNotWhatItFindsOut) {
  const Config config{{{"vectors", 1}}};
  begin_and_die(config);
  open().append(trial(2, 0, "broke the device"));
  open().append(trial(3, 30));
  TrialLog not_kept = open();
  not_kept.begin_anew(false);
  EXPECT_EQ(find(not_kept, 2), nullptr);
  EXPECT_NE(find(open(), 2), nullptr);

  TrialLog anew = open();
  anew.begin_anew(true);
  for (const TrialLog& reader : {anew, open()}) {
    EXPECT_EQ(reader.deaths("direct", config, "hash1").processes, 0);
    EXPECT_EQ(find(reader, 2), nullptr);
    EXPECT_EQ(find(reader, 3), nullptr);
  }
  anew.append(trial(2, 0, "broke the device"));  // and this process with it: the same command again goes on
  TrialLog again = open();
  again.begin_anew(true);
  EXPECT_NE(find(again, 2), nullptr);
  again.finish(true);
  again.begin_anew(true);
  EXPECT_EQ(find(again, 2), nullptr);
}

TEST_F(TrialLogTest, WithoutAHomeNothingIsWrittenWhereTheProgramRuns) {
  const fs::path before = fs::current_path();
  fs::current_path(scratch_.path());
  TrialLog log({}, sample_record().problem, sample_record().device);
  EXPECT_FALSE(log.append(trial(1, 10)));
  EXPECT_EQ(find(log, 1)->time_us, 10);
  log.begin_anew(true);
  log.finish(true);
  fs::current_path(before);
  EXPECT_TRUE(fs::is_empty(scratch_.path()));
  EXPECT_TRUE(Database::take_warnings().empty());  // storing the record says it
}

TEST_F(TrialLogTest, FinishWithoutFailuresLeavesNoFile) {
  TrialLog log = open();
  log.finish(true);
  EXPECT_TRUE(fs::is_empty(scratch_.path()));
  log.append(trial(1, 10));
  log.start("direct", Config{{{"vectors", 2}}}, "hash1");  // this process outlives it
  log.finish(true);
  EXPECT_TRUE(fs::is_empty(scratch_.path() / "trials"));
}

TEST_F(TrialLogTest, SearchGoesOnWhereNothingCanBeWritten) {
  const fs::path blocker = scratch_.path() / "file";
  write_text(blocker, "not a folder");
  for (const fs::path& folder : {blocker / "data", fs::path("/proc/convtune-test")}) {
    TrialLog log(folder, sample_record().problem, sample_record().device);
    EXPECT_FALSE(log.append(trial(1, 10)));
    EXPECT_FALSE(log.append(trial(2, 20)));
    EXPECT_EQ(find(log, 1)->time_us, 10);  // this search still knows
    EXPECT_EQ(find(log, 2)->time_us, 20);
    log.finish(true);
    const std::vector<std::string> warnings = Database::take_warnings();
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find(folder.string()), std::string::npos) << warnings[0];
    const std::string trials = (folder / "trials").string();
    EXPECT_EQ(warnings[0].find(trials), warnings[0].rfind(trials)) << "said twice: " << warnings[0];
  }
}

TEST_F(TrialLogTest, LinkInThePlaceOfTheLogIsNotFollowed) {
  open().append(trial(1, 10));
  const fs::path log_file = file(), victim = scratch_.path() / "victim";
  write_text(victim, "precious");
  fs::remove(log_file);
  fs::create_symlink(victim, log_file);
  TrialLog log = open();
  EXPECT_FALSE(log.append(trial(2, 20)));
  EXPECT_EQ(read_text(victim), "precious");
  EXPECT_EQ(Database::take_warnings().size(), 1u);
}

TEST_F(TrialLogTest, ProcessesDoNotTearEachOthersLines) {
  constexpr int kProcesses = 4, kEach = 200;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      TrialLog log = open();
      bool fine = true;
      for (int i = 0; i < kEach; ++i) fine = log.append(trial(process * kEach + i, 1 + i)) && fine;
      ::_exit(fine ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const TrialLog log = open();
  for (int i = 0; i < kProcesses * kEach; ++i) {
    ASSERT_NE(find(log, i), nullptr) << i;
    EXPECT_EQ(find(log, i)->time_us, 1 + i % kEach);
  }
}

}  // namespace
}  // namespace convtune::trials_test
