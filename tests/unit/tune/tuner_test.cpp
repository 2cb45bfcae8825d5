// tune(), plan() and the record between them, on problems small enough for a test.
#include "convtune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "convtune/database.h"
#include "convtune/error.h"
#include "plan/algorithms.h"
#include "refusal.h"

namespace convtune::tuner_test {
namespace {

namespace fs = std::filesystem;
const ConvProblem kProblem = parse_problem("mb2ic3ih32oc16kh5sh2ph2");

class Tuner : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::path(testing::TempDir()) / "convtune-tuner-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    setenv("CONVTUNE_DATA_DIR", folder_.c_str(), 1);
    quick_.budget_trials = 5;
    quick_.budget_seconds = 5;
    quick_.min_gain = 0.99;  // decided at once, however busy the machine
  }
  void TearDown() override { fs::remove_all(folder_); }

  // The record as a quiet machine leaves it: on a busy one a contest may end undecided.
  static void make_decided() {
    Record record = Database().list().at(0);
    record.undecided = 0;
    Database().store(record);
  }

  fs::path folder_;
  TuneOptions quick_;
};

TEST_F(Tuner, FindsRecordsAndAnswersFromTheRecordWithoutMeasuring) {
  const TuningReport first = tune(kProblem, {}, quick_);
  EXPECT_FALSE(first.from_record);
  EXPECT_LE(first.trials, 5);
  EXPECT_GT(first.trials, 0);
  EXPECT_EQ(first.wrong, 0);
  ASSERT_FALSE(first.comparison.providers.empty());
  EXPECT_EQ(first.comparison.providers.front().name, "convtune");
  EXPECT_GT(first.comparison.providers.front().time_us, 0);
  EXPECT_NE(first.comparison.decision.find("16 bytes behind a line of the cache"), std::string::npos)
      << first.comparison.decision;
  ASSERT_TRUE(first.last_stage);
  EXPECT_EQ(first.last_stage->verdicts.size(), 1u) << "no algorithm of the CPU has a list";

  make_decided();
  const Convolution planned = plan(kProblem);
  EXPECT_EQ(planned.plan().source, PlanSource::tuned);
  EXPECT_EQ(planned.plan().config, first.comparison.plan.config);
  const Record record = Database().list().at(0);
  const std::string runner_up = record.runner_up.substr(0, record.runner_up.find(' '));
  EXPECT_EQ(record.runner_up_hash, find_algorithm(Device::Kind::cpu, runner_up).source_hash());

  const TuningReport second = tune(kProblem, {}, quick_);
  EXPECT_TRUE(second.from_record);
  EXPECT_EQ(second.trials, 0);
  EXPECT_FALSE(second.last_stage);
  EXPECT_EQ(second.comparison.plan.config, first.comparison.plan.config);
  EXPECT_EQ(second.comparison.providers.front().time_us, first.comparison.providers.front().time_us);
}

TEST_F(Tuner, AnotherBatchIsAnsweredByTheNearestRecord) {
  tune(kProblem, {}, quick_);
  make_decided();
  ConvProblem other = kProblem;
  other.n = 5;
  EXPECT_EQ(plan(other).plan().source, PlanSource::nearest);
  other.k = 17;
  EXPECT_EQ(plan(other).plan().source, PlanSource::estimate);
}

TEST_F(Tuner, ARecordOfOtherKernelsIsAMiss) {
  tune(kProblem, {}, quick_);
  const Database database;
  Record record = database.list().at(0);
  record.kernel_hash = "of-an-older-kernel";
  database.store(record);
  EXPECT_EQ(plan(kProblem).plan().source, PlanSource::estimate);
}

TEST_F(Tuner, ARecordProvenAgainstAnOlderVendorIsOfferedForRenewal) {
  if (vendor_library(Device::Kind::cpu).empty()) GTEST_SKIP() << "there is no oneDNN here";
  EXPECT_EQ(tune(kProblem, {}, quick_).comparison.incumbent, vendor_library(Device::Kind::cpu));
  const Database database;
  Record record = database.list().at(0);
  EXPECT_EQ(renewal(record), "") << record.software;
  record.undecided = 0;
  record.software = "convtune 0.1.0, oneDNN 1.2.3";
  database.store(record);
  const TuningReport report = tune(kProblem, {}, quick_);
  EXPECT_TRUE(report.from_record);
  EXPECT_EQ(report.comparison.incumbent, "oneDNN 1.2.3");
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_NE(report.warnings[0].find("proven against oneDNN 1.2.3"), std::string::npos) << report.warnings[0];
  EXPECT_NE(plan(kProblem).plan().why.find("proven against oneDNN 1.2.3"), std::string::npos);
}

TEST_F(Tuner, ARecordWithoutProofAnswersThePlanAndNotTheNextSearch) {
  tune(kProblem, {}, quick_);
  const Database database;
  Record record = database.list().at(0);
  record.undecided = 1;
  database.store(record);
  const Plan planned = plan(kProblem).plan();
  EXPECT_EQ(planned.source, PlanSource::unproven);
  EXPECT_EQ(planned.config, record.config);
  EXPECT_NE(planned.why.find(", without proof: "), std::string::npos) << planned.why;
  EXPECT_FALSE(tune(kProblem, {}, quick_).from_record);
  make_decided();
  EXPECT_TRUE(tune(kProblem, {}, quick_).from_record);
}

TEST_F(Tuner, ARecordWithAnImpossibleConfigIsAMiss) {
  tune(kProblem, {}, quick_);
  const Database database;
  Record record = database.list().at(0);
  record.config = parse_config("nonsense=1");
  database.store(record);
  EXPECT_EQ(plan(kProblem).plan().source, PlanSource::estimate);
}

TEST_F(Tuner, InterruptedKeepsItsTrialsAndResumes) {
  std::atomic<bool> cancel = false;
  TuneOptions options = quick_;
  options.budget_trials = 0;
  options.cancel = &cancel;
  options.progress = [&](const Progress& progress) { cancel = progress.done >= 3; };
  const TuningReport stopped = tune(kProblem, {}, options);
  EXPECT_TRUE(stopped.interrupted);
  EXPECT_TRUE(Database().list().empty());
  const TuningReport resumed = tune(kProblem, {}, quick_);
  EXPECT_FALSE(resumed.interrupted);
  EXPECT_GE(resumed.resumed, 3);
  EXPECT_EQ(Database().list().size(), 1u);
}

TEST_F(Tuner, InterruptedInItsLastStageRecordsNothing) {
  std::atomic<bool> cancel = false;
  TuneOptions options = quick_;
  options.cancel = &cancel;
  int last_stages = 0;
  options.progress = [&](const Progress& progress) {
    last_stages += progress.stage == "last stage";
    cancel = last_stages > 0;
  };
  EXPECT_TRUE(tune(kProblem, {}, options).interrupted);
  EXPECT_EQ(last_stages, 1);
  EXPECT_TRUE(Database().list().empty());
}

TEST_F(Tuner, AHomeThatCannotBeWrittenIsSaidAndNothingIsLost) {
  setenv("CONVTUNE_DATA_DIR", "/proc/convtune", 1);
  const TuningReport report = tune(kProblem, {}, quick_);
  EXPECT_NE(report.not_recorded.find("/proc/convtune"), std::string::npos) << report.not_recorded;
  EXPECT_GT(report.comparison.providers.front().time_us, 0);
}

TEST_F(Tuner, NothingIsWrittenWhenSavingIsOff) {
  TuneOptions options = quick_;
  options.save = false;
  tune(kProblem, {}, options);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Tuner, RefusesWhatHasNothingToMeasure) {
  EXPECT_THROW(tune(parse_problem("mb0ic3ih8oc4kh3"), {}, quick_), Error);
  TuneOptions options;
  options.min_gain = 1.5;
  EXPECT_THROW(tune(kProblem, {}, options), Error);
  EXPECT_THROW(tune(kProblem, {Device::Kind::cuda, 7}, quick_), Error);
}

TEST_F(Tuner, RecordsNothingThatTheReferenceAloneRuns) {
  for (const char* words : {" dtype=bf16", " dtype=f16"}) {
    const ConvProblem problem =
        parse_problem(std::string("mb1ic3ih9oc4kh3sh2ph1 dir=bwd_d residual=1 rounding=eager") + words);
    const std::string why = refusal([&] { tune(problem, {}, quick_); }, ErrorKind::unsupported);
    EXPECT_THAT(why,
                testing::HasSubstr("there is nothing to tune: no fast algorithm runs mb1ic3ih9oc4kh3sh2ph1"));
    EXPECT_THAT(why, testing::HasSubstr("\n  direct: it "));
    CompareOptions options;
    options.seconds_per_case = 0.02;
    const Comparison row = compare(problem, {}, options);
    EXPECT_EQ(row.plan.algorithm, "reference");
    EXPECT_EQ(row.providers.front().failure, "");
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Tuner, CompareMeasuresWhatIsPlannedBesideTheVendor) {
  CompareOptions options;
  options.seconds_per_case = 0.05;
  const Comparison row = compare(kProblem, {}, options);
  EXPECT_EQ(row.plan.source, PlanSource::estimate);
  for (const ProviderResult& provider : row.providers) {
    EXPECT_EQ(provider.failure, "");
    EXPECT_GT(provider.time_us, 0) << provider.name;
    EXPECT_GE(provider.n, 5);
  }
  if (row.providers.size() > 1) {
    EXPECT_NE(row.best_peer, "");
    EXPECT_GT(row.speedup, 0);
  }
}

TEST(Roofline, IsTheLargerOfBothTimes) {
  const ConvProblem problem = parse_problem("mb1ic1ih8oc1kh1");
  EXPECT_EQ(roofline(problem, {1e6, 1e12}).bound, "compute");
  EXPECT_EQ(roofline(problem, {1e12, 1e6}).bound, "memory");
  EXPECT_DOUBLE_EQ(roofline(problem, {1e6, 1e12}).floor_us, problem.flops());
}

TEST(Roofline, KnowsThePeakOfThePrecision) {
  const Ceilings gpu{4e6, 1e12, 2e6, 8e6, 9e6}, cpu{4e6, 1e12};
  ConvProblem problem = parse_problem("mb1ic1ih8oc1kh1");
  for (const auto& [precision, peak] : {std::pair{Precision::automatic, 4e6},
                                        {Precision::tf32, 4e6},
                                        {Precision::fp32, 2e6},
                                        {Precision::fp16, 8e6},
                                        {Precision::bf16, 9e6}}) {
    problem.precision = precision;
    EXPECT_DOUBLE_EQ(roofline(problem, gpu).floor_us, 1e6 * problem.flops() / peak) << to_string(precision);
    EXPECT_DOUBLE_EQ(roofline(problem, cpu).floor_us, 1e6 * problem.flops() / 4e6) << to_string(precision);
  }
}

}  // namespace
}  // namespace convtune::tuner_test
