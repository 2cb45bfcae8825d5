// The rules of the last stage: each by an example, and all of them over random originals, targets and
// metrics, where no list may ever break one.
#include "contract/micro_tuning.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "base/random_bits.h"
#include "refusal.h"

namespace convtune::micro_tuning_test {
namespace {

std::vector<std::string> configs_of(const StageList& list) {
  std::vector<std::string> all;
  for (const StageList::Entry& entry : list.configs)
    all.push_back(fmt::format("{}/{}", entry.config.warps, entry.config.stages));
  return all;
}

using Names = std::vector<std::string>;
const Target kAda = find_target("rtx4090");

OccupancyEvidence evidence(std::optional<double> achieved, std::optional<int> registers,
                           std::optional<std::int64_t> smem_bytes) {
  OccupancyEvidence result;
  result.achieved = achieved, result.registers = registers, result.smem_bytes = smem_bytes;
  return result;
}

// Nothing says what limits: what was achieved decides, and the answer says that this is inferred.
TEST(MicroTuning, FewActiveWarpsSuggestMore) {
  const StageList list = micro_tuning({4, 2}, evidence(0.3305, {}, {}), kAda);
  EXPECT_TRUE(list.warps_suggested);
  EXPECT_EQ(configs_of(list), (Names{"4/2", "4/3", "8/2", "8/3", "16/2"}));
  for (const char* needle : {"inferred", "33.05 %", "4 blocks of 4 warps", "allow 12"})
    EXPECT_NE(list.verdicts[0].find(needle), std::string::npos) << list.verdicts[0];
  ASSERT_EQ(list.verdicts.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(list.verdicts[i].rfind(fmt::format("R{}: ", i + 1), 0), 0u);
  EXPECT_FALSE(micro_tuning({4, 3}, evidence(0.6, {}, {}), kAda).warps_suggested);
  EXPECT_FALSE(micro_tuning({4, 3}, {}, kAda).warps_suggested);
  // Warps and slots are what limits already: 24 blocks of one warp are half of what an SM holds.
  EXPECT_FALSE(micro_tuning({1, 3}, evidence(0.49, {}, {}), kAda).warps_suggested);
  // 16 blocks on 128 multiprocessors: each has one, of 8 warps.
  OccupancyEvidence few = evidence(0.15, 32, 0);
  few.grid = 16;
  const StageList idle = micro_tuning({8, 3}, few, kAda);
  EXPECT_TRUE(idle.warps_suggested) << idle.verdicts[0];
  for (const char* needle : {"gets 1 block of 8 warps", "the grid has 16 blocks"})
    EXPECT_NE(idle.verdicts[0].find(needle), std::string::npos) << idle.verdicts[0];
}

TEST(MicroTuning, LoopsThatAreNotPipelinedLeaveTheStagesAlone) {
  const StageList list = micro_tuning({4, 2}, evidence(0.3305, {}, {}), kAda, {}, "changes nothing: no loop");
  EXPECT_EQ(configs_of(list), (Names{"4/2", "8/2", "16/2"}));
  EXPECT_NE(list.verdicts[1].find("3 changes nothing: no loop"), std::string::npos) << list.verdicts[1];
  EXPECT_TRUE(micro_tuning({4, 2}, evidence(0.8, {}, {}), kAda, {}, "changes nothing").configs.empty());
}

CompiledConfig made(int registers, std::int64_t spilled, const std::string& code) {
  CompiledConfig config;
  config.registers = registers, config.smem_bytes = 12288, config.spilled_bytes = spilled, config.code = code;
  return config;
}

// As Triton compiles the AlexNet problem's 32x64 tile for an RTX 4090: static loops, so the stages are equal.
TEST(MicroTuning, TheCompilerDecides) {
  const auto compiled = [](const StageConfig& config) {
    return config.warps == 2   ? made(255, 472, "2")
           : config.warps == 4 ? made(255, 0, "4")
           : config.warps == 8 ? made(128, 0, "8")
                               : made(90, 0, "16");
  };
  const StageList list = micro_tuning({4, 2}, evidence(0.3305, {}, {}), kAda, {}, compiled);
  EXPECT_EQ(configs_of(list), (Names{"4/2", "8/2", "16/2"}));
  for (const char* needle :
       {"255 registers", "2 blocks of 4 warps", "limited by registers", "spills 472 bytes"})
    EXPECT_NE(list.verdicts[0].find(needle), std::string::npos) << list.verdicts[0];
  EXPECT_NE(list.verdicts[1].find("3 is the same machine code as num_warps=4 num_stages=2"),
            std::string::npos)
      << list.verdicts[1];
  // Every config that it asks for is among those that were to be compiled.
  const auto all = stage_candidates({4, 2}, kAda, {});
  EXPECT_EQ(all.front(), (StageConfig{4, 2}));
  const auto asked = [&](const StageConfig& config) {
    EXPECT_NE(std::find(all.begin(), all.end(), config), all.end()) << to_string(config);
    return made(128, 0, to_string(config));
  };
  // 16 warps at once, however many there are in a block: no reason for another number of them.
  EXPECT_TRUE(micro_tuning({4, 2}, {}, kAda, {}, asked).configs.empty());
  EXPECT_TRUE(micro_tuning({4, 3}, {}, kAda, {}, [](const StageConfig&) {
                return made(20, 0, "one");
              }).configs.empty());
  const auto broken = [](const StageConfig& config) {
    CompiledConfig none;
    none.failure = "out of shared memory";
    return config.stages == 3 ? made(40, 0, "3") : none;
  };
  const StageList kept = micro_tuning({4, 3}, {}, kAda, {}, broken);
  EXPECT_TRUE(kept.configs.empty());
  EXPECT_NE(kept.verdicts[1].find("4 does not compile: out of shared memory"), std::string::npos)
      << kept.verdicts[1];
  EXPECT_NE(kept.verdicts[3].find("R4: keep: "), std::string::npos) << kept.verdicts[3];
}

TEST(MicroTuning, RegistersThatLimitSuggestMoreWarps) {
  const StageList list = micro_tuning({4, 3}, evidence(0.32, 128, 16'000), kAda);
  EXPECT_TRUE(list.warps_suggested) << list.verdicts[0];
  EXPECT_EQ(configs_of(list), (Names{"4/3", "4/4", "4/2", "8/3", "8/4", "8/2"}));
  // One that is known and limits is enough: the other could only limit more.
  EXPECT_TRUE(micro_tuning({4, 3}, evidence({}, 128, {}), kAda).warps_suggested);
  EXPECT_TRUE(micro_tuning({4, 3}, evidence({}, {}, 24 * 1024), kAda).warps_suggested);
  OccupancyEvidence said;
  said.by_registers = 4, said.by_smem = 8;
  EXPECT_TRUE(micro_tuning({4, 3}, said, kAda).warps_suggested);
}

TEST(MicroTuning, WarpsStayWhereTheyAreNotWhatIsMissing) {
  const auto keeps = [](std::int64_t warps, const OccupancyEvidence& known, const char* why) {
    const StageList list = micro_tuning({warps, 3}, known, kAda);
    EXPECT_FALSE(list.warps_suggested);
    EXPECT_NE(list.verdicts[0].find(why), std::string::npos) << list.verdicts[0];
    EXPECT_EQ(list.configs.size(), 3u);
  };
  keeps(4, evidence(0.6, 64, 8'000), "enough");           // 8 blocks of 12
  keeps(4, evidence(0.10, 128, 8'000), "not registers");  // of the 33 % that fit, a third came
  keeps(16, evidence(0.3, 128, 8'000), "32 is not a value");
  keeps(4, evidence({}, {}, {}), "are not known");
}

TEST(MicroTuning, StagesThatDoNotFitAreLeftOut) {
  // 60 KB for two stages: a third makes 90 KB, which fits; for three of 90 KB a fourth does not.
  EXPECT_EQ(configs_of(micro_tuning({4, 2}, evidence({}, {}, 60 << 10), kAda)),
            (Names{"4/2", "4/3", "8/2", "8/3"}));
  const StageList list = micro_tuning({4, 3}, evidence({}, {}, 90 << 10), kAda);
  EXPECT_EQ(configs_of(list), (Names{"4/3", "4/2", "8/3", "8/2"}));
  EXPECT_NE(list.verdicts[1].find("shared memory"), std::string::npos) << list.verdicts[1];
}

TEST(MicroTuning, TooFewNeighboursAreNoList) {
  const StageList list = micro_tuning({4, 4}, {}, kAda);
  EXPECT_TRUE(list.configs.empty());
  EXPECT_NE(list.none.find("num_warps=4 num_stages=4 stays"), std::string::npos) << list.none;
  EXPECT_NE(refusal([] { micro_tuning({64, 3}, {}, kAda); }), "accepted");
  EXPECT_NE(refusal([] { micro_tuning({0, 3}, {}, kAda); }), "accepted");
}

TEST(MicroTuning, ParametersHaveTheirOwnNamesAndValues) {
  StageParameters parameters;
  parameters.warps_name = "threads", parameters.stages_name = "unroll";
  parameters.warps = {1}, parameters.stages = {1, 2, 4, 5, 6};
  const StageList list = micro_tuning({1, 5}, {}, kAda, parameters);
  EXPECT_EQ(configs_of(list), (Names{"1/5", "1/6", "1/4"}));
  EXPECT_NE(list.verdicts[1].find("unroll 5 -> 6 and 4"), std::string::npos) << list.verdicts[1];
}

TEST(MicroTuning, WhatCannotBeHadDoesNotCount) {
  const auto list_of = [](const std::function<std::string(const StageConfig&)>& refusal) {
    return micro_tuning({4, 3}, {{8}, "num_warps may become 8"}, {}, refusal);
  };
  const StageList all = list_of([](const StageConfig&) { return std::string(); });
  EXPECT_EQ(configs_of(all), (Names{"4/3", "4/4", "4/2", "8/3", "8/4", "8/2"}));
  const StageList no_four =
      list_of([](const StageConfig& config) { return std::string(config.stages == 4 ? "is too many" : ""); });
  EXPECT_EQ(configs_of(no_four), (Names{"4/3", "4/2", "8/3", "8/2"}));
  EXPECT_EQ(no_four.verdicts[1], "R2: num_stages 3 -> 2; 4 is too many");
  const StageList no_eight =
      list_of([](const StageConfig& config) { return std::string(config.warps == 8 ? "is too many" : ""); });
  EXPECT_EQ(configs_of(no_eight), (Names{"4/3", "4/4", "4/2"}));
  EXPECT_EQ(no_eight.verdicts[0], "R1: num_warps may become 8; but it is too many");
  const StageList none = list_of([](const StageConfig&) { return std::string("is too many"); });
  EXPECT_TRUE(none.configs.empty());
  EXPECT_NE(none.none.find("1 nearby config is"), std::string::npos) << none.none;
}

TEST(MicroTuning, NoListEverBreaksARule) {
  const StageParameters allowed;
  std::size_t lists = 0, none = 0, with_more_warps = 0;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    std::uint64_t draws = 0;
    const auto below = [&](std::uint64_t limit) {
      return static_cast<std::int64_t>(random_bits(i, draws++) % limit);
    };
    const auto maybe = [&](auto value) {
      return below(3) == 0 ? std::optional<decltype(value)>() : std::optional(value);
    };
    Target target = known_targets()[static_cast<std::size_t>(below(known_targets().size()))];
    if (below(4) == 0) {  // one that no one sells
      target.warps_per_multiprocessor = static_cast<int>(16 + below(64));
      target.threads_per_multiprocessor = 32 * target.warps_per_multiprocessor;
      target.registers_per_multiprocessor = static_cast<int>(16384 << below(4));
      target.smem_per_multiprocessor = (16 + below(240)) << 10;
      target.smem_per_block = target.smem_per_multiprocessor - target.smem_reserved;
      target.blocks_per_multiprocessor = static_cast<int>(1 + below(32));
    }
    const StageConfig original{std::int64_t{1} << below(6), below(7)};
    OccupancyEvidence known;
    known.achieved = maybe(static_cast<double>(below(1001)) / 1000);
    known.registers = maybe(static_cast<int>(16 + below(240)));
    known.smem_bytes = maybe(below(110 << 10));
    if (below(4) == 0) known.by_registers = maybe(static_cast<int>(below(33)));
    if (below(4) == 0) known.by_smem = maybe(static_cast<int>(below(33)));
    if (below(4) == 0) known.grid = 1 + below(500);
    // Sometimes a compiler says all, with few different codes.
    const bool with_compiler = below(3) == 0;
    const auto compiled = [&](const StageConfig& config) {
      const auto draw = random_bits(i, 1000 + static_cast<std::uint64_t>(16 * config.warps + config.stages));
      CompiledConfig one = made(static_cast<int>(16 + draw % 240), draw % 5 == 0 ? 64 : 0,
                                std::string(1, static_cast<char>('a' + draw / 256 % 6)));
      if (draw / 4096 % 11 == 0 && config != original) one.failure = "no";
      return one;
    };
    const auto tuned = [&] {
      return with_compiler ? micro_tuning(original, known, target, {}, compiled)
                           : micro_tuning(original, known, target);
    };
    const StageList list = tuned();
    ASSERT_EQ(list.verdicts.size(), 6u);
    const StageList again = tuned();
    ASSERT_EQ(configs_of(again), configs_of(list)) << "not the same list twice, number " << i;
    ASSERT_EQ(again.verdicts, list.verdicts);
    if (list.configs.empty()) {
      EXPECT_FALSE(list.none.empty()) << i;
      ++none;
      continue;
    }
    ++lists;
    EXPECT_GE(list.configs.size(), 3u) << "R4, number " << i;
    EXPECT_LE(list.configs.size(), 6u) << "R4, number " << i;
    EXPECT_EQ(list.configs[0].config, original) << "R5, number " << i;
    std::set<std::pair<std::int64_t, std::int64_t>> different;
    bool more_warps = false;
    std::set<std::string> codes = {compiled(original).code};
    for (const StageList::Entry& entry : list.configs) {
      const StageConfig& config = entry.config;
      EXPECT_TRUE(different.emplace(config.warps, config.stages).second) << "twice the same, number " << i;
      EXPECT_FALSE(entry.reason.empty());
      EXPECT_LE(std::abs(config.stages - original.stages), 1) << "R2, number " << i;
      if (config == original) continue;
      const auto in = [](const std::vector<std::int64_t>& values, std::int64_t value) {
        return std::find(values.begin(), values.end(), value) != values.end();
      };
      EXPECT_TRUE(config.stages == original.stages || in(allowed.stages, config.stages))
          << "values, number " << i;
      if (config.warps != original.warps) {
        more_warps = true;
        EXPECT_TRUE(in(allowed.warps, config.warps)) << "values, number " << i;
        EXPECT_LE(config.warps * 32, target.threads_per_block) << "number " << i;
      }
      if (!with_compiler) continue;
      EXPECT_TRUE(compiled(config).failure.empty()) << i;
      EXPECT_LE(compiled(config).spilled_bytes, compiled(original).spilled_bytes) << "spills, number " << i;
      EXPECT_TRUE(codes.insert(compiled(config).code).second) << "the same code, number " << i;
    }
    if (more_warps) {
      ++with_more_warps;
      EXPECT_TRUE(list.warps_suggested) << "R1, number " << i;
      const KnownOccupancy occupied = known_occupancy(original.warps, known, target);
      if (!with_compiler && !known.grid) {
        EXPECT_TRUE(occupied.bound.share < 0.5 || known.achieved.value_or(1) < 0.5) << "R1, number " << i;
      }
    }
  }
  EXPECT_GT(lists, 2'000u);
  EXPECT_GT(none, 500u);
  EXPECT_GT(with_more_warps, 500u);
}

}  // namespace
}  // namespace convtune::micro_tuning_test
