// Candidates in batches, as for a GPU: which are compiled, in which order they come, and what is left out.
#include "tune/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "convtune/error.h"

namespace convtune::batches_test {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

const ConvProblem& problem() {
  static const ConvProblem one = parse_problem("mb1ic1ih2oc1kh1 precision=fp32 bias=0");
  return one;
}

// Whose every third candidate takes long to compile, and whose every fourth cannot be.
class Compiled final : public Algorithm {
 public:
  explicit Compiled(std::int64_t count, bool all_take_long = false)
      : count_(count), all_take_long_(all_take_long) {}
  std::string_view name() const override { return "compiled"; }
  Device::Kind device_kind() const override { return Device::Kind::cuda; }
  Support supports(const ConvProblem&, const DeviceInfo&) const override { return Support::yes(); }
  std::vector<Config> candidates(const ConvProblem&, const DeviceInfo&) const override {
    std::vector<Config> all;
    for (std::int64_t n = 0; n < count_; ++n) all.push_back({{{"n", n}}});
    return all;
  }
  Support accepts(const ConvProblem&, const DeviceInfo&, const Config&) const override {
    return Support::yes();
  }
  void precompile(const ConvProblem&, const DeviceInfo&, const Config& config) const override {
    if (all_take_long_ || config.at("n") % 3 == 1) std::this_thread::sleep_for(std::chrono::seconds(20));
    if (config.at("n") % 4 == 2) throw Error(ErrorKind::internal, "it does not compile");
  }
  std::unique_ptr<Executable> build(const ConvProblem&, const DeviceInfo&, const Config&) const override {
    return nullptr;
  }
  std::string source_hash() const override { return "hash"; }

 private:
  std::int64_t count_;
  bool all_take_long_;
};

class BatchesTest : public testing::Test {
 protected:
  BatchesTest() { gpu_.device = {Device::Kind::cuda, 0}; }
  Batches batches(std::int64_t first) {
    return {problem(), gpu_, {&compiled_}, {2, first, [this](const Algorithm&, const Config& config, double) {
                                              return config.at("n") != not_wanted_;
                                            }}};
  }
  static std::vector<std::size_t> taken(Batches& from) {
    std::vector<std::size_t> all;
    while (!from.empty()) all.push_back(from.take());
    return all;
  }

  const std::int64_t at_once_ = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, 16);
  DeviceInfo gpu_;
  Compiled compiled_{40};
  std::int64_t not_wanted_ = -1;
};

TEST_F(BatchesTest, OneAProcessorAndWhatIsLateIsLeftOutAndSaid) {
  if (at_once_ == 1) GTEST_SKIP() << "one processor: a candidate is built where it is tried";
  Batches some = batches(kNoLimit);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_LT(some.wait(), 2);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 10);
  EXPECT_EQ(some.size(), static_cast<std::size_t>(at_once_));
  std::vector<std::size_t> in_time;
  for (std::size_t n = 0; n < some.size(); ++n)
    if (n % 3 != 1) in_time.push_back(n);
  EXPECT_EQ(taken(some), in_time);  // a config that does not compile is found where it is tried
  ASSERT_EQ(some.warnings.size(), some.size() - in_time.size());
  EXPECT_EQ(some.warnings[0], "compiled n=1 takes longer than 2 s to compile: it was not tried");
}

TEST_F(BatchesTest, WhereNoneIsInTimeItIsNotTheCandidates) {
  Compiled slow(40, true);
  Batches one(problem(), gpu_, {&slow},
              {0.01, kNoLimit, [](const Algorithm&, const Config&, double) { return true; }});
  one.wait();
  EXPECT_EQ(taken(one).size(), static_cast<std::size_t>(at_once_));
  EXPECT_TRUE(one.warnings.empty());
}

TEST_F(BatchesTest, OneAloneAndWhatIsNotWantedAreNotCompiled) {
  Batches one = batches(1);
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(taken(one), (std::vector<std::size_t>{0}));
  one.compile(1);  // the one that would take long
  EXPECT_EQ(taken(one), (std::vector<std::size_t>{1}));
  if (at_once_ == 1) return;
  not_wanted_ = 0;
  Batches two = batches(2);  // one of them is wanted
  EXPECT_EQ(two.wait(), 0);
  EXPECT_EQ(taken(two), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(two.way(1), (Way{&compiled_, {{{"n", 1}}}}));
}

TEST_F(BatchesTest, EveryCandidateComesOnceUntilThereAreNone) {
  not_wanted_ = 0;
  Compiled few(5);
  Batches all(problem(), gpu_, {&few},
              {30, 2, [](const Algorithm&, const Config&, double) { return false; }});
  std::vector<std::size_t> seen = taken(all);
  for (all.compile(kNoLimit); !all.empty(); all.compile(kNoLimit))
    for (const std::size_t index : taken(all)) seen.push_back(index);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(all.size(), 0u);
}

}  // namespace
}  // namespace convtune::batches_test
