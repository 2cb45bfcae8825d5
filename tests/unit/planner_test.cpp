// What an unmeasured problem gets: the first guess of the algorithm that the model of time finds fastest,
// held against what was measured; and that the compiler makes the same bytes of a kernel again.
#include "planner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "algorithms.h"
#include "convtune/cases.h"
#include "cuda/compiler.h"
#include "cuda/rehearsal.h"

namespace convtune {
namespace {

DeviceInfo gpu(const char* isa, int units) {
  DeviceInfo device;
  device.device = {Device::Kind::cuda, 0};
  device.isa = isa, device.units = units;
  device.fingerprint = std::string("planner_test|") + isa;  // no record is ever of it
  return device;
}

Conv2dProblem tf32(const std::string& text) {
  Conv2dProblem problem = find_problem(text);
  problem.precision = Precision::tf32;
  return problem;
}

// Same bytes from one compilation to the next, so that a cubin can be signed, compared and packed.
TEST(Kernels, AreTheSameBytesAgain) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << "NVRTC: " << cuda::describe_nvrtc();
  const DeviceInfo device = gpu("sm_90a", 132);
  std::map<std::string_view, int> compiled;
  for (const char* const text :
       {"mb2ic3ih35oc32kh7sh4ph2", "mb1ic16ih9oc16kh3ph1", "g4mb1ic4ih8oc4kh3ph1", "mb1ic3ih32oc32kh8sh8"})
    for (const Algorithm* const algorithm : algorithms(Device::Kind::cuda)) {
      const Conv2dProblem problem = tf32(text);
      if (algorithm->vendor() || !algorithm->supports(problem, device) || compiled[algorithm->name()]++ > 0)
        continue;
      cuda::CompileJob job;
      {
        cuda::Rehearsal rehearsal(nullptr);
        try {
          algorithm->build(problem, device, algorithm->candidates(problem, device).front());
        } catch (const cuda::Rehearsal::StoppedAtCompile&) {
        }
        ASSERT_TRUE(rehearsal.job) << algorithm->name();
        job = *rehearsal.job;
      }
      EXPECT_TRUE(cuda::compile(job, false).cubin == cuda::compile(job, false).cubin) << job.kernels[0];
    }
  EXPECT_GE(compiled.size(), 5u);
}

}  // namespace
}  // namespace convtune
