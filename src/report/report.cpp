// JSON and CSV of comparisons: the one writer of them.
#include "convtune/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

namespace convtune {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

Json provider_json(const ProviderResult& provider) {
  Json json = {{"name", provider.name},
               {"algorithm", provider.algorithm},
               {"config", to_string(provider.config)},
               {"time_us", provider.time_us},
               {"mad_us", provider.mad_us},
               {"n", provider.n},
               {"roofline_fraction", provider.roofline_fraction},
               {"max_error", provider.max_error}};
  if (!provider.failure.empty()) json["failure"] = provider.failure;
  return json;
}

// The last stage: null where there was none.
Json last_stage_json(const std::optional<MicroTuning>& stage) {
  if (!stage) return nullptr;
  Json tried = Json::array();
  for (const MicroTuning::Tried& one : stage->tried) {
    tried.push_back({{"config", to_string(one.config)}, {"reason", one.reason}, {"time_us", one.time_us}});
    if (!one.failure.empty()) tried.back()["failure"] = one.failure;
  }
  return {{"original", stage->original},
          {"kept", stage->kept},
          {"changed", stage->changed},
          {"tried", tried},
          {"verdicts", stage->verdicts}};
}

Json tuning_json(const TuningSummary& tuning) {
  Json json = {{"from_record", tuning.from_record},
               {"interrupted", tuning.interrupted},
               {"proven", tuning.proven},
               {"candidates", tuning.candidates},
               {"trials", tuning.trials},
               {"resumed", tuning.resumed},
               {"pruned", tuning.pruned},
               {"wrong", tuning.wrong},
               {"record", tuning.record.empty() ? Json(nullptr) : Json(tuning.record)},
               {"warnings", tuning.warnings},
               {"last_stage", last_stage_json(tuning.last_stage)}};
  if (!tuning.not_recorded.empty()) json["not_recorded"] = tuning.not_recorded;
  return json;
}

Json row_json(const ReportRow& row) {
  const Comparison& comparison = row.comparison;
  Json json = {
      {"case", comparison.problem.name},
      {"problem", to_string(comparison.problem)},
      {"device", comparison.device.fingerprint},
      {"roofline", {{"floor_us", comparison.roofline.floor_us}, {"bound", comparison.roofline.bound}}},
      {"providers", Json::array()},
      {"best_peer", nullptr},
      {"speedup", nullptr}};
  for (const ProviderResult& provider : comparison.providers)
    json["providers"].push_back(provider_json(provider));
  if (!comparison.best_peer.empty()) json["best_peer"] = comparison.best_peer;
  if (comparison.speedup > 0) json["speedup"] = comparison.speedup;
  if (!comparison.decision.empty()) json["decision"] = comparison.decision;
  if (row.tuning) json["tuning"] = tuning_json(*row.tuning);
  if (!row.failure.empty()) json["failure"] = row.failure;
  return json;
}

Json environment_json(const ReportEnvironment& environment) {
  Json versions = Json::object();
  for (const auto& [what, version] : environment.versions) versions[what] = version;
  return {{"device", environment.device.name},
          {"fingerprint", environment.device.fingerprint},
          {"threads", environment.threads},
          {"versions", versions},
          {"date", environment.date}};
}

// A name may hold any bytes: what is no UTF-8 is replaced rather than thrown at.
std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += csv_field(field) + ',';
  line.back() = '\n';
  return line;
}

std::string number(double value) {
  return fmt::format("{:.9g}", value);
}

}  // namespace

ReportEnvironment environment_of(const DeviceInfo& device) {
  ReportEnvironment environment{device, device_info(Device{}).units, {{"convtune", CONVTUNE_VERSION}}, {}};
  const bool gpu = device.device.kind == Device::Kind::cuda;
  const std::vector<std::string> kinds =
      gpu ? std::vector<std::string>{"NVIDIA driver", "NVRTC", "cuDNN"} : std::vector<std::string>{"oneDNN"};
  for (const Probe& probe : probe_environment())
    if (probe.found && std::find(std::begin(kinds), std::end(kinds), probe.what) != std::end(kinds))
      environment.versions.emplace_back(probe.what, probe.detail.substr(0, probe.detail.find(';')));
  const auto now = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  environment.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
  return environment;
}

ReportRow report_row(TuningReport report) {
  TuningSummary tuning{report.from_record,
                       report.interrupted,
                       report.candidates,
                       report.trials,
                       report.resumed,
                       report.pruned,
                       report.wrong,
                       std::move(report.record),
                       std::move(report.warnings),
                       std::move(report.last_stage),
                       report.proven,
                       std::move(report.not_recorded)};
  return {std::move(report.comparison), std::move(tuning), {}};
}

const ProviderResult* own_result(const ReportRow& row) {
  const auto& providers = row.comparison.providers;
  if (!row.failure.empty() || providers.empty() || !providers.front().failure.empty()) return nullptr;
  return &providers.front();
}

ReportSummary summarize(const std::vector<ReportRow>& rows) {
  ReportSummary summary;
  double log_sum = 0;
  for (const ReportRow& row : rows) {
    const double speedup = row.comparison.speedup;
    if (!own_result(row)) {
      ++summary.losses;
    } else if (speedup > 0) {
      log_sum += std::log(speedup);
      ++summary.compared;
      ++(speedup > 1 + kTieShare ? summary.wins : speedup < 1 - kTieShare ? summary.losses : summary.ties);
    }
  }
  if (summary.compared > 0) summary.geomean_speedup = std::exp(log_sum / summary.compared);
  return summary;
}

std::string to_json(const ReportRow& row) {
  return text_of(row_json(row), -1);
}

std::string report_json(const std::vector<ReportRow>& rows, const ReportEnvironment& environment,
                        bool interrupted) {
  const ReportSummary summary = summarize(rows);
  Json json = {{"schema", kSchema}, {"environment", environment_json(environment)}, {"rows", Json::array()}};
  for (const ReportRow& row : rows) json["rows"].push_back(row_json(row));
  json["geomean_speedup"] = summary.compared > 0 ? Json(summary.geomean_speedup) : Json(nullptr);
  json["wins"] = summary.wins;
  json["ties"] = summary.ties;
  json["losses"] = summary.losses;
  if (interrupted) json["interrupted"] = true;
  return text_of(json, 2) + '\n';
}

std::string report_csv(const std::vector<ReportRow>& rows) {
  std::string csv = csv_line({"case", "problem", "device", "floor_us", "bound", "provider", "algorithm",
                              "config", "time_us", "mad_us", "n", "gflop_per_s", "gb_per_s",
                              "roofline_fraction", "max_error", "best_peer", "speedup", "failure"});
  for (const ReportRow& row : rows) {
    const Comparison& comparison = row.comparison;
    const std::string speedup = comparison.speedup > 0 ? number(comparison.speedup) : "";
    const std::vector<std::string> head = {comparison.problem.name, to_string(comparison.problem),
                                           comparison.device.fingerprint,
                                           number(comparison.roofline.floor_us), comparison.roofline.bound};
    const auto add = [&](const std::vector<std::string>& middle, const std::string& failure) {
      std::vector<std::string> fields = head;
      fields.insert(fields.end(), middle.begin(), middle.end());
      fields.resize(15);
      fields.insert(fields.end(), {comparison.best_peer, speedup, failure});
      csv += csv_line(fields);
    };
    if (!row.failure.empty()) add({}, row.failure);
    for (const ProviderResult& provider : comparison.providers) {
      const std::vector<std::string> names = {provider.name, provider.algorithm, to_string(provider.config)};
      if (!provider.failure.empty() || provider.time_us <= 0) {
        add(names, provider.failure);
        continue;
      }
      std::vector<std::string> fields = names;
      for (const double value : {provider.time_us, provider.mad_us, static_cast<double>(provider.n),
                                 comparison.problem.flops() / provider.time_us / 1e3,
                                 comparison.problem.bytes() / provider.time_us / 1e3,
                                 provider.roofline_fraction, provider.max_error})
        fields.push_back(number(value));
      add(fields, "");
    }
  }
  return csv;
}

}  // namespace convtune
