// A search on a few images, on a simulated machine: a run takes as long as it has images, building nothing.
#include "tune/small_batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "convtune/database.h"
#include "records_fixture.h"
#include "simulated_device.h"
#include "tune/tune_on.h"

namespace convtune::small_batch_test {
namespace {

constexpr int kTiles = 200, kBest = 37, kWrong = 36;
constexpr double kImageUs = 500;

// The nearer to the best tile, the faster; one is wrong. None is as fast as on a large batch.
class Tiles final : public SimulatedAlgorithm {
 public:
  explicit Tiles(double& now_us) : now_us_(now_us) {}
  std::string_view name() const override { return "tiles"; }
  std::vector<Config> candidates(const ConvProblem&, const DeviceInfo&) const override {
    std::vector<Config> all;
    for (int tile = 0; tile < kTiles; ++tile) all.push_back({{{"tile", tile}}});
    return all;
  }
  std::unique_ptr<Executable> build(const ConvProblem& problem, const DeviceInfo&,
                                    const Config& config) const override {
    const std::int64_t tile = config.at("tile");
    const double us =
        (kImageUs + 2 * std::abs(static_cast<double>(tile - kBest))) * static_cast<double>(problem.n);
    const auto run = [this, us, tile] {
      now_us_ += us;
      return tile != kWrong;
    };
    return std::make_unique<SimulatedExecutable>(run, problem.n);
  }
  std::string source_hash() const override { return "hash"; }

 private:
  double& now_us_;
};

class SmallBatchTest : public testing::Test {
 protected:
  SmallBatchTest() { setenv("CONVTUNE_DATA_DIR", scratch_.path().c_str(), 1); }
  TuningReport tune_batch(std::int64_t batch, double seconds) {
    ConvProblem problem = scaling_problem();
    problem.n = batch;
    TuneOptions options;
    options.budget_seconds = seconds;
    options.cancel = &cancel_;
    options.progress = [this](const Progress& step) { on_step_(step); };
    return tune_on(device_, {&tiles_}, problem, options, [this] { return now_us_ * 1e-6; });
  }
  std::int64_t few_images() const {
    ConvProblem problem = scaling_problem();
    problem.n = 1 << 20;
    return SmallBatch::images_for(problem, device_.info());
  }

  ScratchFolder scratch_;
  double now_us_ = 0;
  SimulatedDevice device_{now_us_};
  Tiles tiles_{now_us_};
  std::atomic<bool> cancel_ = false;
  std::function<void(const Progress&)> on_step_ = [](const Progress&) {};
};

TEST_F(SmallBatchTest, ALargeBatchIsSearchedOnAFewImages) {
  const std::int64_t batch = 64 * few_images();
  const double candidate_seconds = 4e-6 * kImageUs * static_cast<double>(batch);
  const TuningReport report = tune_batch(batch, 60 * candidate_seconds);  // for a third of the candidates
  EXPECT_EQ(report.small_batch, few_images());
  EXPECT_EQ(report.small_trials, kTiles);
  EXPECT_LE(report.trials, 10);
  EXPECT_EQ(report.comparison.plan.config.at("tile"), kBest);
  EXPECT_EQ(report.wrong, 1);
  ASSERT_FALSE(report.warnings.empty());
  EXPECT_NE(report.warnings[0].find("tile=36 was wrong on a batch of"), std::string::npos)
      << report.warnings[0];
}

TEST_F(SmallBatchTest, NothingIsSearchedTwiceWhereThereIsTimeForAll) {
  const std::int64_t batch = 64 * few_images();
  const TuningReport report = tune_batch(batch, 40e-6 * kImageUs * static_cast<double>(batch * kTiles));
  EXPECT_EQ(report.small_batch, 0);
  EXPECT_EQ(report.trials, kTiles);
}

TEST_F(SmallBatchTest, AFewImagesAreSearchedWhole) {
  const TuningReport report = tune_batch(2 * few_images(), 1);
  EXPECT_EQ(report.small_batch, 0);
  EXPECT_GT(report.trials, 1);
}

TEST_F(SmallBatchTest, WhatWasInterruptedGoesOn) {
  const std::int64_t batch = 64 * few_images();
  const double seconds = 60 * 4e-6 * kImageUs * static_cast<double>(batch);
  on_step_ = [this](const Progress& step) { cancel_ = step.stage == "screen" && step.done >= 100; };
  EXPECT_TRUE(tune_batch(batch, seconds).interrupted);
  cancel_ = false;
  on_step_ = [](const Progress&) {};
  const double before = now_us_;
  const TuningReport report = tune_batch(batch, seconds);
  EXPECT_FALSE(report.interrupted);
  EXPECT_EQ(report.comparison.plan.config.at("tile"), kBest);
  EXPECT_LT(now_us_ - before, 1e6 * seconds);
  ConvProblem small = scaling_problem();
  small.n = few_images();
  const TrialLog trials(scratch_.path(), small, device_.info().fingerprint);
  EXPECT_TRUE(trials.results().empty());  // the search is over
  EXPECT_NE(trials.find("tiles", {{{"tile", kWrong}}}, "hash"), nullptr);
}

TEST_F(SmallBatchTest, GPUsAreSearchedOnTheWholeBatch) {
  DeviceInfo gpu = device_.info();
  gpu.device.kind = Device::Kind::cuda;
  ConvProblem problem = scaling_problem();
  problem.n = 1 << 20;
  EXPECT_EQ(SmallBatch::images_for(problem, gpu), 0);
}

}  // namespace
}  // namespace convtune::small_batch_test
