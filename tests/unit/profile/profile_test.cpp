// Tests the reading of ncu's output (recorded on an H100 in tests/refine/ncu_*.csv), and profile() over a
// program that stands in for ncu.
#include "convtune/profile.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "convtune/refine.h"
#include "expected_text.h"
#include "mutations.h"
#include "profile/known_metrics.h"
#include "profile/ncu.h"
#include "refusal.h"

namespace convtune::profile_test {
namespace {

const std::string kFolder = CONVTUNE_SOURCE_DIR "/tests/refine/";

std::string read(const std::string& name) {
  return load_source(kFolder + name);
}

const std::string kHead =
    "\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\",\"launch__grid_size\"\n\"\",\"\",\"ns\",\"\"\n";

TEST(Ncu, TablesByHand) {
  const NcuAnswer answer = parse_ncu(
      "==PROF== Connected\nlaunched x\n" + kHead +
      "\"0\",\"a\"\"b, c\",\"1,234.5\",\"48,400\"\r\n==WARNING== odd\n\"1\",\"d\",\"nan\",\"n/a\"\n");
  ASSERT_EQ(answer.launches.size(), 2u);
  EXPECT_EQ(answer.launches[0].kernel, "a\"b, c");
  EXPECT_EQ(answer.launches[0].find("gpu__time_duration.sum"), 1234.5);
  EXPECT_EQ(answer.launches[0].find("launch__grid_size"), 48400);
  EXPECT_TRUE(answer.launches[1].values.empty());
  EXPECT_EQ(answer.others, std::vector<std::string>{"launched x"});
  EXPECT_EQ(answer.messages, std::vector<std::string>{"WARNING: odd"});
  EXPECT_FALSE(answer.forbidden);
  EXPECT_TRUE(parse_ncu("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission").forbidden);
  EXPECT_TRUE(parse_ncu("").launches.empty());
  const NcuAnswer slow =
      parse_ncu("\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\"\n\"\",\"\",\"us\"\n\"0\",\"k\",\"2\"\n");
  EXPECT_EQ(slow.launches[0].find("gpu__time_duration.sum"), 2000);
}

TEST(Ncu, RefusesWhatDoesNotBelong) {
  const std::pair<std::string, const char*> cases[] = {
      {"\"0\",\"k\",\"1\"\n", "3 fields"},
      {"\"0\",\"k\",\"1,2,3\",\"1\"\n", "gpu__time_duration.sum of kernel 'k' is '1,2,3'"},
      {"\"0\",\"k\",\"1\",\"-\"\n", "launch__grid_size of kernel 'k'"},
      {"\"0\",\"k\",\"1\",\"1\n", "no line of its fields"},
      {"\"0\",\"k\",\"1\",\"1\"x\n", "no line of its fields"},
      {"\"0\",\"\",\"1\",\"1\"\n", "no kernel's name"},
  };
  for (const auto& [line, why] : cases)
    expect_in(refusal([&, text = kHead + line] { parse_ncu(text); }), {"ncu's table", why});
  expect_in(refusal([] { parse_ncu("\"ID\",\"Metric Name\"\n"); }), {"Kernel Name"});
  expect_in(refusal([] { parse_ncu("\"ID\",\"Kernel Name\"\n\"0\",\"k\"\n"); }), {"units"});
  expect_in(
      refusal([] {
        parse_ncu(
            "\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\"\n\"\",\"\",\"week\"\n\"0\",\"k\",\"2\"\n");
      }),
      {"'week'"});
}

KernelMetrics launch(const std::string& kernel, double time) {
  return {kernel, {{"gpu__time_duration.sum", time}}};
}

TEST(Ncu, PicksThePlansKernel) {
  std::string note;
  const std::vector<KernelMetrics> own = {launch("pack_stem", 900), launch("stem", 30), launch("stem", 10),
                                          launch("stem", 20)};
  EXPECT_EQ(launch_of("stem", own, note).find("gpu__time_duration.sum"), 20);
  EXPECT_EQ(note, "");
  EXPECT_EQ(launch_of("other", own, note).kernel, "stem");
  expect_in(note, {"other", "4 launches", "'stem'"});
  expect_in(refusal([&] { launch_of("stem", {launch("pack_stem", 1)}, note); }), {"no kernel of stem"});
}

TEST(Ncu, NothingForeignGetsInOrCrashes) {
  for_each_mutation({kHead + "\"0\",\"k\",\"1,234.5\",\"48,400\"\n==WARNING== odd\n", read("ncu_cudnn.csv")},
                    5'000, [&](const std::string& text) {
                      try {
                        const NcuAnswer answer = parse_ncu(text);
                        std::string note;
                        if (!answer.launches.empty())
                          to_json(std::vector<KernelMetrics>{launch_of("cudnn", answer.launches, note)});
                      } catch (const Error& error) {
                        EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
                      }
                    });
}

TEST(Metrics, WhatIsWrittenIsWhatIsRead) {
  const std::vector<KernelMetrics> all = {
      {"conv<\"a\", 3>",
       {{"launch__grid_size", 48400}, {"x.pct", 64.79}, {"tiny", 1e-300}, {"third", 1.0 / 3}}},
      {"empty", {}}};
  const std::string text = to_json(all);
  expect_in(text, {"\"launch__grid_size\": 48400,\n", "\"x.pct\": 64.79,\n", "\"empty\": {}"});
  const auto again = parse_metrics(text);
  ASSERT_EQ(again.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again[i].kernel, all[i].kernel);
    EXPECT_EQ(again[i].values, all[i].values);
  }
  const std::string sample = read("metrics.json");
  EXPECT_EQ(to_json(parse_metrics(sample)), sample);
  expect_in(refusal([] { to_json(std::vector<KernelMetrics>{{"bell\a", {}}}); }), {"control character"});
}

// A folder with an `ncu` that prints `text`, as the only one on PATH.
class FakeNcu {
 public:
  explicit FakeNcu(const std::string& script) : path_(std::getenv("PATH")) {
    char name[] = "/tmp/convtune_ncu_XXXXXX";
    folder_ = ::mkdtemp(name);
    std::ofstream(folder_ / "ncu") << "#!/bin/sh\n" << script << "\n";
    ::chmod((folder_ / "ncu").c_str(), 0755);
    ::setenv("PATH", (folder_.string() + ":" + path_).c_str(), 1);
  }
  FakeNcu(const FakeNcu&) = delete;
  FakeNcu& operator=(const FakeNcu&) = delete;
  ~FakeNcu() {
    ::setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }

 private:
  std::string path_;
  std::filesystem::path folder_;
};

TEST(Profile, ReadsWhatNcuPrints) {
  const FakeNcu ncu("echo launched direct_stem_sm90 rows=1; cat " + kFolder + "ncu_direct_stem_sm90.csv");
  const Profile found = profile({"convtune", "x"});
  EXPECT_EQ(found.plan, "direct_stem_sm90 rows=1");
  EXPECT_EQ(found.metrics.kernel, "direct_stem_sm90");
  const KnownMetrics known = known_metrics(found.metrics);
  EXPECT_TRUE(known.sm_share && known.memory_share && known.achieved_occupancy && known.l2_hit_share);
  EXPECT_TRUE(known.grid && known.block && known.registers && known.smem_bytes && known.time_us);
}

TEST(Profile, SaysWhatToDo) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'; exit 1",
       {"NVreg_RestrictProfilingToAdminUsers=0", "CAP_SYS_ADMIN"}},
      {"echo ERR_NVGPUCTRPERM >&2; exit 1", {"NVreg_RestrictProfilingToAdminUsers=0"}},
      {"echo '==ERROR== Failed to prepare'; exit 9", {"nothing was profiled: ncu: Failed to prepare"}},
      {"echo 'convtune: error: no such algorithm' >&2; echo '==ERROR== the application failed'; exit 2",
       {"nothing was profiled: no such algorithm"}},
      {"exit 9", {"ncu ended with exit code 9"}},
      {"kill -11 $$", {"signal 11"}},
      {"echo launched x", {"ncu ended with exit code 0"}},
      {"sleep 1000", {"ncu took more than 0.3 s"}},
      {"while sleep 0.1; do echo alive; done", {"ncu took more than 0.3 s"}},
  };
  for (const auto& [script, needles] : cases) {
    const FakeNcu ncu(script);
    ProfileOptions options;
    if (std::string_view(script).find("sleep") != std::string_view::npos) options.seconds = 0.3;
    const std::string why = refusal([&] { profile({"convtune"}, options); }, ErrorKind::unsupported);
    for (const char* needle : needles) expect_in(why, {needle});
  }
  const FakeNcu ncu("printf '\"ID\",\"Kernel Name\"\\n\"\",\"\",\"%%\"\\n'");
  expect_in(refusal([] { profile({"convtune"}); }), {"3 fields"});
}

TEST(Profile, IsCancelled) {
  const FakeNcu ncu("sleep 1000");
  const std::atomic<bool> cancel = true;
  ProfileOptions options;
  options.cancel = &cancel;
  EXPECT_TRUE(profile({"convtune"}, options).interrupted);
}

}  // namespace
}  // namespace convtune::profile_test
