// Targets: the built-in table as it must read, occupancy against counting by hand and against its own
// laws, and target files that come back or are refused with the field's name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/random_bits.h"
#include "model/target_of.h"
#include "mutations.h"
#include "refusal.h"

namespace convtune::target_test {
namespace {

TEST(Target, TheTableReadsAsPublished) {
  const Target a = find_target("rtx4090");
  EXPECT_EQ(a.architecture, "Ada Lovelace");
  EXPECT_EQ(to_string(a.capability), "8.9");
  EXPECT_EQ(a.multiprocessors, 128);
  EXPECT_EQ(a.bandwidth_gb_s, 1008);
  EXPECT_EQ(a.tf32_tflops, 82.6);
  EXPECT_EQ(a.bf16_tflops, 165.2);
  EXPECT_EQ(a.fp16_tflops, 165.2);
  EXPECT_EQ(a.registers_per_thread, 255);
  EXPECT_EQ(a.threads_per_block, 1024);
  EXPECT_EQ(a.threads_per_multiprocessor, 1536);
  EXPECT_EQ(a.warp_size, 32);
  EXPECT_EQ(a.warps_per_multiprocessor, 48);
  EXPECT_EQ(a.smem_per_multiprocessor, 100 * 1024);
  EXPECT_EQ(a.smem_per_block, 99 * 1024);
  EXPECT_EQ(a.l2_bytes, 72 << 20);
  for (const Target& target : known_targets()) EXPECT_EQ(find_target(target.name), target);
}

// Peak rates are clock times width: a wrong figure in the table is seen here.
TEST(Target, RatesFollowFromClocks) {
  for (const Target& target : known_targets()) {
    const CapabilityFacts facts = capability_facts(target.capability);
    const double tf32 = tf32_tflops_of(facts, target.product, target.multiprocessors, target.clock_mhz);
    EXPECT_NEAR(target.tf32_tflops / tf32, 1, 0.01) << target.name;
    EXPECT_NEAR(target.fp16_tflops / target.tf32_tflops, 2, 0.05) << target.name;
  }
  EXPECT_NEAR(find_target("rtx4090").fp32_tflops(), 82.6, 0.1);
  EXPECT_NEAR(find_target("a100").fp32_tflops(), 19.5, 0.1);
}

TEST(Target, TypicalOnesKeepTheRatesOfAMultiprocessor) {
  const Target h100 = find_target("h100"), half = typical_target({9, 0}, 66);
  EXPECT_EQ(half.multiprocessors, 66);
  EXPECT_DOUBLE_EQ(half.bandwidth_gb_s, h100.bandwidth_gb_s / 2);
  EXPECT_DOUBLE_EQ(half.tf32_tflops, h100.tf32_tflops / 2);
  EXPECT_DOUBLE_EQ(half.clock_mhz, h100.clock_mhz);
  EXPECT_EQ(typical_target({9, 0}, h100.multiprocessors), h100);
  EXPECT_EQ(typical_target({8, 6}, 84).product, find_target("rtx4090").product);
  EXPECT_EQ(typical_target({8, 7}, 16).product, find_target("a100").product);
  EXPECT_EQ(typical_target({12, 1}, 48).product, find_target("rtx5090").product);
  EXPECT_EQ(typical_target({10, 3}, 160).product, find_target("b200").product);
  for (const CapabilityFacts& facts : capability_table()) EXPECT_TRUE(known_target(facts.typical));
}

TEST(Target, UnknownNamesListTheKnown) {
  const std::string message = refusal([] { find_target("rtx4091"); });
  EXPECT_NE(message.find("rtx4091"), message.npos);
  EXPECT_NE(message.find("rtx4090"), message.npos);
}

// Counted by hand; found equal to NVIDIA's cuda_occupancy.h over 2 million random blocks, and on an H100 to
// the driver (tests/gpu/occupancy_gpu_test.cpp).
TEST(Occupancy, CountsAsTheHardwareDoes) {
  const Target a = find_target("rtx4090"), h = find_target("h100");
  const auto expect = [](const Target& target, BlockNeeds block, int blocks, int warps, Limiter limiter) {
    const Occupancy result = occupancy(target, block);
    const std::string what = fmt::format("{}: {} threads, {} registers, {} bytes", target.name, block.threads,
                                         block.registers, block.smem_bytes);
    EXPECT_EQ(result.blocks, blocks) << what;
    EXPECT_EQ(result.warps, warps) << what;
    EXPECT_EQ(result.limiter, limiter) << what << ", limited by " << to_string(result.limiter);
    EXPECT_DOUBLE_EQ(result.share, static_cast<double>(warps) / target.warps_per_multiprocessor) << what;
  };
  expect(a, {128, 32, 0}, 12, 48, Limiter::warps);
  expect(a, {128, 128, 0}, 4, 16, Limiter::registers);
  expect(a, {128, 121, 0}, 4, 16, Limiter::registers);  // 121 * 32 makes 3872, and 4096 are handed out
  expect(a, {128, 120, 0}, 4, 16, Limiter::registers);  // 3840: 4 warps a part, 17 in all would not do
  expect(a, {128, 96, 0}, 5, 20, Limiter::registers);
  expect(a, {128, 32, 24 * 1024}, 4, 16, Limiter::shared_memory);  // 25 KB with what is reserved
  expect(a, {32, 16, 0}, 24, 24, Limiter::block_slots);
  expect(h, {384, 168, 200 * 1024}, 1, 12, Limiter::registers);
  expect(a, {1025, 16, 0}, 0, 0, Limiter::warps);
  expect(a, {128, 256, 0}, 0, 0, Limiter::registers);
  expect(a, {1024, 65, 0}, 0, 0, Limiter::registers);
  expect(a, {288, 224, 0}, 0, 0, Limiter::registers);  // 9 warps are looked at as 12
  expect(a, {128, 32, 99 * 1024 + 1}, 0, 0, Limiter::shared_memory);
  expect(a, {128, 0, 0}, 12, 48, Limiter::warps);
  EXPECT_NE(refusal([&] { occupancy(a, {0, 32, 0}); }), "accepted");
  EXPECT_NE(refusal([&] { occupancy(a, {32, -1, 0}); }), "accepted");
}

TEST(Occupancy, NeverGrowsWithWhatABlockNeeds) {
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const auto random = [&](std::uint64_t salt, std::uint64_t below) {
      return static_cast<int>(random_bits(salt, i) % below);
    };
    const Target& target = known_targets()[static_cast<std::size_t>(random(1, known_targets().size()))];
    const BlockNeeds block{1 + random(2, 1100), random(3, 260), random(4, 240 * 1024)};
    const Occupancy result = occupancy(target, block);
    EXPECT_GE(result.blocks, 0);
    EXPECT_LE(result.share, 1);
    EXPECT_LE(result.blocks, target.blocks_per_multiprocessor);
    const auto more = [&](BlockNeeds larger) { return occupancy(target, larger).blocks; };
    EXPECT_LE(more({block.threads + 32, block.registers, block.smem_bytes}), result.blocks);
    EXPECT_LE(more({block.threads, block.registers + 1, block.smem_bytes}), result.blocks);
    EXPECT_LE(more({block.threads, block.registers, block.smem_bytes + 100}), result.blocks);
  }
}

TEST(TargetFile, EveryTargetComesBack) {
  for (const Target& target : known_targets())
    EXPECT_EQ(parse_target(to_json(target)), target) << target.name;
}

TEST(TargetFile, RefusesWithTheFieldsName) {
  const auto sample = nlohmann::ordered_json::parse(to_json(find_target("h100")));
  const auto refused = [&](const char* field, const nlohmann::ordered_json& value) {
    auto changed = sample;
    changed[field] = value;
    const std::string message = refusal([&] { parse_target(changed.dump()); });
    EXPECT_NE(message.find(fmt::format("'{}'", field)), message.npos) << message;
  };
  refused("name", "two words");
  refused("product", "\x1b[31m");
  refused("capability", "nine");
  refused("capability", "9");
  refused("capability", 9.0);
  refused("capability", "999.0");
  refused("multiprocessors", 0);
  refused("multiprocessors", 1.5);
  refused("warp_size", 64);
  refused("bandwidth_gb_s", -1);
  refused("l2_bytes", "50 MB");
  refused("smem_per_block", 1 << 20);
  refused("threads_per_block", 4096);
  refused("warps_per_multiprocessor", 65);
  refused("colour", 1);
  for (const auto& [field, value] : sample.items()) {
    auto without = sample;
    without.erase(field);
    EXPECT_NE(refusal([&] { parse_target(without.dump()); }).find(field), std::string::npos) << field;
  }
}

// Whatever the file holds: a target within its ranges, or Error{invalid_argument}.
TEST(TargetFile, NothingForeignGetsInOrCrashes) {
  std::vector<std::string> corpus;
  for (const Target& target : known_targets()) corpus.push_back(to_json(target));
  for_each_mutation(corpus, 20'000, [](const std::string& text) {
    Target target;
    try {
      target = parse_target(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
      return;
    }
    EXPECT_EQ(parse_target(to_json(target)), target);
    EXPECT_GE(occupancy(target, {128, 64, 4096}).blocks, 0);
  });
}

}  // namespace
}  // namespace convtune::target_test
