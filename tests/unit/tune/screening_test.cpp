// A search survives its candidates: one that breaks the device, one that kills its process, a vendor's that
// fails.
#include "tune/screening.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>

#include "records_fixture.h"
#include "simulated_device.h"

namespace convtune::screening_test {
namespace {

enum class Deed { right, wrong, breaks_the_device, kills_the_process, has_no_memory };

class Play final : public Algorithm {
 public:
  explicit Play(bool vendor) : vendor_(vendor) {}
  std::string_view name() const override { return vendor_ ? "theirs" : "play"; }
  bool vendor() const override { return vendor_; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }
  Support supports(const ConvProblem&, const DeviceInfo&) const override { return Support::yes(); }
  std::vector<Config> candidates(const ConvProblem&, const DeviceInfo&) const override { return {}; }
  Support accepts(const ConvProblem&, const DeviceInfo&, const Config&) const override {
    return Support::yes();
  }
  std::unique_ptr<Executable> build(const ConvProblem&, const DeviceInfo&,
                                    const Config& config) const override {
    return std::make_unique<SimulatedExecutable>([deed = static_cast<Deed>(config.at("deed"))] {
      if (deed == Deed::kills_the_process) ::_exit(9);
      if (deed == Deed::has_no_memory) throw std::bad_alloc();
      if (deed == Deed::breaks_the_device) throw Error(ErrorKind::device_lost, "an illegal address");
      return deed != Deed::wrong;
    });
  }
  std::string source_hash() const override { return "hash"; }

 private:
  const bool vendor_;
};

Config to(Deed deed) {
  return {{{"deed", static_cast<std::int64_t>(deed)}}};
}

class ScreeningTest : public testing::Test {
 protected:
  // One call in a search of its own, as if the command were run again.
  template <class Call>
  Contender in_new_search(const Call& call) {
    TrialLog trials(scratch_.path(), scaling_problem(), "device");
    Screening screening(scaling_problem(), backend({}).info(), bed_, trials, true);
    return call(screening);
  }
  Contender attempt(Deed deed) {
    return in_new_search([&](Screening& s) { return s.attempt(play_, to(deed), 0); });
  }
  Contender attempt_vendor(Deed deed) {
    return in_new_search([&](Screening& s) { return s.attempt_vendor(theirs_, to(deed)); });
  }
  // As if somebody killed the process in the middle of it.
  void kill_while_begun(const Play& play, Deed deed) {
    TrialLog(scratch_.path(), scaling_problem(), "device").start(std::string(play.name()), to(deed), "hash");
    ::_exit(9);
  }
  static std::string message_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::device_lost);
      return error.what();
    }
    return "nothing was thrown";
  }
  // In a child, which it takes with it.
  template <class Call>
  static void expect_death(const Call& call) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      call();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 9);
  }

  ScratchFolder scratch_;
  Play play_{false}, theirs_{true};
  Testbed bed_{scaling_problem(), backend({}), TestData::real, 1, 0};
};

TEST_F(ScreeningTest, RightAndWrong) {
  const Contender right = attempt(Deed::right), wrong = attempt(Deed::wrong);
  EXPECT_EQ(right.failure, "");
  EXPECT_GT(right.screen_us, 0);
  EXPECT_NE(wrong.failure.find("the oracle says"), std::string::npos) << wrong.failure;
}

TEST_F(ScreeningTest, WhatBreaksTheDeviceIsQuarantinedAndSaid) {
  const std::string message = message_of([&] { attempt(Deed::breaks_the_device); });
  for (const char* needle :
       {"play deed=2 broke the device", "an illegal address", "quarantined", "same command"})
    EXPECT_NE(message.find(needle), std::string::npos) << message;
  const TrialLog trials(scratch_.path(), scaling_problem(), "device");
  const Trial* trial = trials.find("play", to(Deed::breaks_the_device), "hash");
  ASSERT_NE(trial, nullptr);
  EXPECT_EQ(trial->failure, "an illegal address");
}

TEST_F(ScreeningTest, WhatKillsTheProcessTwiceIsNotTriedAgain) {
  for (int time = 0; time < TrialLog::kMostDeaths; ++time)
    expect_death([&] { attempt(Deed::kills_the_process); });
  EXPECT_EQ(attempt(Deed::kills_the_process).failure,
            "2 processes began it and died before it came to an end");
}

TEST_F(ScreeningTest, AProcessThatWasKilledOnceDoesNotCondemnItsCandidate) {
  expect_death([&] { kill_while_begun(play_, Deed::right); });
  EXPECT_EQ(attempt(Deed::right).failure, "");
}

TEST_F(ScreeningTest, VendorsAreTriedEveryTime) {
  for (int time = 0; time < 4; ++time) {
    EXPECT_EQ(attempt_vendor(Deed::right).failure, "");
    EXPECT_NE(attempt_vendor(Deed::wrong).failure.find("the oracle says"), std::string::npos);
  }
}

TEST_F(ScreeningTest, AVendorThatLostTheDeviceOnceIsTriedAgain) {
  const Config config = to(Deed::breaks_the_device);
  const std::string message = message_of([&] { attempt_vendor(Deed::breaks_the_device); });
  EXPECT_NE(message.find("the same command again tries it once more"), std::string::npos) << message;
  EXPECT_EQ(TrialLog(scratch_.path(), scaling_problem(), "device").find("theirs", config, "hash"), nullptr);
  message_of([&] { attempt_vendor(Deed::breaks_the_device); });
}

TEST_F(ScreeningTest, AVendorThatLostTheDeviceTwiceIsLeftOutAndProvesNothing) {
  for (int time = 0; time < TrialLog::kMostDeaths; ++time)
    expect_death([&] {
      message_of([&] { attempt_vendor(Deed::breaks_the_device); });
      ::_exit(9);
    });
  in_new_search([&](Screening& screening) {
    const Contender vendor = screening.attempt_vendor(theirs_, to(Deed::breaks_the_device));
    EXPECT_NE(vendor.failure.find("2 processes"), std::string::npos) << vendor.failure;
    EXPECT_EQ(screening.left_out, std::vector<std::string>{"theirs deed=2"});
    return vendor;
  });
}

TEST_F(ScreeningTest, AFailureOfAVendorThatAnOlderVersionKeptIsTriedAgain) {
  TrialLog(scratch_.path(), scaling_problem(), "device")
      .append({"theirs", to(Deed::right), "hash", 0, 0, "an illegal address"});
  EXPECT_EQ(attempt_vendor(Deed::right).failure, "");
}

TEST_F(ScreeningTest, AVendorThatProcessesDiedOfIsLeftOutForAWhileAndNeverForGood) {
  for (int time = 0; time < 2; ++time) expect_death([&] { kill_while_begun(theirs_, Deed::right); });
  EXPECT_EQ(attempt_vendor(Deed::right).failure, "2 processes began it and died before it came to an end");
  for (int time = 0; time < 2; ++time) EXPECT_EQ(attempt_vendor(Deed::right).failure, "");

  const auto left_out = [&] {
    return in_new_search([&](Screening& screening) {
      const Contender vendor = screening.attempt_vendor(theirs_, to(Deed::kills_the_process));
      EXPECT_EQ(screening.left_out, std::vector<std::string>{"theirs deed=3"});
      return vendor;
    });
  };
  const auto dies = [&] { expect_death([&] { attempt_vendor(Deed::kills_the_process); }); };
  dies();
  dies();
  for (int searches = 1; searches <= 3; ++searches) {  // that it is left out of before it is tried again
    for (int i = 0; i < searches; ++i)
      EXPECT_NE(left_out().failure.find(std::to_string(searches + 1) + " processes"), std::string::npos);
    dies();
  }
}

TEST_F(ScreeningTest, WhatIsNoFaultOfTheDevicesLeavesNoMark) {
  for (int time = 0; time < 3; ++time)
    expect_death([&] {
      try {
        attempt(Deed::has_no_memory);
      } catch (const std::bad_alloc&) {
        ::_exit(9);
      }
    });
  EXPECT_THROW(attempt(Deed::has_no_memory), std::bad_alloc);
}

}  // namespace
}  // namespace convtune::screening_test
