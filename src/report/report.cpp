// Reports as JSON: the one writer of it. read_report.cpp reads it back.
#include "convtune/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/report_fields.h"

namespace convtune {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

// Writes the fields of a struct.
template <class T>
Json json_of(const T& value);

template <class T>
bool is_unset(const T& value) {
  if constexpr (std::is_arithmetic_v<T>)
    return !(value > T{});  // a NaN too
  else if constexpr (requires { value.has_value(); })
    return !value.has_value();
  else if constexpr (requires { value.empty(); })
    return value.empty();
  else
    return false;
}

class Writer {
 public:
  template <class T>
  void operator()(const char* name, const T& value, When when = When::always, double = 0) {
    if (when == When::never || (when == When::if_set && is_unset(value))) return;
    json[name] = when == When::or_null && is_unset(value) ? Json(nullptr) : json_of(value);
  }
  void object(const char* name, When when, const auto& body) {
    if (when == When::never) return;
    Writer inner;
    body(inner);
    json[name] = std::move(inner.json);
  }
  void derived(const char* name, When when, const auto& make) {
    if (when != When::never) json[name] = make();
  }

  Json json = Json::object();
};

template <class T>
Json json_of(const T& value) {
  if constexpr (std::is_arithmetic_v<T> || std::same_as<T, std::string>) {
    return value;
  } else if constexpr (requires { to_string(value); }) {
    return to_string(value);
  } else if constexpr (requires { *value; }) {  // an optional that is set
    return json_of(*value);
  } else if constexpr (requires { value.front().first; }) {
    Json object = Json::object();
    for (const auto& [name, one] : value) object[name] = json_of(one);
    return object;
  } else if constexpr (requires { value.front(); }) {
    Json list = Json::array();
    for (const auto& one : value) list.push_back(json_of(one));
    return list;
  } else {
    Writer writer;
    fields(value, writer);
    return std::move(writer.json);
  }
}

// Writes the parts of each kind of report beside its environment.
void add_content(Json& json, const std::vector<ReportRow>& rows) {
  json["rows"] = json_of(rows);
  const ReportSummary summary = summarize(rows);
  json["geomean_speedup"] = summary.compared > 0 ? Json(summary.geomean_speedup) : Json(nullptr);
  json["wins"] = summary.wins;
  json["ties"] = summary.ties;
  json["losses"] = summary.losses;
  if (std::any_of(rows.begin(), rows.end(), [](const ReportRow& row) { return !row.layers.empty(); })) {
    const ModelTimes times = model_times(rows);
    json["model_times"] = {
        {"time_us", times.us}, {"best_peer_us", times.best_peer_us}, {"rows_without", times.without}};
  }
}

void add_content(Json& json, const VerifyReport& verified) {
  json["verify"] = json_of(verified);
}
void add_content(Json& json, const Refined& refined) {
  json["refine"] = json_of(refined);
}
void add_content(Json& json, const ModelReport& model) {
  json["model"] = json_of(model);
}
void add_content(Json& json, const Analyzed& analyzed) {
  json["analysis"] = json_of(analyzed);
}

// A name may hold any bytes: what is no UTF-8 is replaced rather than thrown at.
std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string now() {
  const auto seconds = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(seconds));
}

}  // namespace

ReportEnvironment environment_of(const DeviceInfo& device) {
  ReportEnvironment environment{device, device_info(Device{}).units, {{"convtune", CONVTUNE_VERSION}}, now()};
  const bool gpu = device.device.kind == Device::Kind::cuda;
  const std::vector<std::string> kinds =
      gpu ? std::vector<std::string>{"NVIDIA driver", "NVRTC", "cuDNN"} : std::vector<std::string>{"oneDNN"};
  for (const Probe& probe : probe_environment())
    if (probe.found && std::find(std::begin(kinds), std::end(kinds), probe.what) != std::end(kinds))
      environment.versions.emplace_back(probe.what, probe.detail.substr(0, probe.detail.find(';')));
  return environment;
}

ReportEnvironment environment_of(const Target& target) {
  DeviceInfo device;
  device.name = target.product, device.fingerprint = "target|" + target.name;
  return {device, device_info(Device{}).units, {{"convtune", CONVTUNE_VERSION}}, now()};
}

ReportRow report_row(TuningReport report) {
  return {std::move(report.comparison), static_cast<TuningSummary&&>(report), {}};
}

const ProviderResult* own_result(const ReportRow& row) {
  const auto& providers = row.comparison.providers;
  if (!row.failure.empty() || providers.empty() || !providers.front().failure.empty()) return nullptr;
  return &providers.front();
}

const ProviderResult* best_peer(const Comparison& comparison) {
  for (std::size_t i = 1; i < comparison.providers.size(); ++i)
    if (const ProviderResult& one = comparison.providers[i];
        one.name == comparison.best_peer && one.failure.empty() && one.time_us > 0)
      return &one;
  return nullptr;
}

ModelTimes model_times(const std::vector<ReportRow>& rows) {
  ModelTimes times;
  for (const ReportRow& row : rows) {
    const ProviderResult* const own = own_result(row);
    if (!own) {
      ++times.without;
      continue;
    }
    const ProviderResult* const peer = best_peer(row.comparison);
    const auto count = static_cast<double>(row.count);
    times.us += count * own->time_us;
    times.best_peer_us += count * (peer ? peer : own)->time_us;
  }
  return times;
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
  return text_of(json_of(row), -1);
}

std::string to_json(const ReportEnvironment& environment) {
  return text_of(json_of(environment), -1);
}

std::string report_json(const Report& report) {
  Json json = {{"schema", kSchema}, {"environment", json_of(report.environment)}};
  std::visit([&](const auto& content) { add_content(json, content); }, report.content);
  if (report.interrupted) json["interrupted"] = true;
  return text_of(json, 2) + '\n';
}

}  // namespace convtune
