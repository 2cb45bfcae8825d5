// A log of trials on a machine whose clock says what cannot be.
#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>

#include "record/trials.h"
#include "records_fixture.h"

namespace convtune::trials_clock_test {
namespace {

std::time_t offset = 0;  // for the clock of the whole program

}  // namespace
}  // namespace convtune::trials_clock_test

// Takes the place of the C library's.
extern "C" std::time_t time(std::time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::time_t seconds = now.tv_sec + convtune::trials_clock_test::offset;
  if (out != nullptr) *out = seconds;
  return seconds;
}

namespace convtune::trials_clock_test {
namespace {

TEST(TrialLogClock, BeforeItsBeginningAndAfterItsEndASearchGoesOn) {
  const ScratchFolder scratch;
  const ConvProblem problem = parse_problem("mb1ic3ih8oc4kh3");
  const Config config{{{"vectors", 1}}};
  for (const std::time_t year : {-170, 0, 60'000}) {
    offset = year * 365 * 86'400;
    TrialLog log(scratch.path(), problem, "cpu");
    EXPECT_TRUE(log.start("direct", config, "hash1")) << year;
    EXPECT_TRUE(log.append({"direct", config, "hash1", 10, 0, {}})) << year;
    EXPECT_NE(TrialLog(scratch.path(), problem, "cpu").find("direct", config, "hash1"), nullptr) << year;
  }
  offset = 0;
}

}  // namespace
}  // namespace convtune::trials_clock_test
