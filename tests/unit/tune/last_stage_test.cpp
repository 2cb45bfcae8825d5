// The last stage on an algorithm and a clock of the test's own: what is accepted, what is reverted, what is
// not even measured, and what the trials keep of it.
#include "tune/last_stage.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "records_fixture.h"
#include "simulated_device.h"

namespace convtune::last_stage_test {
namespace {

// Gives the time of a run by its number of stages, and the clock's readings.
struct World {
  std::map<std::int64_t, double> stage_us = {{2, 1050}, {3, 1000}, {4, 940}};
  double noise = 0.01, now_us = 0;
  int runs = 0;
  std::mt19937_64 random{1};
  std::normal_distribution<double> normal;
};

// Wrong where it takes no time.
class Staged final : public SimulatedAlgorithm {
 public:
  explicit Staged(World& world) : world_(world) {}
  std::string_view name() const override { return "staged"; }
  std::vector<Config> candidates(const ConvProblem&, const DeviceInfo&) const override { return {}; }
  Support accepts(const ConvProblem&, const DeviceInfo&, const Config& config) const override {
    return world_.stage_us.count(config.at("stages")) ? Support::yes() : Support::no("no time is known");
  }
  std::unique_ptr<Executable> build(const ConvProblem&, const DeviceInfo&,
                                    const Config& config) const override {
    return std::make_unique<SimulatedExecutable>([this, us = world_.stage_us.at(config.at("stages"))] {
      ++world_.runs;
      world_.now_us += us * (1 + world_.noise * world_.normal(world_.random));
      return us > 0;
    });
  }
  std::optional<StageView> stage_view(const ConvProblem&, const DeviceInfo&,
                                      const Config& config) const override {
    if (!has_parameters) return std::nullopt;
    StageView view;
    view.parameters.warps_name = "warps", view.parameters.stages_name = "stages";
    view.config = {4, config.at("stages")};
    view.with = [config](const StageConfig& wanted) {
      Config other = config;
      other.values = {{"block", config.at("block")}, {"stages", wanted.stages}};
      return other;
    };
    return view;
  }
  std::string source_hash() const override { return "hash"; }

  bool has_parameters = true;

 private:
  World& world_;
};

class LastStageTest : public testing::Test {
 protected:
  LastStageTest() { setenv("CONVTUNE_DATA_DIR", scratch_.path().c_str(), 1); }

  static Config with_stages(std::int64_t stages) { return {{{"block", 64}, {"stages", stages}}}; }
  // As if the search had just ended with 3 stages.
  LastStage run(
      const std::function<bool()>& cancelled = [] { return false; }, double min_gain = 0.02) {
    TrialLog trials(scratch_.path(), scaling_problem(), "device");
    Screening screening(scaling_problem(), bed_.info(), testbed_, trials, true);
    Contender winner = contender(staged_, with_stages(3), scaling_problem(), bed_.info(), testbed_);
    EXPECT_EQ(winner.failure, "");
    winner.screen_us = world_.stage_us.at(3);
    world_.runs = 0;
    const ConvProblem problem = scaling_problem();
    const DeviceInfo device = bed_.info();
    return last_stage(winner, {problem, device, min_gain, budget_, testbed_, screening, cancelled});
  }
  static void expect_verdict(const LastStage& stage, std::size_t rule, const std::string& needle) {
    ASSERT_GE(stage.report.verdicts.size(), rule);
    const std::string& verdict = stage.report.verdicts[rule - 1];
    EXPECT_EQ(verdict.rfind(fmt::format("R{}: ", rule), 0), 0u) << verdict;
    EXPECT_NE(verdict.find(needle), std::string::npos) << verdict;
  }

  ScratchFolder scratch_;
  World world_;
  Staged staged_{world_};
  SimulatedDevice bed_{world_.now_us};
  Testbed testbed_{scaling_problem(), bed_, TestData::real, 1, 0};
  Budget budget_{60, [] { return 0.0; }};
};

TEST_F(LastStageTest, WhatTheBudgetHasNoTimeForIsListedAndSaid) {
  budget_.expect_last_stage(70);
  const LastStage stage = run();
  EXPECT_FALSE(stage.accepted);
  EXPECT_EQ(world_.runs, 0);
  EXPECT_TRUE(stage.report.tried.empty());
  expect_verdict(stage, 4, "3 configs");
  expect_verdict(
      stage, 6,
      "skipped, budget: it takes about 70.0 s, and of 60 s there are 56.0 s for it: the original stays");
}

TEST_F(LastStageTest, AProvenNeighbourTakesTheWinnersPlace) {
  const LastStage stage = run();
  ASSERT_TRUE(stage.accepted);
  EXPECT_EQ(stage.accepted->config, with_stages(4));
  EXPECT_NEAR(stage.accepted->screen_us, 940, 5);
  EXPECT_TRUE(stage.report.changed);
  EXPECT_EQ(stage.report.original, "staged block=64 stages=3");
  EXPECT_EQ(stage.report.kept, "staged block=64 stages=4");
  ASSERT_EQ(stage.report.verdicts.size(), 6u);
  expect_verdict(stage, 1, "nothing is known of the occupancy");
  expect_verdict(stage, 2, "stages 3 -> 4 and 2");
  expect_verdict(stage, 4, "3 configs");
  expect_verdict(stage, 5, "among them");
  expect_verdict(stage, 6, "warps=4 stages=4: one stage more against the original: takes ");
  ASSERT_EQ(stage.report.tried.size(), 3u);
  EXPECT_EQ(stage.report.tried[0].config, with_stages(3));
  EXPECT_EQ(stage.report.tried[0].reason, "warps=4 stages=3: the original");
  EXPECT_NEAR(stage.report.tried[0].time_us, 1000, 10);
  EXPECT_NEAR(stage.report.tried[2].time_us, 1050, 10);
}

TEST_F(LastStageTest, TheWinnerStaysWhereNothingIsProven) {
  world_.stage_us = {{2, 1000}, {3, 1000}, {4, 990}};
  const LastStage stage = run();
  EXPECT_FALSE(stage.accepted);
  EXPECT_FALSE(stage.report.changed);
  EXPECT_EQ(stage.report.kept, stage.report.original);
  expect_verdict(stage, 6, "the incumbent stays");
}

TEST_F(LastStageTest, WhatIsAskedIsOnePercentAtLeast) {
  world_.noise = 0.001;
  world_.stage_us = {{2, 1000}, {3, 1000}, {4, 995}};
  const LastStage small = run([] { return false; }, 0);
  EXPECT_FALSE(small.accepted);
  expect_verdict(small, 6, "below 1 %");
  world_.stage_us[4] = 985;
  EXPECT_TRUE(run([] { return false; }, 0).accepted);
  EXPECT_FALSE(run().accepted);
}

TEST_F(LastStageTest, TooFewNeighboursAreNotMeasured) {
  world_.stage_us.erase(4);
  const LastStage stage = run();
  EXPECT_FALSE(stage.accepted);
  EXPECT_TRUE(stage.report.tried.empty());
  EXPECT_EQ(world_.runs, 0);
  expect_verdict(stage, 2, "stages 3 -> 2; 4 is none of its configs here");
  expect_verdict(stage, 4, "keep: ");
  expect_verdict(stage, 6, "there is no list");
}

TEST_F(LastStageTest, AnAlgorithmWithoutParametersSaysSo) {
  staged_.has_parameters = false;
  const LastStage stage = run();
  EXPECT_EQ(stage.report.verdicts,
            std::vector<std::string>{"no list: staged has no parameters that this stage may change"});
  EXPECT_EQ(world_.runs, 0);
}

TEST_F(LastStageTest, WhatIsTooSlowIsNotMeasured) {
  for (auto& [stages, us] : world_.stage_us) us *= 60;
  const LastStage stage = run();
  EXPECT_FALSE(stage.accepted);
  EXPECT_EQ(world_.runs, 0);
  expect_verdict(stage, 6, "not measured: 40 runs of 60 ms would take 2.4 s");
}

TEST_F(LastStageTest, InterruptedAtAnyTimeItChangesNothing) {
  run();  // all there is to poll
  for (const int polls : {0, 1, 2, 3, 10, 45, 50}) {
    int left = polls;
    const LastStage stage = run([&left] { return --left < 0; });
    EXPECT_FALSE(stage.accepted) << polls;
    EXPECT_EQ(stage.report.kept, stage.report.original) << polls;
  }
}

TEST_F(LastStageTest, WrongNeighboursAreQuarantinedAndTheOthersMeasured) {
  world_.stage_us[2] = 0;
  const LastStage first = run(), again = run();
  for (const LastStage* stage : {&first, &again}) {
    ASSERT_TRUE(stage->accepted);
    ASSERT_EQ(stage->report.tried.size(), 3u);
    EXPECT_NE(stage->report.tried[2].failure.find("the oracle says"), std::string::npos);
    EXPECT_EQ(stage->report.tried[2].time_us, 0);
  }
  const TrialLog trials(scratch_.path(), scaling_problem(), "device");
  ASSERT_NE(trials.find("staged", with_stages(2), "hash"), nullptr);
  EXPECT_NE(trials.find("staged", with_stages(2), "hash")->failure, "");
  ASSERT_NE(trials.find("staged", with_stages(4), "hash"), nullptr);
  EXPECT_EQ(trials.find("staged", with_stages(4), "hash")->failure, "");

  world_.stage_us[4] = 0;
  const LastStage other = run();  // the trials know of a right one, which is checked again
  expect_verdict(other, 6, "no neighbour ran");
}

TEST_F(LastStageTest, WhatKilledTheProcessTwiceIsLeftOut) {
  for (int time = 0; time < TrialLog::kMostDeaths; ++time)
    in_child([&] {
      return static_cast<int>(
          TrialLog(scratch_.path(), scaling_problem(), "device").start("staged", with_stages(4), "hash"));
    });
  const LastStage stage = run();
  EXPECT_FALSE(stage.accepted);
  EXPECT_NE(stage.report.tried[1].failure.find("died before it came to an end"), std::string::npos);
  EXPECT_GT(stage.report.tried[2].time_us, 0);
}

}  // namespace
}  // namespace convtune::last_stage_test
