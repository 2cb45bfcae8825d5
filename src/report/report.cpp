// Reports as JSON: the one writer of it. read_report.cpp reads it back.
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
  if (provider.interrupted > 0) json["interrupted"] = provider.interrupted;
  if (!provider.failure.empty()) json["failure"] = provider.failure;
  return json;
}

Json contest_json(const HeldContest& held) {
  const ContestResult& result = held.result;
  Json json = {{"incumbent", held.incumbent},
               {"challenger", held.challenger},
               {"min_gain", result.min_gain},
               {"confidence", result.confidence},
               {"accepted", result.accepted},
               {"undecided", result.undecided},
               {"gain", result.gain},
               {"low", result.interval.low},
               {"high", result.interval.high},
               {"incumbent_us", result.incumbent_us},
               {"challenger_us", result.challenger_us}};
  if (result.incumbent_interrupted + result.challenger_interrupted > 0) {
    json["busy"] = result.busy;
    json["incumbent_interrupted"] = result.incumbent_interrupted;
    json["challenger_interrupted"] = result.challenger_interrupted;
  }
  return json;
}

Json contests_json(const std::vector<HeldContest>& contests) {
  Json all = Json::array();
  for (const HeldContest& held : contests) all.push_back(contest_json(held));
  return all;
}

// The last stage: null where there was none.
Json last_stage_json(const std::optional<MicroTuning>& stage) {
  if (!stage) return nullptr;
  Json tried = Json::array();
  for (const MicroTuning::Tried& one : stage->tried) {
    tried.push_back({{"config", to_string(one.config)}, {"reason", one.reason}, {"time_us", one.time_us}});
    if (!one.failure.empty()) tried.back()["failure"] = one.failure;
  }
  return {{"original", stage->original}, {"kept", stage->kept},
          {"changed", stage->changed},   {"tried", tried},
          {"verdicts", stage->verdicts}, {"contests", contests_json(stage->contests)}};
}

Json steps_json(const std::vector<SearchStep>& steps) {
  Json all = Json::array();
  for (const SearchStep& step : steps) {
    all.push_back(
        {{"algorithm", step.algorithm}, {"config", to_string(step.config)}, {"time_us", step.time_us}});
    if (step.vendor) all.back()["vendor"] = true;
    if (step.resumed) all.back()["resumed"] = true;
    if (!step.failure.empty()) all.back()["failure"] = step.failure;
  }
  return all;
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
               {"last_stage", last_stage_json(tuning.last_stage)},
               {"contest", tuning.contest ? contest_json(*tuning.contest) : Json(nullptr)},
               {"steps", steps_json(tuning.steps)}};
  if (!tuning.not_recorded.empty()) json["not_recorded"] = tuning.not_recorded;
  if (tuning.small_batch > 0)
    json["small_batch"] = tuning.small_batch, json["small_trials"] = tuning.small_trials;
  return json;
}

Json resources_json(const Resources& kernel) {
  return {{"registers", kernel.registers},
          {"threads", kernel.threads},
          {"spill_bytes", kernel.spill_bytes},
          {"smem_bytes", kernel.smem_bytes},
          {"blocks", kernel.blocks},
          {"occupancy",
           {{"share", kernel.occupancy.share},
            {"blocks", kernel.occupancy.blocks},
            {"warps", kernel.occupancy.warps},
            {"limiter", to_string(kernel.occupancy.limiter)}}}};
}

Json roofline_json(const Roofline& roof) {
  const auto known = [](double rate) { return rate > 0 ? Json(rate) : Json(nullptr); };
  return {{"floor_us", roof.floor_us},
          {"bound", roof.bound},
          {"flops_per_second", known(roof.flops_per_second)},
          {"bytes_per_second", known(roof.bytes_per_second)}};
}

Json row_json(const ReportRow& row) {
  const Comparison& comparison = row.comparison;
  Json json = {{"case", comparison.problem.name},
               {"problem", to_string(comparison.problem)},
               {"device", comparison.device.fingerprint},
               {"roofline", roofline_json(comparison.roofline)},
               {"providers", Json::array()},
               {"incumbent", nullptr},
               {"best_peer", nullptr},
               {"speedup", nullptr}};
  for (const ProviderResult& provider : comparison.providers)
    json["providers"].push_back(provider_json(provider));
  if (!comparison.incumbent.empty()) json["incumbent"] = comparison.incumbent;
  if (!comparison.best_peer.empty()) json["best_peer"] = comparison.best_peer;
  if (comparison.speedup > 0) json["speedup"] = comparison.speedup;
  if (!comparison.providers.empty()) json["verdict"] = verdict(comparison);
  if (!comparison.decision.empty()) json["decision"] = comparison.decision;
  if (comparison.load.processors > 0)
    json["machine"] = {{"load", comparison.load.average},
                       {"processors", comparison.load.processors},
                       {"busy", machine_is_busy(comparison)},
                       {"finding", interruptions(comparison)}};
  if (const Check& check = comparison.check; check.elements > 0)
    json["check"] = {{"samples", check.samples},
                     {"elements", check.elements},
                     {"oracle_seconds", check.oracle_seconds},
                     {"ways_seconds", check.ways_seconds}};
  if (comparison.resources) json["resources"] = resources_json(*comparison.resources);
  if (row.tuning) json["tuning"] = tuning_json(*row.tuning);
  if (!row.failure.empty()) json["failure"] = row.failure;
  if (!row.layers.empty()) {
    json["count"] = row.count;
    json["layers"] = row.layers;
  }
  return json;
}

Json environment_json(const ReportEnvironment& environment) {
  Json versions = Json::object();
  for (const auto& [what, version] : environment.versions) versions[what] = version;
  Json json = {{"device", environment.device.name},
               {"fingerprint", environment.device.fingerprint},
               {"threads", environment.threads},
               {"versions", versions},
               {"date", environment.date}};
  if (!environment.command.empty()) json["command"] = environment.command;
  return json;
}

// What each kind of report has beside its environment.
void add_content(Json& json, const std::vector<ReportRow>& rows) {
  json["rows"] = Json::array();
  for (const ReportRow& row : rows) json["rows"].push_back(row_json(row));
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
  Json failures = Json::array();
  for (const Mismatch& mismatch : verified.failures)
    failures.push_back({{"problem", to_string(mismatch.problem)},
                        {"algorithm", mismatch.algorithm},
                        {"config", to_string(mismatch.config)},
                        {"what", mismatch.what},
                        {"again", mismatch.repro}});
  json["verify"] = {{"problems", verified.problems},     {"checks", verified.checks},
                    {"compiled", verified.compiled},     {"special", verified.special},
                    {"mismatches", verified.mismatches}, {"failures", failures}};
}

Json findings_json(const std::vector<Finding>& findings) {
  Json all = Json::array();
  for (const Finding& finding : findings) all.push_back({{"what", finding.what}, {"text", finding.text}});
  return all;
}

Json kernel_json(const RefinedKernel& kernel) {
  const Json findings = findings_json(kernel.findings);
  Json measured = Json::array();
  for (const MeasuredConfig& one : kernel.measured) {
    measured.push_back({{"config", one.config},
                        {"reason", one.reason},
                        {"time_us", one.time_us},
                        {"mad_us", one.mad_us},
                        {"n", one.n},
                        {"output", one.output}});
    if (!one.failure.empty()) measured.back()["failure"] = one.failure;
  }
  Json json = {{"kernel", kernel.kernel},
               {"line", kernel.line},
               {"original", kernel.original},
               {"findings", findings},
               {"notes", kernel.notes},
               {"verdicts", kernel.verdicts},
               {"configs", kernel.configs},
               {"measured", measured},
               {"place", kernel.place},
               {"changed", kernel.changed},
               {"contests", contests_json(kernel.contests)}};
  if (!kernel.unknown.empty()) json["unknown"] = kernel.unknown;
  return json;
}

void add_content(Json& json, const Refined& refined) {
  Json kernels = Json::array();
  for (const RefinedKernel& kernel : refined.kernels) kernels.push_back(kernel_json(kernel));
  json["refine"] = {{"notes", refined.notes}, {"kernels", kernels}};
}

void add_content(Json& json, const ModelReport& model) {
  Json layers = Json::array();
  for (const ModelLayer& layer : model.layers)
    layers.push_back({{"names", layer.names},
                      {"problem", layer.problem},
                      {"calls", layer.calls},
                      {"pytorch_us", layer.pytorch_us},
                      {"convtune_us", layer.convtune_us},
                      {"gain", layer.gain},
                      {"low", layer.low},
                      {"high", layer.high},
                      {"algorithm", layer.algorithm},
                      {"config", layer.config},
                      {"layout", layer.layout},
                      {"swapped", layer.swapped},
                      {"decision", layer.decision}});
  json["model"] = {
      {"training", model.training}, {"mode", model.mode},  {"layers", layers}, {"before_us", model.before_us},
      {"after_us", model.after_us}, {"gain", model.gain},  {"low", model.low}, {"high", model.high},
      {"kept", model.kept},         {"notes", model.notes}};
}

void add_content(Json& json, const Analyzed& analyzed) {
  Json kernels = Json::array();
  for (const Analyzed::Kernel& kernel : analyzed.kernels) {
    Json metrics = Json::object();
    for (const auto& [name, value] : kernel.metrics.values) metrics[name] = value;
    kernels.push_back({{"kernel", kernel.metrics.kernel},
                       {"metrics", std::move(metrics)},
                       {"findings", findings_json(kernel.findings)}});
  }
  json["analysis"] = {{"kernels", kernels}};
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
                       std::move(report.not_recorded),
                       std::move(report.contest),
                       std::move(report.steps),
                       report.small_batch,
                       report.small_trials};
  return {std::move(report.comparison), std::move(tuning), {}};
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
  return text_of(row_json(row), -1);
}

std::string to_json(const ReportEnvironment& environment) {
  return text_of(environment_json(environment), -1);
}

std::string report_json(const Report& report) {
  Json json = {{"schema", kSchema}, {"environment", environment_json(report.environment)}};
  std::visit([&](const auto& content) { add_content(json, content); }, report.content);
  if (report.interrupted) json["interrupted"] = true;
  return text_of(json, 2) + '\n';
}

}  // namespace convtune
