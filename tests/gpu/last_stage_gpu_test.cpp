// The last stage of a search on a GPU: the winner's resources as compiled decide R1, its neighbours are
// built, checked and timed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/cudnn/cudnn.h"
#include "plan/planner.h"
#include "tune/last_stage.h"

namespace convtune::last_stage_gpu_test {
namespace {

TEST(LastStageOnAGpu, EveryAlgorithmWithParameters) {
  if (cuda::devices().empty()) GTEST_SKIP() << "no GPU";
  const DeviceInfo& device = cuda::devices().front();
  std::string folder = (std::filesystem::path(testing::TempDir()) / "convtune-stage-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  Backend& backend = cuda::backend(device.device);
  int measured = 0;
  for (const char* text : {"mb8ic64ih56oc64kh3ph1", "mb8ic3ih224oc96kh11sh4ph2"}) {
    const ConvProblem problem = resolve(parse_problem(text), backend);
    Testbed bed(problem, backend, TestData::real, 1, 512);
    TrialLog trials(folder, problem, device.fingerprint);
    Screening screening(problem, device, bed, trials, true);
    for (const Algorithm* algorithm : {&cuda::implicit_gemm_sm80(), &cuda::direct_body_sm90(),
                                       &cuda::direct_stem_sm90(), &cuda::direct_stem_sm80()}) {
      if (!algorithm->supports(problem, device)) continue;
      const Config config = algorithm->candidates(problem, device).front();
      Contender winner = contender(*algorithm, config, problem, device, bed);
      ASSERT_EQ(winner.failure, "") << winner.text();
      winner.screen_us = screening.time_us(winner, 0);
      const Budget budget(60);
      const LastStage stage =
          last_stage(winner, {problem, device, 0.02, budget, bed, screening, [] { return false; }});
      std::cout << stage.report.original << "\n";
      for (const std::string& verdict : stage.report.verdicts) std::cout << "  " << verdict << "\n";
      EXPECT_EQ(stage.report.verdicts.size(), 6u);
      EXPECT_EQ(stage.report.verdicts[0].find("neither is known"), std::string::npos);
      for (const MicroTuning::Tried& one : stage.report.tried) {
        std::cout << "  " << one.time_us << " us " << one.reason << "\n";
        EXPECT_EQ(one.failure, "") << to_string(one.config);
        EXPECT_GT(one.time_us, 0) << to_string(one.config);
        ++measured;
      }
    }
  }
  EXPECT_GT(measured, 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace convtune::last_stage_gpu_test
