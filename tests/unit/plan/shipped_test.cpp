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

  EXPECT_EQ(missing_shipped_records(database_, pack, here), std::vector<Record>{good});
  ShippedRecords result = import_shipped_records(database_, pack, here);
  EXPECT_EQ(result.imported, 1);
  EXPECT_EQ(result.kept, 1);
  EXPECT_EQ(result.elsewhere, 1);
  EXPECT_EQ(result.outdated, 2);
  EXPECT_EQ(database_.find(good.problem, good.device), good);
  EXPECT_EQ(database_.find(own.problem, own.device), slower);  // measured on this machine
  EXPECT_EQ(database_.list().size(), 2u);
  EXPECT_TRUE(missing_shipped_records(database_, pack, here).empty());

  result = import_shipped_records(database_, pack, here);
  EXPECT_EQ(result.imported, 0);
  EXPECT_EQ(result.kept, 2);
}

// Null for a vendor's library that is not here.
const Algorithm* algorithm_of(const Record& record) {
  const bool on_gpu = record.device.starts_with("cuda|");
  for (const Algorithm* one : algorithms(on_gpu ? Device::Kind::cuda : Device::Kind::cpu))
    if (one->name() == record.algorithm) return one;
  EXPECT_TRUE(record.algorithm == "cudnn" || record.algorithm == "onednn") << record.algorithm;
  return nullptr;
}

TEST_F(DatabaseTest, WhatIsShippedCanBeReadAndIsProvenOfTheKernelsOfToday) {
  std::int64_t lines = 0, vendors = 0;
  for (const EmbeddedFile& file : embedded_records())
    for (std::size_t at = 0; at < file.text.size();) {
      const std::size_t end = file.text.find('\n', at);
      const Record record = parse_record(file.text.substr(at, end - at));
      EXPECT_TRUE(record.proven()) << to_string(record.problem);
      const Algorithm* algorithm = algorithm_of(record);
      if (algorithm == nullptr || algorithm->vendor()) {
        ++vendors;
      } else {
        EXPECT_EQ(record.kernel_hash, algorithm->source_hash())
            << "records/" << file.name << ": " << record.algorithm << " has changed since "
            << to_string(record.problem) << " was tuned: `convtune tune` it again on " << record.device
            << " and put what `convtune db export` writes in its place, or delete its line";
      }
      at = end + 1, ++lines;
    }
  EXPECT_GT(lines, 0);
  const ShippedRecords result = import_shipped_records(database_);
  EXPECT_EQ(result.imported + result.kept + result.elsewhere + result.outdated, lines);
  EXPECT_TRUE(missing_shipped_records(database_).empty());
  EXPECT_LE(result.outdated, vendors);  // on their own device: configs that are refused today
}

}  // namespace
}  // namespace convtune::shipped_test
