// Documents that ask for the last stage: what is read of them, what is missed by name.
#include <gtest/gtest.h>

#include "convtune/refine.h"
#include "expected_text.h"
#include "mutations.h"
#include "refusal.h"

namespace convtune::refine_document_test {
namespace {

const std::string kDocument = CONVTUNE_SOURCE_DIR "/tests/refine/document.txt";

TEST(Document, TheSampleAsItStands) {
  const RefineDocument document = load_document(kDocument);
  EXPECT_EQ(document.target, find_target("rtx4090"));
  EXPECT_EQ(document.source, load_source(CONVTUNE_SOURCE_DIR "/tests/refine/conv.py"));
  EXPECT_TRUE(document.in_order);
  EXPECT_EQ(document.stage.stages, (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_EQ(document.stage.most, 6);
  EXPECT_DOUBLE_EQ(document.stage.min_gain, 0.02);
  ASSERT_EQ(document.metrics.size(), 1u);
  EXPECT_EQ(document.metrics[0].values.size(), 5u);
}

TEST(Document, ItsNumbersCountAndItsGapsAreNamed) {
  const std::string text = load_source(kDocument);
  RefineDocument document =
      parse_document(with(with(with(with(text, "Number of SMs: 128", "Number of SMs: 64"),
                                    "num_warps ∈ {2,4,8,16}", "num_warps ∈ {1, 2}"),
                               "by ±1", "by ±2"),
                          "3–6", "2-4"));
  EXPECT_EQ(document.target.multiprocessors, 64);
  EXPECT_EQ(document.target.smem_per_block, 99 << 10);
  EXPECT_EQ(document.stage.warps, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(document.stage.most_steps, 2);
  EXPECT_EQ(document.stage.fewest, 2);
  const auto refused_document = [&](const std::string& from, const std::string& to) {
    return refusal([&] { parse_document(with(text, from, to)); });
  };
  expect_in(refused_document("# Target GPU", "# GPU"), {"Target GPU"});
  expect_in(refusal([&] {
              parse_document(
                  with(with(text, "[OPTIMIZATION STAGE]", "[OTHER]"), "Current Optimization Stage", "Other"));
            }),
            {"OPTIMIZATION STAGE"});
  expect_in(refused_document("[CURRENT CODE]", "[OTHER]"), {"CURRENT CODE"});
  expect_in(refused_document("Number of SMs: 128", "Number of SMs: many"), {"number of sms", "many"});
  expect_in(refused_document("\"launch__grid_size\": 48400", "\"launch__grid_size\": \"x\""),
            {"launch__grid_size", "must be a number"});
  expect_in(refusal([&] {
              parse_document(
                  with(with(text, "- num_warps ∈ {2,4,8,16}", "- BLOCK_M"), "- num_stages ∈ {2,3,4}", ""));
            }),
            {"neither num_warps nor num_stages"});
}

TEST(Document, NothingForeignCrashes) {
  for_each_mutation({load_source(kDocument)}, 1'000, [&](const std::string& text) {
    try {
      EXPECT_FALSE(parse_document(text).source.empty());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    }
  });
}

}  // namespace
}  // namespace convtune::refine_document_test
