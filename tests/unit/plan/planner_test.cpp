// Tests the plan of an unmeasured problem: the first guess of the algorithm that the model of time finds
// fastest, held against what was measured; and that the compiler makes the same bytes of a kernel again.
#include "plan/planner.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "convtune/cases.h"
#include "cuda/compile/compiler.h"
#include "cuda/launch/kernel_algorithm.h"
#include "model/target_of.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"
#include "records_fixture.h"

namespace convtune::planner_test {
namespace {

DeviceInfo gpu(ComputeCapability capability, int multiprocessors) {
  return device_of(typical_target(capability, multiprocessors));
}

ConvProblem tf32(const std::string& text) {
  ConvProblem problem = find_problem(text);
  problem.precision = Precision::tf32;
  return problem;
}

// `right` has for each built-in case the algorithms whose first guess took no more than 1.1 times as long on
// an H100 as the fastest one's (bench/results/nvidia-h100, docs/notebook/): what is chosen unmeasured is
// one of them.
TEST(Planner, ChoosesAmongFirstGuessesAsAnH100Would) {
  const std::set<std::string> few = {"direct_stem_sm80"}, stride_4 = {"direct_stem_sm90"};
  const std::set<std::string> many = {"direct_body_sm90"},
                              pointwise = {"implicit_gemm_sm80", "implicit_gemm_sm90"};
  const std::set<std::string> depthwise = {"direct_fma_sm80"};
  const std::map<std::string, std::set<std::string>> right = {
      {"alexnet_conv1", stride_4},
      {"alexnet_conv1_torchvision", stride_4},
      {"resnet_stem", few},
      {"vgg_conv1_1", {"direct_stem_sm80", "direct_fma_sm80"}},
      {"mobilenet_stem", few},
      {"yolo_stem", few},
      {"convnext_patchify",
       {"direct_stem_sm80", "direct_stem_sm90", "direct_body_sm90", "direct_patch_sm90",
        "implicit_gemm_sm80"}},
      {"vit_b16_patchify", {"direct_body_sm90", "direct_patch_sm90"}},
      {"vae_conv_in", {"direct_stem_sm80", "direct_fma_sm80", "implicit_gemm_sm80"}},
      {"sd_unet_conv_in", few},
      {"mnist_conv1", few},
      // A candidate of implicit_gemm_sm90, on an H200.
      {"resnet_1x1_64_256", pointwise},
      {"resnet_1x1_256_64", pointwise},
      {"resnet_3x3_s2_128", {"implicit_gemm_sm90"}},
      {"resnet_1x1_1024_256", {"implicit_gemm_sm90"}},
      {"resnet_1x1_s2_256_512", pointwise},
      {"resnet_3x3_256_batch1", {"implicit_gemm_sm90", "direct_body_sm90"}}};
  for (const char* const suite : {"stem", "body", "depthwise"})
    for (const ConvProblem& problem : load_suite(suite)) {
      const Plan plan = choose(tf32(problem.name), gpu({9, 0}, 132));
      const auto found = right.find(problem.name);
      const std::set<std::string>& expected = found != right.end()                ? found->second
                                              : std::string(suite) == "depthwise" ? depthwise
                                                                                  : many;
      EXPECT_TRUE(expected.contains(plan.algorithm))
          << problem.name << ": " << plan.algorithm << ": " << plan.why;
      EXPECT_EQ(plan.source, PlanSource::estimate);
      EXPECT_NE(plan.why.find("a model finds fastest"), std::string::npos) << plan.why;
    }
}

// Before 9.0 nothing was measured. Many channels are for the general kernel, which compiles ten times as
// fast; 64 of them are few enough for the other one.
TEST(Planner, ManyChannelsBeforeHopperAreForTheGeneralKernel) {
  for (const ComputeCapability capability : {ComputeCapability{8, 0}, {8, 6}, {8, 9}, {12, 0}})
    for (const ConvProblem& problem : load_suite("body")) {
      if (problem.c <= 64) continue;
      EXPECT_EQ(choose(tf32(problem.name), gpu(capability, 108)).algorithm, "implicit_gemm_sm80")
          << problem.name;
    }
}

// An algorithm that takes every problem, and counts how often it is asked.
class Willing : public Algorithm {
 public:
  Willing(std::string name, bool vendor, std::optional<double> estimated_us,
          Device::Kind kind = Device::Kind::cuda)
      : name_(std::move(name)), vendor_(vendor), estimated_us_(estimated_us), kind_(kind) {}
  std::string_view name() const override { return name_; }
  Device::Kind device_kind() const override { return kind_; }
  bool vendor() const override { return vendor_; }
  Support supports(const ConvProblem&, const DeviceInfo&) const override {
    ++asked;
    return Support::yes();
  }
  std::vector<Config> candidates(const ConvProblem&, const DeviceInfo&) const override {
    ++asked;
    return {Config{}};
  }
  std::optional<double> estimated_us(const ConvProblem&, const DeviceInfo&, const Config&) const override {
    return estimated_us_;
  }
  Support accepts(const ConvProblem&, const DeviceInfo&, const Config&) const override {
    return Support::yes();
  }
  std::unique_ptr<Executable> build(const ConvProblem&, const DeviceInfo&, const Config&) const override {
    return nullptr;
  }
  std::string source_hash() const override { return name_; }

  mutable int asked = 0;

 private:
  std::string name_;
  bool vendor_;
  std::optional<double> estimated_us_;
  Device::Kind kind_;
};

// A CPU's clock is not known, so its estimates are told as ratios.
TEST(Planner, TellsMicrosecondsOfGpusAlone) {
  const auto why = [](Device::Kind kind, const DeviceInfo& device) {
    const Willing slow("slow", false, 9, kind), fast("fast", false, 3, kind), even("even", false, 4.5, kind);
    return first_guess_among({&slow, &fast, &even}, tf32("resnet_stem"), device).why;
  };
  EXPECT_EQ(
      why(Device::Kind::cuda, gpu({9, 0}, 132)),
      "no record: the first guess that a model finds fastest, 3.0 us (slow 9.0, even 4.5); `convtune tune` "
      "finds better");
  EXPECT_EQ(
      why(Device::Kind::cpu, backend({}).info()),
      "no record: the first guess that a model finds fastest (slow about 3.0 times, even about 1.5 times "
      "its time); `convtune tune` finds better");
}

// To ask it takes longer than all the others.
TEST(Planner, AsksTheVendorOnlyWhereNothingElseComesFirst) {
  const Willing slow("slow", false, 9), fast("fast", false, 3), vendor("vendor", true, {});
  const ConvProblem problem = tf32("resnet_stem");
  const auto guess = [&](std::vector<const Algorithm*> table) {
    return first_guess_among(table, problem, gpu({9, 0}, 132)).algorithm;
  };
  EXPECT_EQ(guess({&slow, &vendor, &fast}), "fast");
  EXPECT_EQ(vendor.asked, 0);
  EXPECT_EQ(guess({&vendor, &slow, &fast}), "vendor");
  EXPECT_GT(vendor.asked, 0);
}

// Not compiled for a problem, and the last in the table: right and slow.
class General : public Willing {
 public:
  using Willing::Willing;
  bool compiles(const Config&) const override { return false; }
};

TEST(Planner, PrefersTheVendorToAGeneralKernel) {
  const Willing slow("slow", false, 9), vendor("vendor", true, {});
  const General general("general", false, 3), slower("slower", false, 20);
  const ConvProblem problem = tf32("resnet_stem");
  const auto guess = [&](std::vector<const Algorithm*> table, bool ours_only = false) {
    return first_guess_among(table, problem, gpu({9, 0}, 132), ours_only).algorithm;
  };
  EXPECT_EQ(guess({&slow, &vendor, &general}), "vendor");
  EXPECT_EQ(guess({&slow, &vendor, &general}, true), "general");
  EXPECT_EQ(guess({&slow, &general}), "general");
  EXPECT_EQ(guess({&slow, &vendor, &slower}), "slow");
  const Willing near("near", false, 3.1);
  EXPECT_EQ(guess({&near, &vendor, &general}), "general") << "so small that all are as fast";
}

class OursAlone : public DatabaseTest {
 protected:
  OursAlone() { ::setenv("CONVTUNE_DATA_DIR", database_.folder().c_str(), 1); }
  ~OursAlone() override { ::unsetenv("CONVTUNE_DATA_DIR"); }

  void store(const Algorithm& algorithm, const Config& config, const std::string& runner_up,
             std::int64_t batch = 2) {
    record_.problem = problem_, record_.problem.n = batch, record_.device = cpu_.fingerprint;
    record_.algorithm = algorithm.name(), record_.config = config,
    record_.kernel_hash = algorithm.source_hash();
    record_.runner_up = runner_up, record_.runner_up_hash = direct_.source_hash();
    database_.store(record_);
  }

  static std::string text(const Plan& plan) {
    return plan.algorithm + " " + to_string(plan.config) + ": " + std::string(to_string(plan.source));
  }
  std::string ours() const { return text(choose_ours(problem_, cpu_)); }
  std::string guess() const { return text(first_guess(problem_, cpu_, true)); }

  const ConvProblem problem_ = resolve(parse_problem("mb2ic3ih19oc8kh3ph1"), backend({}));
  const DeviceInfo& cpu_ = backend({}).info();
  const Algorithm& direct_ = find_algorithm(Device::Kind::cpu, "direct");
  const std::vector<Config> configs_ = direct_.candidates(problem_, cpu_);
};

TEST_F(OursAlone, AreWhatARecordMeasuredBesideTheVendor) {
  EXPECT_EQ(ours(), guess());
  store(direct_, configs_.at(1), "");
  EXPECT_EQ(ours(), text(choose(problem_, cpu_)));
  const Algorithm* vendor = nullptr;
  for (const Algorithm* one : algorithms(Device::Kind::cpu))
    if (one->vendor()) vendor = one;
  if (vendor == nullptr) GTEST_SKIP() << "no vendor's library is here";
  const Config theirs = vendor->candidates(problem_, cpu_).front();
  store(*vendor, theirs, "direct " + to_string(configs_.at(2)));
  EXPECT_EQ(choose(problem_, cpu_).algorithm, vendor->name());
  EXPECT_EQ(ours(), "direct " + to_string(configs_.at(2)) + ": tuned");
  EXPECT_EQ(text(plan(problem_, {}, std::string(kOurs)).plan()), ours());
  const std::string vendors = std::string(vendor->name()) + " " + to_string(theirs);
  for (const std::string& gone :
       {std::string(), std::string("direct"), std::string("direct vectors="),
        std::string("direct vectors=9999"), std::string("gone vectors=1"), vendors}) {
    store(*vendor, theirs, gone);
    EXPECT_EQ(ours(), guess()) << gone;
  }
}

// A runner-up was measured with the kernel of its time: another source, or one that nobody knows, is no
// answer.
TEST_F(OursAlone, AreNotWhatAnotherKernelMeasured) {
  const Algorithm& winner = find_algorithm(Device::Kind::cpu, "reference");
  const Config config = winner.candidates(problem_, cpu_).front();
  store(winner, config, "direct " + to_string(configs_.at(2)));
  EXPECT_EQ(ours(), "direct " + to_string(configs_.at(2)) + ": tuned");
  for (const char* const hash : {"0123abcd", ""}) {
    record_.runner_up_hash = hash;
    database_.store(record_);
    EXPECT_EQ(ours(), guess()) << hash;
    EXPECT_EQ(choose(problem_, cpu_).algorithm, "reference");
  }
}

// As for all algorithms, what was measured at another batch size is better than a guess.
TEST_F(OursAlone, AreTheNearestRecordsToo) {
  store(direct_, configs_.at(1), "", 4);
  EXPECT_EQ(ours(), "direct " + to_string(configs_.at(1)) + ": nearest");
  EXPECT_EQ(ours(), text(choose(problem_, cpu_)));
  const Algorithm& winner = find_algorithm(Device::Kind::cpu, "reference");
  store(winner, winner.candidates(problem_, cpu_).front(), "direct " + to_string(configs_.at(2)), 3);
  EXPECT_EQ(ours(), "direct " + to_string(configs_.at(2)) + ": nearest");
  EXPECT_EQ(choose(problem_, cpu_).algorithm, "reference");
  record_.runner_up_hash = "0123abcd";
  database_.store(record_);
  EXPECT_EQ(ours(), "direct " + to_string(configs_.at(1)) + ": nearest");
}

TEST_F(OursAlone, AreRecordedForThisBatch) {
  const auto planned = [&](std::int64_t batch) {
    ConvProblem other = problem_;
    other.n = batch;
    return text(plan(other, {}, std::string(kRecordedBatch)).plan());
  };
  store(direct_, configs_.at(1), "", 4);
  EXPECT_EQ(planned(4), "direct " + to_string(configs_.at(1)) + ": tuned");
  EXPECT_THROW(planned(problem_.n), Error);
}

// On a CPU nothing is compiled, and a config is every batch's.
TEST_F(OursAlone, AreChosenForAnyBatchAsEver) {
  EXPECT_EQ(text(plan(problem_, {}, std::string(kAnyBatch)).plan()), text(plan(problem_).plan()));
}

TEST_F(OursAlone, AreRecordedWhereARecordProvesThem) {
  const std::string recorded(kRecorded);
  const auto refusal = [&] {
    try {
      return text(plan(problem_, {}, recorded).plan());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      return std::string(error.what());
    }
  };
  EXPECT_NE(refusal().find("no record on cpu proves"), std::string::npos) << refusal();
  store(direct_, configs_.at(1), "", 4);
  EXPECT_EQ(refusal(), "direct " + to_string(configs_.at(1)) + ": nearest");
  store(direct_, configs_.at(2), "");
  EXPECT_EQ(refusal(), "direct " + to_string(configs_.at(2)) + ": tuned");
  record_.undecided = 1;
  database_.store(record_);
  EXPECT_NE(refusal().find("no record on cpu proves"), std::string::npos) << refusal();
  record_.undecided = 0;
  const Algorithm& winner = find_algorithm(Device::Kind::cpu, "reference");
  store(winner, winner.candidates(problem_, cpu_).front(), "");
  EXPECT_NE(refusal().find("keeps reference, which is not one of convtune's own"), std::string::npos)
      << refusal();
}

// Same bytes from one compilation to the next, so that a cubin can be signed, compared and packed.
TEST(Kernels, AreTheSameBytesAgain) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << "NVRTC: " << cuda::describe_nvrtc();
  const DeviceInfo device = gpu({9, 0}, 132);
  std::map<std::string_view, int> compiled;
  for (const char* const text :
       {"mb2ic3ih35oc32kh7sh4ph2", "mb1ic16ih9oc16kh3ph1", "g4mb1ic4ih8oc4kh3ph1", "mb1ic3ih32oc32kh8sh8"})
    for (const Algorithm* const algorithm : algorithms(Device::Kind::cuda)) {
      const ConvProblem problem = tf32(text);
      if (algorithm->vendor() || !algorithm->supports(problem, device) || compiled[algorithm->name()]++ > 0)
        continue;
      const Config config = algorithm->candidates(problem, device).front();
      const cuda::LaunchPlan plan = cuda::kernel_algorithm(*algorithm)->plan(problem, device, config);
      const cuda::CompileJob job = cuda::compile_job(plan, plan.configs.front());
      EXPECT_TRUE(cuda::compile(job, false).cubin == cuda::compile(job, false).cubin) << job.kernels[0];
    }
  EXPECT_GE(compiled.size(), 5u);
}

}  // namespace
}  // namespace convtune::planner_test
