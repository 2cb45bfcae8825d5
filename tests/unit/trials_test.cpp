// The log of a search: resumes after a kill, keeps quarantined configs, and never stops the search.
#include "trials.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>

#include "convtune/error.h"
#include "records_fixture.h"

namespace convtune {
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
  Conv2dProblem other = sample_record().problem;
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
  log.finish();
  for (const TrialLog& reader : {log, open()}) {
    EXPECT_EQ(find(reader, 1), nullptr);
    ASSERT_NE(find(reader, 2), nullptr);
    EXPECT_EQ(find(reader, 2)->failure, "wrong");
    EXPECT_EQ(find(reader, 3), nullptr);
    EXPECT_NE(find(reader, 4), nullptr);
  }
}

TEST_F(TrialLogTest, StartsAreCountedUntilAnEnd) {
  const Config config{{{"vectors", 1}}};
  for (int i = 1; i <= 3; ++i) {
    EXPECT_TRUE(open().start("direct", config, "hash1"));  // by a process that then dies
    const TrialLog log = open();
    EXPECT_EQ(log.starts("direct", config, "hash1"), i);
    EXPECT_EQ(log.starts("direct", config, "hash2"), 0);
    EXPECT_EQ(find(log, 1), nullptr);
  }
  TrialLog log = open();
  log.append(trial(1, 10));
  EXPECT_EQ(log.starts("direct", config, "hash1"), 0);
  log.append(trial(2, 0, "wrong"));
  log.start("direct", config, "hash1");
  log.start("direct", Config{{{"vectors", 2}}}, "hash1");
  EXPECT_EQ(find(log, 1)->time_us, 10);  // what was known stays known
  EXPECT_EQ(find(log, 2)->failure, "wrong");
  log.finish();
  for (const TrialLog& reader : {log, open()}) {
    EXPECT_EQ(reader.starts("direct", config, "hash1"), 0);
    EXPECT_EQ(find(reader, 2)->failure, "wrong");
  }
}

TEST_F(TrialLogTest, FinishWithoutFailuresLeavesNoFile) {
  TrialLog log = open();
  log.finish();
  EXPECT_TRUE(fs::is_empty(scratch_.path()));
  log.append(trial(1, 10));
  log.finish();
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
    log.finish();
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
}  // namespace convtune
