// A search's seconds on a simulated machine: compiling takes a second and checking a hundredth, by a clock
// that only they and the runs move.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "convtune/database.h"
#include "records_fixture.h"
#include "simulated_device.h"
#include "tune/tune_on.h"

namespace convtune::tuner_budget_test {
namespace {

struct World {
  double now_us = 0;
  double build_seconds = 1, vendor_seconds = 0.05;
  double hot_until_us = 0;  // its clock is lowered until then
};

constexpr double kOverheadUs = 100;  // a cold cache, waiting

class Simulated final : public SimulatedDevice {
 public:
  explicit Simulated(World& world) : SimulatedDevice(world.now_us, kOverheadUs), world_(world) {}
  std::string clock_drift() override {
    world_.now_us += 1000;
    return world_.now_us < world_.hot_until_us ? "it is too hot" : "";
  }

 private:
  World& world_;
};

// The vendor's ways take a little less the later they stand in its list; ours are best at the tenth.
class Ways final : public Algorithm {
 public:
  Ways(World& world, bool vendor, int count, double base_us)
      : world_(world), vendor_(vendor), count_(count), base_us_(base_us) {}
  std::string_view name() const override { return vendor_ ? "theirs" : "ours"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }
  bool vendor() const override { return vendor_; }
  Support supports(const ConvProblem&, const DeviceInfo&) const override { return Support::yes(); }
  std::vector<Config> candidates(const ConvProblem&, const DeviceInfo&) const override {
    std::vector<Config> all;
    for (int tile = 0; tile < count_; ++tile) all.push_back({{{"tile", tile}, {"stages", 2}, {"warps", 4}}});
    return all;
  }
  Support accepts(const ConvProblem&, const DeviceInfo&, const Config& config) const override {
    return config.at("stages") <= 4 ? Support::yes() : Support::no("too many stages");
  }
  std::unique_ptr<Executable> build(const ConvProblem&, const DeviceInfo&,
                                    const Config& config) const override {
    world_.now_us += 1e6 * (vendor_ ? world_.vendor_seconds : world_.build_seconds);
    const auto tile = static_cast<double>(config.at("tile"));
    const double of_tile = vendor_ ? (count_ - 1 - tile) / 10 : std::abs(tile - 10);
    return std::make_unique<SimulatedExecutable>(
        [this, us = base_us_ + of_tile - (config.at("stages") == 3 ? 5 : 0)] {
          world_.now_us += us;
          return true;
        });
  }
  std::optional<StageView> stage_view(const ConvProblem&, const DeviceInfo&,
                                      const Config& config) const override {
    if (vendor_) return std::nullopt;
    StageView view;
    view.config = {config.at("warps"), config.at("stages")};
    view.warps = WarpsAnswer{{8}, "for the test"};
    view.with = [config](const StageConfig& wanted) {
      return Config{{{"tile", config.at("tile")}, {"stages", wanted.stages}, {"warps", wanted.warps}}};
    };
    return view;
  }
  std::string source_hash() const override { return "hash"; }

 private:
  World& world_;
  const bool vendor_;
  const int count_;
  const double base_us_;
};

class TunerBudget : public testing::Test {
 protected:
  TunerBudget() { setenv("CONVTUNE_DATA_DIR", scratch_.path().c_str(), 1); }
  TuningReport tune_for(double seconds) {
    TuneOptions options;
    options.budget_seconds = seconds;
    options.cancel = &cancel_;
    options.progress = [this](const Progress& step) { on_step(step); };
    const double before = world_.now_us;
    TuningReport report = tune_on(device_, {&ours_, &theirs_}, scaling_problem(), options,
                                  [this] { return world_.now_us * 1e-6; });
    took_ = (world_.now_us - before) * 1e-6;
    return report;
  }
  static std::string last_verdict(const TuningReport& report) {
    return report.last_stage && !report.last_stage->verdicts.empty() ? report.last_stage->verdicts.back()
                                                                     : "";
  }

  ScratchFolder scratch_;
  World world_;
  Simulated device_{world_};
  Ways ours_{world_, false, 64, 60}, theirs_{world_, true, 60, 100};
  std::atomic<bool> cancel_ = false;
  std::function<void(const Progress&)> on_step = [](const Progress&) {};
  double took_ = 0;
};

TEST_F(TunerBudget, IsTheWholeOfIt) {
  for (const double seconds : {3.0, 6.0, 20.0, 60.0}) {
    SCOPED_TRACE(seconds);
    const TuningReport report = tune_for(seconds);
    EXPECT_LE(took_, 1.02 * seconds + 0.2);
    EXPECT_GE(took_, 0.5 * seconds);  // and it is used
    EXPECT_NE(report.comparison.decision.find("takes "), std::string::npos) << report.comparison.decision;
    EXPECT_EQ(Database().list().size(), 1u);
  }
}

TEST_F(TunerBudget, ASmallOneSaysWhatItHadNoTimeFor) {
  const TuningReport report = tune_for(3);
  EXPECT_EQ(report.trials, 1);
  EXPECT_NE(last_verdict(report).find("skipped, budget"), std::string::npos) << last_verdict(report);
  EXPECT_NE(report.comparison.decision.find(" of the vendor's 60 ways were not tried, budget"),
            std::string::npos)
      << report.comparison.decision;
}

TEST_F(TunerBudget, ALargeOneTriesAllOfTheVendorsWaysAndEndsWithTheLastStage) {
  const TuningReport report = tune_for(60);
  EXPECT_GT(report.trials, 20);
  EXPECT_EQ(report.comparison.decision.find("not tried"), std::string::npos) << report.comparison.decision;
  ASSERT_TRUE(report.last_stage);
  EXPECT_FALSE(report.last_stage->tried.empty()) << last_verdict(report);
  EXPECT_TRUE(report.last_stage->changed) << last_verdict(report);  // 3 stages take 5 us less
}

TEST_F(TunerBudget, NoneAtAllStillHoldsTheContest) {
  world_.build_seconds = 0.3;
  const TuningReport report = tune_for(0);
  EXPECT_EQ(report.trials, 1);
  EXPECT_LE(took_, 4 * 0.05 + 0.3 + 0.6);
  EXPECT_EQ(report.comparison.plan.algorithm, "ours");
  EXPECT_NE(report.comparison.decision.find("takes "), std::string::npos) << report.comparison.decision;
}

TEST_F(TunerBudget, AChallengerThatGainsNothingLosesHoweverLate) {
  Ways slow(world_, false, 1, 96);  // 106, and the first of the vendor's take 105.6
  TuneOptions options;
  options.budget_seconds = 0;
  const TuningReport report = tune_on(device_, {&slow, &theirs_}, scaling_problem(), options,
                                      [this] { return world_.now_us * 1e-6; });
  EXPECT_EQ(report.comparison.plan.algorithm, "theirs");
}

TEST_F(TunerBudget, WhatTheVendorHasLeftComesWhenOurOwnIsTried) {
  Ways few(world_, false, 2, 60);
  TuneOptions options;
  options.budget_seconds = 10;
  const TuningReport report =
      tune_on(device_, {&few, &theirs_}, scaling_problem(), options, [this] { return world_.now_us * 1e-6; });
  EXPECT_EQ(report.trials, 2);
  EXPECT_EQ(report.comparison.decision.find("not tried"), std::string::npos) << report.comparison.decision;
}

TEST_F(TunerBudget, WhatWasTimedOnASlowedDeviceIsTimedAgain) {
  world_.vendor_seconds = world_.build_seconds = 0.01;
  world_.hot_until_us = 12'500;  // the first of the vendor's ways is built by 10,000
  const TuningReport report = tune_for(0.3);
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_EQ(report.warnings[0],
            "clock drift of cpu: it is too hot; what was timed meanwhile was timed again");
}

TEST_F(TunerBudget, ADeviceThatStaysSlowedIsNotWaitedForAndTheReportSaysSo) {
  world_.hot_until_us = 1e12;
  const TuningReport report = tune_for(3);
  ASSERT_EQ(report.warnings.size(), 3u);
  EXPECT_NE(report.warnings[0].find("timed again"), std::string::npos) << report.warnings[0];
  EXPECT_NE(report.warnings[1].find("it is too hot; it lasted, and some times are of a slower machine"),
            std::string::npos)
      << report.warnings[1];
  EXPECT_NE(report.warnings[2].find("it is too hot; both sides of the contest took turns"), std::string::npos)
      << report.warnings[2];
}

TEST_F(TunerBudget, InterruptedAmongTheVendorsItKeepsNothingAndGoesOn) {
  on_step = [this](const Progress& step) { cancel_ = step.stage == "vendor" && step.done == 3; };
  EXPECT_TRUE(tune_for(10).interrupted);
  EXPECT_TRUE(Database().list().empty());
  cancel_ = false;
  on_step = [this](const Progress& step) { cancel_ = step.stage == "screen" && step.done == 4; };
  EXPECT_TRUE(tune_for(10).interrupted);
  on_step = [](const Progress&) {};
  cancel_ = false;
  const TuningReport resumed = tune_for(10);
  EXPECT_FALSE(resumed.interrupted);
  EXPECT_GE(resumed.resumed, 4);
  EXPECT_GT(resumed.trials, 0);
}

}  // namespace
}  // namespace convtune::tuner_budget_test
