// Reports for machines, as the command and the faces for other languages write them: JSON (schema 1) and
// CSV. Everything but environment_of() is a pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convtune/device.h"
#include "convtune/tuner.h"

namespace convtune {

// How a search went: TuningReport without its comparison.
struct TuningSummary {
  bool from_record = false, interrupted = false;
  std::int64_t candidates = 0, trials = 0, resumed = 0, pruned = 0, wrong = 0;
  std::string record;
  std::vector<std::string> warnings;
  std::optional<MicroTuning> last_stage;
  bool proven = true;
  std::string not_recorded = {};
};

// One case of a report. `failure`: why there are no measurements.
struct ReportRow {
  Comparison comparison;
  std::optional<TuningSummary> tuning;
  std::string failure;
};
ReportRow report_row(TuningReport report);

// Where and when the rows were measured.
struct ReportEnvironment {
  DeviceInfo device;
  int threads = 1;
  std::vector<std::pair<std::string, std::string>> versions;  // "convtune" "0.1.0", ...
  std::string date;                                           // ISO 8601, UTC
};
// As it is now.
ReportEnvironment environment_of(const DeviceInfo& device);

// A speed-up within this share of 1 is a tie.
constexpr double kTieShare = 0.02;

// Over the rows with a peer. A row whose own answer failed is a loss and no part of the mean.
struct ReportSummary {
  double geomean_speedup = 0;  // 0 where no row has a peer
  int compared = 0;            // rows behind the mean
  int wins = 0, ties = 0, losses = 0;
};
ReportSummary summarize(const std::vector<ReportRow>& rows);

// convtune's own result; null where the row failed.
const ProviderResult* own_result(const ReportRow& row);

// One row of the report, on one line.
std::string to_json(const ReportRow& row);
std::string report_json(const std::vector<ReportRow>& rows, const ReportEnvironment& environment,
                        bool interrupted = false);
// One line a provider; quoted as RFC 4180 says.
std::string report_csv(const std::vector<ReportRow>& rows);

}  // namespace convtune
