// The model of a CPU's time, against counting by hand, and its table of costs.
#include "cpu/model/cpu_work.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

#include "cpu/model/meeting_stores.h"
#include "cpu/model/store_work.h"

namespace convtune::cpu::cpu_work_test {
namespace {

TEST(CpuWork, TermsAddUpAndTheSlowestSideCounts) {
  const CpuCosts costs{.multiply_add = 0.5, .load = 2, .latency = 4, .store_past_caches = 3};
  CpuWork work;
  EXPECT_EQ(work.cycles(costs), 0);
  work.add(&CpuCosts::store_past_caches, 10);
  EXPECT_DOUBLE_EQ(work.cycles(costs), 30);
  work.add_steps(100, 24, 3);  // 12 cycles of multiply-adds, 6 of loads, 4 of latency
  EXPECT_DOUBLE_EQ(work.cycles(costs), 1230);
  work.add_steps(100, 2, 1);  // waits for its own sums
  EXPECT_DOUBLE_EQ(work.cycles(costs), 1630);
  work.add_slowest(1, {CpuTerm{&CpuCosts::load, 1}, CpuTerm{&CpuCosts::latency, 1}},
                   {CpuTerm{&CpuCosts::multiply_add, 8}});
  EXPECT_DOUBLE_EQ(work.cycles(costs), 1636);
  work.repeat(2);
  EXPECT_DOUBLE_EQ(work.cycles(costs), 3272);
}

TEST(CpuWork, TheBusiestThreadEndsLast) {
  CpuWork work;
  work.add(&CpuCosts::latency, 10);
  work.share({.planes = 3});
  DeviceInfo info;
  info.units = 2;
  EXPECT_DOUBLE_EQ(estimate_time(CpuTarget(info), work), 10 * cpu_costs().latency * 2 / 1.5);
}

TEST(CpuWork, StoresCostByWhereOutputsStay) {
  DeviceInfo info;
  info.l2_bytes = 1 << 20, info.l3_bytes = 32 << 20;
  const auto cycles = [&](const char* text, bool past_caches, double task_bytes) {
    CpuWork work;
    add_stores(work, parse_problem(text), info, past_caches, task_bytes, 1);
    return work.cycles(CpuCosts{});
  };
  const char *small = "mb1ic3ih32oc8kh3", *large = "mb64ic3ih224oc64kh3ph1";
  EXPECT_LT(cycles(small, false, 1 << 10), cycles(small, false, 1 << 22));
  EXPECT_GT(cycles(large, false, 1 << 10), cycles(large, true, 1 << 10));
}

TEST(CpuWork, LinesThatMeetCostMoreWhereTheProcessorWaits) {
  DeviceInfo info;
  info.l3_bytes = 32 << 20;
  const auto cycles = [&](const char* text, int stream) {
    CpuWork work;
    add_meeting_stores(work, parse_problem(text), info, stream, 1);
    return work.cycles(CpuCosts{});
  };
  const char *meet = "mb8ic3ih64oc320kh3ph1", *apart = "mb8ic3ih55oc96kh3ph1";
  EXPECT_EQ(cycles(apart, 1), 0);
  EXPECT_EQ(cycles(meet, 1) > 0, meeting_stores_wait());
  EXPECT_EQ(meeting_stores_wait(), meeting_stores_wait());  // measured once
  EXPECT_GT(cycles(meet, 2), 0);                            // by way of the ring
}

TEST(CpuCosts, EveryRowSaysWhatItIsAndWhereItIsFrom) {
  std::set<std::string_view> names;
  for (const CpuCostRow& row : cpu_cost_rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_GT(CpuCosts{}.*row.value, 0) << row.name;
    EXPECT_FALSE(row.machine.empty()) << row.name;
    EXPECT_FALSE(row.meaning.empty()) << row.name;
    EXPECT_TRUE(std::regex_match(std::string(row.date), std::regex("20[0-9]{2}-[01][0-9]-[0-3][0-9]")))
        << row.name;
  }
  EXPECT_EQ(names.size() * sizeof(double), sizeof(CpuCosts));
}

}  // namespace
}  // namespace convtune::cpu::cpu_work_test
