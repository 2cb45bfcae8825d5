// See tuning_record.h.
#include "tune/tuning_record.h"

#include <fmt/format.h>

#include <ctime>

namespace convtune {
namespace {

const std::string kThen = ", ";  // between the versions of a record's software

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

Record record_of(const Comparison& row, const std::string& kernel_hash) {
  const ProviderResult& ours = row.providers.front();
  Record record;
  record.problem = row.problem;
  record.device = row.device.fingerprint;
  record.algorithm = row.plan.algorithm;
  record.config = row.plan.config;
  record.time_us = ours.time_us;
  record.mad_us = ours.mad_us;
  record.n = ours.n;
  record.roofline_fraction = ours.roofline_fraction;
  record.roofline_bound = row.roofline.bound;
  record.max_error = ours.max_error;
  for (const ProviderResult& peer : row.providers)
    if (peer.name == row.best_peer) {
      record.vendor = peer.name;
      record.vendor_us = peer.time_us;
    }
  record.decision = row.decision;
  record.kernel_hash = kernel_hash;
  record.software = "convtune " CONVTUNE_VERSION;
  if (!row.incumbent.empty()) record.software += kThen + row.incumbent;
  record.date = now_utc();
  return record;
}

TuningReport report_of(const Record& record, const ConvProblem& problem, const DeviceInfo& device) {
  TuningReport report;
  report.from_record = true;
  report.record = Database().path_of(problem, record.device).string();
  if (std::string older = renewal(record); !older.empty())
    report.warnings.push_back("the record is " + std::move(older));
  Comparison& row = report.comparison;
  if (const auto then = record.software.find(kThen); then != std::string::npos)
    row.incumbent = record.software.substr(then + kThen.size());
  row.problem = problem;
  row.device = device;
  row.roofline = {record.roofline_fraction * record.time_us, record.roofline_bound, 0, 0};
  row.plan = {record.algorithm, record.config, PlanSource::tuned, record.decision};
  row.decision = fmt::format("from the record of {}: {}", record.date, record.decision);
  row.providers.push_back({"convtune",
                           record.algorithm,
                           record.config,
                           record.time_us,
                           record.mad_us,
                           record.n,
                           record.roofline_fraction,
                           record.max_error,
                           {}});
  if (!record.vendor.empty()) {
    ProviderResult vendor;
    vendor.name = record.vendor;
    vendor.time_us = record.vendor_us;
    vendor.roofline_fraction = row.roofline.floor_us / record.vendor_us;
    row.providers.push_back(vendor);
    row.best_peer = record.vendor;
    row.speedup = record.vendor_us / record.time_us;
  }
  return report;
}

}  // namespace convtune
