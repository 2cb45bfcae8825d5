// The texts of tuning stages, sentence by sentence: what each is read as, and which are not taken into
// account. The sentences are those of public prompts for the stages of such a pipeline.
#include "triton/stage_text.h"

#include <gtest/gtest.h>

#include "convtune/error.h"
#include "refusal.h"
#include "triton/stage_rules.h"

namespace convtune::stage_text_test {
namespace {

using Values = std::vector<std::int64_t>;

// A stage that has both parameters, and the sentence.
RefineStage stage_with(const std::string& sentence) {
  return parse_stage("Params:\n- num_warps ∈ {2,4,8,16}\n- num_stages ∈ {2,3,4}\n\nRules:\n" + sentence +
                     "\n");
}

std::string rule_of(const std::string& sentence) {
  return stage_with(sentence).sentences.back().rule;
}

const std::string kFusion =
    "Focus: Fine-tuning fused kernel parameters.\n\n"
    "Params:\n- num_warps ∈ {4, 8}\n- num_stages ∈ {2, 3}\n\n"
    "IF register pressure LOW (regs < 96, no spill):\n"
    "  - Try num_warps=8 for compute-bound fusion\n"
    "  - num_stages=3 may help hide latency\n\n"
    "IF register pressure HIGH (regs > 128 or occupancy_limit_registers):\n"
    "  - Use num_warps=4 (fewer warps = more registers per warp)\n"
    "  - Keep num_stages=2 (higher stages need more registers)\n\n"
    "IF multi-input fusion (3+ distinct loads):\n"
    "  - num_stages=2 preferred (each stage buffers all inputs)\n"
    "  - num_warps=4 often better than 8\n\n"
    "Autotune:\n- Max 2-3 configs to reduce compilation time\n"
    "- Always include conservative baseline (num_warps=4, num_stages=2)\n"
    "- Test before/after: revert if gain < 2%\n";
const std::string kMemory =
    "Focus: Memory efficiency & latency hiding.\n\nMetrics:\n"
    "- smsp__warp_issue_stalled_memory_dependency_per_warp_active.pct (<20%)\n\nRules:\n"
    "- Increase num_stages only if memory stalls are high\n"
    "- Do not rewrite access patterns without metric evidence\n"
    "- Larger BLOCK_K improves reuse but increases register pressure\n\nAutotune:\n"
    "- If unsure, try num_stages ∈ {1,2,3} on kernel\n";

// Every sentence of a stage's text has a rule or an empty one, in order, and none is lost.
TEST(StageText, AllSentencesOfPublicTexts) {
  const std::string file = load_source(CONVTUNE_SOURCE_DIR "/tests/refine/stage_sentences.txt");
  std::string stage, text;
  std::vector<StageSentence> expected;
  std::size_t sentences = 0, stages = 0;
  const auto check = [&] {
    if (stage.empty()) return;
    const std::vector<StageSentence> found = parse_stage(text).sentences;
    ASSERT_EQ(found.size(), expected.size()) << stage;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].text, expected[i].text) << stage;
      EXPECT_EQ(found[i].rule, expected[i].rule) << found[i].text;
    }
    sentences += found.size(), ++stages;
  };
  for (const std::string_view line : lines_of(file)) {
    if (line.starts_with("== ")) {
      check();
      stage = line.substr(3), text.clear(), expected.clear();
      continue;
    }
    const std::size_t bar = line.find(" | ");
    const std::string_view rule = line.substr(0, std::min(bar, line.size()));
    const std::string sentence(bar == line.npos ? "" : line.substr(bar + 3));
    text += sentence + "\n";
    if (bar != line.npos && rule != "#") expected.push_back({sentence, rule == "-" ? "" : std::string(rule)});
  }
  check();
  EXPECT_EQ(stages, 4u);
  EXPECT_EQ(sentences, 165u);
}

TEST(StageText, EachSentenceIsReadAsItsRule) {
  const std::pair<const char*, const char*> sentences[] = {
      {"- Change num_warps only if occupancy suggests it", "R1: num_warps by occupancy alone"},
      {"- Adjust num_warps only if occupancy suggests it; otherwise keep the original.",
       "R1: num_warps by occupancy alone"},
      {"- Adjust num_warps only when clearly beneficial.", "R1: num_warps by occupancy alone"},
      {"- Change num_stages by ±1 only", "R2: num_stages by 1 at most"},
      {"- Change num_stages only by ±1 from current.", "R2: num_stages by 1 at most"},
      {"- Change num_stages by ±2 only", "R2: num_stages by 2 at most"},
      {"- Do NOT modify grid or BLOCK sizes", "R3: nothing but num_warps and num_stages changes"},
      {"- Do not modify BLOCK sizes or grid mapping here.",
       "R3: nothing but num_warps and num_stages changes"},
      {"- 3–6 nearby configs", "R4: 3 to 6 configs"},
      {"- Max 2-3 configs to reduce compilation time", "R4: 2 to 3 configs"},
      {"- 3-4 configs covering the conditions above", "R4: 3 to 4 configs"},
      {"- Max 3 configs", "R4: 1 to 3 configs"},
      {"Use 3–6 configs around the current settings; always include the original kernel config, and autotune "
       "must "
       "wrap the JIT kernel.",
       "R4: 3 to 6 configs; R5: the original is among them"},
      {"- Always include original config", "R5: the original is among them"},
      {"- Always include conservative baseline (num_warps=4, num_stages=2)",
       "num_warps=4 num_stages=2 is always among them"},
      {"- Revert if gain <1–2% or unstable", "R6: a gain of 2 % at least"},
      {"- Test before/after: revert if gain < 2%", "R6: a gain of 2 % at least"},
      {"- Do not exceed 8 warps", "num_warps is 8 at most"},
      {"- At most 4 warps", "num_warps is 4 at most"},
      {"- Increase num_stages only if memory stalls are high",
       "num_stages rises where memory stalls are above 20 %"},
      {"- Increase num_stages only if memory stalls > 35 %",
       "num_stages rises where memory stalls are above 35 %"},
      {"IF registers > 128: num_warps=4", "nothing else where the condition holds"},
      {"- Never redefine BLOCK_* in both kernel and launch",
       "R3: nothing but num_warps and num_stages changes"},
      {"- If unsure about correctness, do NOT change grid",
       "R3: nothing but num_warps and num_stages changes"},
      // Sentences that no rule takes are said to be left out.
      {"- Use eviction_policy only when cache behavior is clearly suboptimal.", ""},
      {"- Larger BLOCK_K improves reuse but increases register pressure", ""},
      {"- Prefer batch / head / expert parallelism before shrinking BLOCK", ""},
      {"IF the moon is full: num_warps=2", ""}};
  for (const auto& [sentence, rule] : sentences) EXPECT_EQ(rule_of(sentence), rule) << sentence;
}

TEST(StageText, ParametersAsSetsAndRanges) {
  const auto warps = [](const std::string& line) { return parse_stage(line).warps; };
  EXPECT_EQ(warps("- num_warps ∈ {2,4,8,16}"), (Values{2, 4, 8, 16}));
  EXPECT_EQ(warps("• `num_warps`: [2, 4] - more warps = higher occupancy"), (Values{2, 4}));
  EXPECT_EQ(warps("num_warps: 2-16"), (Values{2, 4, 8, 16}));
  EXPECT_EQ(warps("- num_warps: 4 to 8"), (Values{4, 8}));
  EXPECT_EQ(parse_stage("num_stages: 2..4").stages, (Values{2, 3, 4}));
  EXPECT_EQ(parse_stage("num_warps ∈ {2,4,8,16}\n- Do not exceed 8 warps").warps, (Values{2, 4, 8}));
  for (const char* wrong : {"num_warps ∈ {0}", "num_warps ∈ {65}", "num_stages ∈ {1.5}", "num_stages ∈ {}"})
    EXPECT_NE(refusal([&] { parse_stage(wrong); }).find("document: num_"), std::string::npos) << wrong;
  EXPECT_NE(refusal([] { parse_stage("Focus: speed."); }).find("neither num_warps nor num_stages"),
            std::string::npos);
}

TEST(StageText, TheFocusSaysWhichStageItIs) {
  EXPECT_EQ(
      parse_stage("Focus: Grid layout & parallelism.\n- Autotune either BLOCK_* OR (num_warps, num_stages)")
          .kind,
      RefineStage::Kind::grid);
  EXPECT_EQ(parse_stage("**Focus**: Tune BLOCK_M/N/K sizes for balanced data reuse.").kind,
            RefineStage::Kind::tiles);
  EXPECT_EQ(parse_stage(kFusion).kind, RefineStage::Kind::last);
  const RefineStage memory = parse_stage(kMemory);
  EXPECT_EQ(memory.kind, RefineStage::Kind::memory);
  EXPECT_EQ(memory.warps, Values{}) << "it does not name num_warps";
  EXPECT_EQ(memory.stages, (Values{1, 2, 3}));
  EXPECT_EQ(memory.raise_above_stalls, 0.2);
}

StageParameters applied(const std::string& text, const StageConfig& original, const StageFacts& facts) {
  return apply_stage(parse_stage(text), original, facts).parameters;
}

TEST(StageRules, ManyRegistersForbidAllButWhatTheTextNames) {
  for (const double registers : {129.0, 255.0}) {
    const StageParameters is = applied(kFusion, {8, 3}, {.registers = registers});
    EXPECT_EQ(is.warps, Values{4});
    EXPECT_EQ(is.stages, Values{2});
    ASSERT_TRUE(is.asked_warps);
    EXPECT_EQ(is.asked_warps->warps, Values{4});
  }
  EXPECT_EQ(applied(kFusion, {8, 3}, {.registers = 100, .limited_by_registers = true}).warps, Values{4});
  const StageParameters between = applied(kFusion, {8, 3}, {.registers = 100, .limited_by_registers = false});
  EXPECT_EQ(between.warps, (Values{4, 8}));
  EXPECT_FALSE(between.asked_warps) << "then occupancy decides";
  EXPECT_EQ(
      applied("- num_warps ∈ {2,4,8}\nIF registers > 128: num_warps=4", {8, 2}, {.registers = 200}).warps,
      Values{4});
}

TEST(StageRules, FewRegistersMakeMoreWarpsWorthATry) {
  StageFacts facts{.registers = 64, .compute_bound = true};
  const StageParameters is = applied(kFusion, {4, 2}, facts);
  ASSERT_TRUE(is.asked_warps);
  EXPECT_EQ(is.asked_warps->warps, Values{8});
  facts.compute_bound = false;
  EXPECT_FALSE(applied(kFusion, {4, 2}, facts).asked_warps);
  facts.compute_bound = true, facts.spills = true;
  EXPECT_FALSE(applied(kFusion, {4, 2}, facts).asked_warps) << "the text asks for no spill";
}

TEST(StageRules, ThreeLoadsKeepTwoStages) {
  EXPECT_EQ(applied(kFusion, {4, 3}, {.loads = 3}).stages, Values{2});
  EXPECT_EQ(applied(kFusion, {4, 3}, {.loads = 2}).stages, (Values{2, 3}));
}

TEST(StageRules, TheBaselineIsAlwaysInTheList) {
  for (const StageConfig& original : {StageConfig{8, 3}, StageConfig{16, 5}, StageConfig{4, 2}}) {
    const StageParameters is = applied(kFusion, original, {.registers = 200});
    const StageList list = micro_tuning(original, {}, find_target("rtx4090"), is);
    const auto holds = [&](const StageConfig& config) {
      return std::any_of(list.configs.begin(), list.configs.end(),
                         [&](const StageList::Entry& entry) { return entry.config == config; });
    };
    if (original == StageConfig{4, 2} && list.configs.empty()) continue;
    EXPECT_TRUE(holds({4, 2}) && holds(original)) << to_string(original);
    EXPECT_LE(list.configs.size(), 3u);
  }
}

TEST(StageRules, ParametersThatAStageDoesNotNameStay) {
  OccupancyEvidence few_warps;
  few_warps.achieved = 0.1, few_warps.registers = 32, few_warps.smem_bytes = 1024;
  const StageList list =
      micro_tuning({4, 2}, few_warps, find_target("rtx4090"), applied(kMemory, {4, 2}, {}));
  ASSERT_GE(list.configs.size(), 2u);
  for (const StageList::Entry& entry : list.configs) EXPECT_EQ(entry.config.warps, 4);
  EXPECT_NE(list.verdicts[0].find("the stage does not name it"), std::string::npos) << list.verdicts[0];
}

TEST(StageRules, StagesRiseOnlyWhereMemoryStallsAreHigh) {
  const auto most = [](std::optional<double> stalls) {
    const StageList list =
        micro_tuning({4, 2}, {}, find_target("rtx4090"), applied(kMemory, {4, 2}, {.stall_share = stalls}));
    std::int64_t most = 0;
    for (const StageList::Entry& entry : list.configs) most = std::max(most, entry.config.stages);
    return most;
  };
  EXPECT_EQ(most(0.03), 2);
  EXPECT_EQ(most(0.2), 2);
  EXPECT_EQ(most(0.21), 3);
  EXPECT_EQ(most(std::nullopt), 3) << "not measured: on trial, as the text says";
}

TEST(StageRules, ConditionsThatNothingTellsAreSaid) {
  const AppliedStage is = apply_stage(parse_stage(kFusion), {4, 2}, {});
  EXPECT_EQ(is.notes.size(), 6u);
  for (const std::string& note : is.notes) EXPECT_EQ(note.find("not taken into account"), 0u) << note;
}

}  // namespace
}  // namespace convtune::stage_text_test
