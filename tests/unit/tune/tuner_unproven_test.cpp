// Tests tune() where a contest cannot decide, and where it has to leave out a vendor's way:
// on a simulated machine that is quiet, but for what a contest's rounds are told to take.
#include <gtest/gtest.h>

#include <cstdlib>

#include "convtune/database.h"
#include "record/trials.h"
#include "records_fixture.h"
#include "simulated_device.h"
#include "tune/tune_on.h"

namespace convtune::tuner_unproven_test {
namespace {

struct World {
  double now_us = 0;
  // Per round of a contest, in turn, what our own takes there; else it takes 90.
  std::vector<double> rounds_us;
  bool contest = false;
  double second_us = 101;  // for the vendor, while the table is measured
  bool table = false;
  std::size_t runs = 0;
  bool interrupted = false;  // other work interrupts each sample of the vendor, of those that are timed
  Witness last;
  // A record of another algorithm of ours, if there is one.
  std::string other_hash = "hash";
  double other_us = 95;
  bool other_right = true;
};

// The vendor's ways take 100 and 101.
class Ways final : public SimulatedAlgorithm {
 public:
  Ways(World& world, bool vendor) : world_(world), vendor_(vendor) {}
  std::string_view name() const override { return vendor_ ? "theirs" : "ours"; }
  bool vendor() const override { return vendor_; }
  std::vector<Config> candidates(const ConvProblem&, const DeviceInfo&) const override {
    return {{{{"way", 0}}}, {{{"way", 1}}}};
  }
  std::unique_ptr<Executable> build(const ConvProblem&, const DeviceInfo&,
                                    const Config& config) const override {
    return std::make_unique<SimulatedExecutable>([this, way = static_cast<double>(config.at("way"))] {
      double us = (vendor_ ? 100 : 90) + way;
      if (!vendor_ && world_.contest && !world_.rounds_us.empty())
        us = world_.rounds_us[world_.runs++ / 2 % world_.rounds_us.size()];
      if (vendor_ && world_.table && way == 1) us = world_.second_us;
      world_.now_us += us;
      world_.last = {vendor_ && world_.interrupted, 1};
      return true;
    });
  }
  std::string source_hash() const override { return "hash"; }

 private:
  World& world_;
  const bool vendor_;
};

// A second algorithm of ours, whose kernels change.
class Other final : public SimulatedAlgorithm {
 public:
  explicit Other(World& world) : world_(world) {}
  std::string_view name() const override { return "other"; }
  std::vector<Config> candidates(const ConvProblem&, const DeviceInfo&) const override { return {Config()}; }
  std::unique_ptr<Executable> build(const ConvProblem&, const DeviceInfo&, const Config&) const override {
    return std::make_unique<SimulatedExecutable>([this] {
      world_.now_us += world_.other_us;
      return world_.other_right;
    });
  }
  std::string source_hash() const override { return world_.other_hash; }

 private:
  World& world_;
};

class WatchedDevice final : public SimulatedDevice {
 public:
  explicit WatchedDevice(World& world) : SimulatedDevice(world.now_us), world_(world) {}
  Witness witness() const override { return world_.last; }

 private:
  World& world_;
};

class TunerUnproven : public testing::Test {
 protected:
  TunerUnproven() { setenv("CONVTUNE_DATA_DIR", scratch_.path().c_str(), 1); }

  // As tune() does it with a record that is not proven, if there is one.
  TuningReport tune_again(bool retune = false) {
    TuneOptions options;
    options.retune = retune;
    options.progress = [this](const Progress& step) {
      world_.contest = step.stage == "contest";
      world_.table = step.stage == "measure";
      world_.runs = 0;
    };
    const auto record = retune ? std::nullopt : recorded();
    EXPECT_TRUE(!record || !record->proven()) << "tune() would have answered from it";
    return tune_on(
        device_, algorithms_, scaling_problem(), options, [this] { return world_.now_us * 1e-6; }, record);
  }
  static std::optional<Record> recorded() {
    return Database().find(scaling_problem(), backend({}).info().fingerprint);
  }
  static void expect_says(const TuningReport& report, const std::string& words) {
    EXPECT_NE(report.comparison.decision.find(words), std::string::npos) << report.comparison.decision;
  }
  // A process begins the vendor's first way and is killed.
  static void kill_among_the_vendors() {
    EXPECT_EQ(in_child([] {
                TrialLog(Database().folder(), scaling_problem(), backend({}).info().fingerprint)
                    .start("theirs", {{{"way", 0}}}, "hash");
                return 9;
              }),
              9);
  }

  ScratchFolder scratch_;
  World world_;
  WatchedDevice device_{world_};
  Ways ours_{world_, false}, theirs_{world_, true};
  Other other_{world_};
  std::vector<const Algorithm*> algorithms_{&ours_, &theirs_};
};

TEST_F(TunerUnproven, AQuietMachineDecides) {
  const TuningReport report = tune_again();
  EXPECT_TRUE(report.proven);
  EXPECT_EQ(report.comparison.plan.algorithm, "ours");
  EXPECT_EQ(report.comparison.plan.source, PlanSource::tuned);
  EXPECT_TRUE(recorded()->proven());
}

TEST_F(TunerUnproven, WhatLeansOneWayIsUsedMeanwhileAndTheContestGoesOn) {
  world_.rounds_us = {80, 80};  // among twenty rounds eleven are won by 20 %, nine lost by 25 %
  for (int i = 0; i < 9; ++i) world_.rounds_us.insert(world_.rounds_us.end(), {80, 125});
  const TuningReport busy = tune_again();
  EXPECT_GT(busy.trials, 0);
  EXPECT_FALSE(busy.proven);
  EXPECT_EQ(busy.comparison.plan.algorithm, "ours");
  EXPECT_EQ(busy.comparison.plan.source, PlanSource::unproven);
  expect_says(
      busy,
      "gain 20.0 % (99 % interval -25.0..20.0 %) over 640 rounds is not proven to reach 2 %: not decided");
  expect_says(busy, "ours way=0 is used meanwhile, without proof, and the next tune holds the contest again");
  ASSERT_TRUE(recorded());
  EXPECT_EQ(recorded()->undecided, 1);
  EXPECT_EQ(recorded()->algorithm, "ours");

  const TuningReport as_busy = tune_again();
  EXPECT_EQ(as_busy.trials, 0);
  EXPECT_EQ(as_busy.resumed, 2);
  EXPECT_EQ(as_busy.candidates, 2);
  EXPECT_FALSE(as_busy.proven);
  expect_says(as_busy, "(99.5 % interval");  // half the doubt
  EXPECT_EQ(recorded()->undecided, 2);

  world_.rounds_us = {};
  const TuningReport quiet = tune_again();
  EXPECT_EQ(quiet.trials, 0);
  EXPECT_TRUE(quiet.proven);
  EXPECT_EQ(quiet.comparison.plan.source, PlanSource::tuned);
  EXPECT_TRUE(recorded()->proven());
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path() / "trials")) << "nothing is left to go on with";
}

TEST_F(TunerUnproven, WhereOtherWorkInterruptsOneSideNothingIsProven) {
  world_.interrupted = true;
  const TuningReport busy = tune_again();
  EXPECT_FALSE(busy.proven);
  EXPECT_EQ(busy.comparison.plan.algorithm, "ours") << "by either clock";
  expect_says(busy, "is not proven: the machine is busy, ");
  expect_says(busy,
              " samples of the incumbent were interrupted and 0 of the challenger's: not decided (load ");
  ASSERT_TRUE(busy.contest);
  EXPECT_TRUE(busy.contest->result.busy);
  EXPECT_EQ(recorded()->undecided, 1);
  ASSERT_FALSE(busy.warnings.empty());
  EXPECT_TRUE(busy.warnings.back().starts_with("the machine is busy: load ")) << busy.warnings.back();
  world_.interrupted = false;
  EXPECT_TRUE(tune_again().proven);
}

TEST_F(TunerUnproven, WhatLeansNoWayStaysWithTheVendorUntilItIsDecided) {
  world_.rounds_us = {80, 125};
  const TuningReport busy = tune_again();
  EXPECT_FALSE(busy.proven);
  EXPECT_EQ(busy.comparison.plan.algorithm, "theirs");
  expect_says(busy, "theirs way=0 is used meanwhile, without proof");
  world_.rounds_us = {};
  const TuningReport quiet = tune_again();
  EXPECT_EQ(quiet.trials, 0);
  EXPECT_TRUE(quiet.proven);
  EXPECT_EQ(recorded()->algorithm, "ours");
}

TEST_F(TunerUnproven, ALostContestIsDecided) {
  world_.rounds_us = {125};
  EXPECT_TRUE(tune_again().proven);
  EXPECT_EQ(recorded()->algorithm, "theirs");
}

TEST_F(TunerUnproven, AContestWithAnotherThanTheVendorsBestIsNoProof) {
  world_.second_us = 95;
  const TuningReport report = tune_again();
  EXPECT_FALSE(report.proven);
  EXPECT_EQ(report.comparison.plan.algorithm, "ours");
  expect_says(report, "without proof, since theirs way=1 was faster afterwards");
  EXPECT_EQ(recorded()->undecided, 1);
  world_.second_us = 99;  // as good as the first
  EXPECT_TRUE(tune_again().proven);
}

TEST_F(TunerUnproven, OfTheVendorsWaysTheFastestAfterwardsIsKept) {
  world_.rounds_us = {125};
  world_.second_us = 95;
  const TuningReport report = tune_again();
  EXPECT_TRUE(report.proven);
  EXPECT_EQ(report.comparison.plan.algorithm, "theirs");
  EXPECT_EQ(to_string(report.comparison.plan.config), "way=1");
  expect_says(report, "of the vendor's ways theirs way=1 was the fastest afterwards, and is kept");
  EXPECT_EQ(report.comparison.providers.front().name, "convtune");
  EXPECT_EQ(report.comparison.providers.front().config, report.comparison.plan.config);
  EXPECT_EQ(report.comparison.speedup, 1);
  EXPECT_EQ(recorded()->config, report.comparison.plan.config);
}

TEST_F(TunerUnproven, WithoutItsTrialsItSearchesAgain) {
  world_.rounds_us = {80, 125};
  tune_again();
  std::filesystem::remove_all(scratch_.path() / "trials");
  world_.rounds_us = {};
  const TuningReport report = tune_again();
  EXPECT_GT(report.trials, 0);
  EXPECT_TRUE(report.proven);
}

TEST_F(TunerUnproven, WhatHasOtherKernelsSinceIsTriedAgain) {
  algorithms_.push_back(&other_);
  world_.rounds_us = {80, 125};
  EXPECT_FALSE(tune_again().proven);
  world_.rounds_us = {};
  world_.other_hash = "newer";
  world_.other_us = 70;
  const TuningReport report = tune_again();
  EXPECT_EQ(report.trials, 1);
  EXPECT_EQ(report.resumed, 2);
  EXPECT_TRUE(report.proven);
  EXPECT_EQ(report.comparison.plan.algorithm, "other");
}

TEST_F(TunerUnproven, AnAlgorithmThatIsNewIsTried) {
  world_.rounds_us = {80, 125};
  EXPECT_FALSE(tune_again().proven);
  EXPECT_NE(recorded()->searched, "");
  world_.rounds_us = {};
  world_.other_us = 70;
  algorithms_.push_back(&other_);
  const TuningReport report = tune_again();
  EXPECT_EQ(report.trials, 1);
  EXPECT_EQ(report.comparison.plan.algorithm, "other");
  EXPECT_EQ(recorded()->searched, "");
}

TEST_F(TunerUnproven, WhatWasWrongIsTriedAgainWithOtherKernels) {
  algorithms_.push_back(&other_);
  world_.rounds_us = {80, 125};
  world_.other_right = false;
  EXPECT_EQ(tune_again().wrong, 1);
  EXPECT_EQ(tune_again().trials, 0);
  world_.rounds_us = {};
  world_.other_hash = "newer";
  world_.other_us = 70;
  world_.other_right = true;
  EXPECT_EQ(tune_again().comparison.plan.algorithm, "other");
}

TEST_F(TunerUnproven, ToRetuneIsToSearchFromTheBeginning) {
  world_.rounds_us = {80, 125};
  tune_again();
  const TuningReport report = tune_again(true);
  EXPECT_GT(report.trials, 0);
  EXPECT_EQ(report.resumed, 0);
  EXPECT_EQ(recorded()->undecided, 1);
}

TEST_F(TunerUnproven, WhatAStoppedRetuneHasTriedIsNoSearchToGoOnFrom) {
  world_.rounds_us = {80, 125};
  tune_again();
  TrialLog stopped(Database().folder(), scaling_problem(), backend({}).info().fingerprint);
  stopped.begin_anew(true);
  stopped.append({"ours", {{{"way", 1}}}, "hash", 91, 0, {}});
  const TuningReport report = tune_again();
  EXPECT_EQ(report.trials, 1);
  EXPECT_EQ(report.resumed, 1);
}

TEST_F(TunerUnproven, AWayThatWasLeftOutIsSaidAndTriedAgain) {
  kill_among_the_vendors();
  kill_among_the_vendors();
  const TuningReport without = tune_again();
  EXPECT_FALSE(without.proven);
  EXPECT_EQ(without.comparison.plan.source, PlanSource::unproven);
  expect_says(without, "against theirs way=1");
  expect_says(without, "without proof, since theirs way=0 had no part in it");
  EXPECT_EQ(recorded()->left_out, "theirs way=0");

  const TuningReport with = tune_again();
  EXPECT_EQ(with.trials, 0);
  EXPECT_TRUE(with.proven);
  EXPECT_TRUE(with.warnings.empty());
  expect_says(with, "against theirs way=0");
  EXPECT_TRUE(recorded()->proven());
}

TEST_F(TunerUnproven, ToRetuneForgetsWhoDied) {
  kill_among_the_vendors();
  kill_among_the_vendors();
  const TuningReport report = tune_again(true);
  EXPECT_TRUE(report.proven);
  EXPECT_TRUE(report.warnings.empty());
}

TEST_F(TunerUnproven, WhatCannotBeRecordedIsSaid) {
  EXPECT_EQ(tune_again().not_recorded, "");
  setenv("CONVTUNE_DATA_DIR", "/proc/convtune", 1);
  EXPECT_NE(tune_again().not_recorded.find("/proc/convtune"), std::string::npos);
}

}  // namespace
}  // namespace convtune::tuner_unproven_test
