// Records that come with a version, taken over.
#include "plan/shipped.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/embedded.h"
#include "convtune/device.h"
#include "plan/algorithms.h"
#include "records_fixture.h"

namespace convtune::shipped_test {
namespace {

// A record of this CPU's, of a kernel of today.
Record record_of_this_cpu(const DeviceInfo& cpu) {
  Record record;
  record.problem = parse_problem("mb1ic3ih8oc4kh3 precision=fp32");
  record.device = cpu.fingerprint;
  const Algorithm& direct = find_algorithm(Device::Kind::cpu, "direct");
  record.algorithm = "direct", record.config = direct.candidates(record.problem, cpu).front();
  record.kernel_hash = direct.source_hash();
  record.time_us = 5, record.n = 10, record.roofline_fraction = 0.5, record.roofline_bound = "compute";
  record.decision = "no vendor", record.software = "convtune", record.date = "2026-11-23T00:00:00Z";
  return record;
}

std::vector<DeviceInfo> this_cpu() {
  std::vector<DeviceInfo> found;
  for (const DeviceInfo& one : devices())
    if (one.device.kind == Device::Kind::cpu) found.push_back(one);
  return found;
}

TEST_F(DatabaseTest, ShippedRecordsAreTakenWhereTheyHoldAndNoneIsThere) {
  const std::vector<DeviceInfo> here = this_cpu();
  ASSERT_EQ(here.size(), 1u);
  const Record good = record_of_this_cpu(here.front());
  Record elsewhere = good, outdated = good, impossible = good, own = good;
  elsewhere.device = "cpu|another";
  outdated.problem.n = 2, outdated.kernel_hash = "0";
  impossible.problem.n = 3, impossible.algorithm = "none_of_ours";
  own.problem.n = 4;
  Record slower = own;
  slower.time_us = 50;
  database_.store(slower);
  std::string pack;
  for (const Record& one : {good, elsewhere, outdated, impossible, own}) pack += to_json_line(one) + '\n';

  ShippedRecords result = import_shipped_records(database_, pack, here);
  EXPECT_EQ(result.imported, 1);
  EXPECT_EQ(result.kept, 1);
  EXPECT_EQ(result.elsewhere, 1);
  EXPECT_EQ(result.outdated, 2);
  EXPECT_EQ(database_.find(good.problem, good.device), good);
  EXPECT_EQ(database_.find(own.problem, own.device), slower);  // measured on this machine
  EXPECT_EQ(database_.list().size(), 2u);

  result = import_shipped_records(database_, pack, here);
  EXPECT_EQ(result.imported, 0);
  EXPECT_EQ(result.kept, 2);
}

TEST_F(DatabaseTest, WhatIsShippedCanBeReadAndIsProven) {
  std::int64_t lines = 0;
  for (const EmbeddedFile& file : embedded_records())
    for (std::size_t at = 0; at < file.text.size();) {
      const std::size_t end = file.text.find('\n', at);
      const Record record = parse_record(file.text.substr(at, end - at));
      EXPECT_TRUE(record.proven()) << to_string(record.problem);
      at = end + 1, ++lines;
    }
  EXPECT_GT(lines, 0);
  const ShippedRecords result = import_shipped_records(database_);
  EXPECT_EQ(result.imported + result.kept + result.elsewhere + result.outdated, lines);
}

}  // namespace
}  // namespace convtune::shipped_test
