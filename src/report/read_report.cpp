// Reports from foreign text: what report.cpp wrote, now or in an older version, or another program. What is
// not there is left at its default; what is there and of another kind is refused by its place:
// "rows[3].speedup".
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/foreign_json.h"
#include "base/named_file.h"
#include "base/quoted.h"
#include "convtune/error.h"
#include "convtune/report.h"

namespace convtune {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::int64_t kMostOfAll = std::int64_t{1}
                                    << 53;  // whole numbers that any JSON reader takes rightly

Error bad(const std::string& place, const std::string& why) {
  return Error(ErrorKind::invalid_argument,
               fmt::format("report: {}{}{}", place, place.empty() ? "" : " ", why));
}

// A value and its place.
class Node {
 public:
  Node(const Json* json, std::string place) : json_(json), place_(std::move(place)) {}

  explicit operator bool() const { return json_ && !json_->is_null(); }
  const std::string& place() const { return place_; }

  Node at(const char* key) const {
    if (!*this) return {nullptr, place_};
    if (!json_->is_object()) throw refused("an object");
    const auto found = json_->find(key);
    return {found == json_->end() ? nullptr : &*found,
            place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key)};
  }
  std::vector<Node> items() const {
    std::vector<Node> all;
    if (!*this) return all;
    if (!json_->is_array()) throw refused("a list");
    for (const Json& one : *json_) all.emplace_back(&one, fmt::format("{}[{}]", place_, all.size()));
    return all;
  }
  // An object's own, in the order of their names.
  std::vector<std::pair<std::string, Node>> members() const {
    std::vector<std::pair<std::string, Node>> all;
    if (!*this) return all;
    if (!json_->is_object()) throw refused("an object");
    for (const auto& [name, value] : json_->items())
      all.emplace_back(name, Node(&value, fmt::format("{}.{}", place_, convtune::quoted(name))));
    return all;
  }

  std::string text() const {
    if (!*this) return {};
    if (!json_->is_string()) throw refused("text");
    return json_->get<std::string>();
  }
  bool flag(bool missing = false) const {
    if (!*this) return missing;
    if (!json_->is_boolean()) throw refused("true or false");
    return json_->get<bool>();
  }
  // JSON has no infinity and no NaN: the writer makes null of them.
  double number(double of_null = 0) const {
    if (!json_) return 0;
    if (json_->is_null()) return of_null;
    if (!json_->is_number()) throw refused("a number");
    return json_->get<double>();
  }
  template <typename Integer = std::int64_t>
  Integer whole() const {
    const double value = number();
    const auto most = std::min<double>(static_cast<double>(kMostOfAll),
                                       static_cast<double>(std::numeric_limits<Integer>::max()));
    if (value < 0 || value > most || value != std::floor(value)) throw refused("a whole number, 0 or more");
    return static_cast<Integer>(value);
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> all;
    for (const Node& one : items()) all.push_back(one.text());
    return all;
  }
  std::vector<double> numbers() const {
    std::vector<double> all;
    for (const Node& one : items()) all.push_back(one.number());
    return all;
  }
  // Text that `read` takes: its refusal gets the place.
  template <typename Read>
  auto parsed(const Read& read) const {
    const std::string value = text();
    try {
      return read(value);
    } catch (const Error& error) {
      throw bad(place_, fmt::format("cannot be used: {}", error.what()));
    }
  }
  Config config() const { return parsed(parse_config); }
  ConvProblem problem() const { return parsed(parse_problem); }

 private:
  Error refused(const char* wanted) const {
    return bad(place_.empty() ? "the whole" : place_,
               fmt::format("is {}, and must be {}", json_->type_name(), wanted));
  }

  const Json* json_;  // null: it is not there
  std::string place_;
};

template <typename Read>
auto list_of(const Node& node, const Read& read) {
  std::vector<decltype(read(node))> all;
  for (const Node& one : node.items()) all.push_back(read(one));
  return all;
}

HeldContest contest_of(const Node& node) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  HeldContest held{node.at("incumbent").text(), node.at("challenger").text(), {}};
  ContestResult& result = held.result;
  result.min_gain = node.at("min_gain").number(), result.confidence = node.at("confidence").number();
  result.accepted = node.at("accepted").flag(), result.undecided = node.at("undecided").flag();
  result.gain = node.at("gain").number();
  result.interval = {node.at("low").number(-kInfinity), node.at("high").number(kInfinity)};
  result.incumbent_us = node.at("incumbent_us").numbers();
  result.challenger_us = node.at("challenger_us").numbers();
  if (result.incumbent_us.size() != result.challenger_us.size() || result.incumbent_us.size() % 2 != 0)
    throw bad(node.place(), "has no two times of each side a round");
  result.rounds = static_cast<int>(result.incumbent_us.size() / 2);
  result.busy = node.at("busy").flag();
  result.incumbent_interrupted = node.at("incumbent_interrupted").whole<int>();
  result.challenger_interrupted = node.at("challenger_interrupted").whole<int>();
  return held;
}

ProviderResult provider_of(const Node& node) {
  return {node.at("name").text(),
          node.at("algorithm").text(),
          node.at("config").config(),
          node.at("time_us").number(),
          node.at("mad_us").number(),
          node.at("n").whole(),
          node.at("roofline_fraction").number(),
          node.at("max_error").number(std::numeric_limits<double>::quiet_NaN()),
          node.at("failure").text(),
          node.at("interrupted").whole()};
}

Resources resources_of(const Node& node) {
  Resources kernel{node.at("registers").whole<int>(), node.at("threads").whole<int>(),
                   node.at("spill_bytes").whole(),    node.at("smem_bytes").whole(),
                   node.at("blocks").whole(),         {}};
  const Node occupancy = node.at("occupancy"), limiter = occupancy.at("limiter");
  kernel.occupancy.share = occupancy.at("share").number();
  kernel.occupancy.blocks = occupancy.at("blocks").whole<int>();
  kernel.occupancy.warps = occupancy.at("warps").whole<int>();
  for (const Limiter one : {Limiter::warps, Limiter::registers, Limiter::shared_memory, Limiter::block_slots})
    if (limiter.text() == to_string(one)) kernel.occupancy.limiter = one;
  return kernel;
}

MicroTuning last_stage_of(const Node& node) {
  MicroTuning stage;
  stage.original = node.at("original").text(), stage.kept = node.at("kept").text();
  stage.changed = node.at("changed").flag();
  stage.tried = list_of(node.at("tried"), [](const Node& one) {
    return MicroTuning::Tried{one.at("config").config(), one.at("reason").text(), one.at("time_us").number(),
                              one.at("failure").text()};
  });
  stage.verdicts = node.at("verdicts").texts();
  stage.contests = list_of(node.at("contests"), contest_of);
  return stage;
}

TuningSummary tuning_of(const Node& node) {
  TuningSummary tuning;
  tuning.from_record = node.at("from_record").flag(), tuning.interrupted = node.at("interrupted").flag();
  tuning.proven = node.at("proven").flag(true);
  tuning.candidates = node.at("candidates").whole(), tuning.trials = node.at("trials").whole();
  tuning.resumed = node.at("resumed").whole(), tuning.pruned = node.at("pruned").whole();
  tuning.wrong = node.at("wrong").whole();
  tuning.small_batch = node.at("small_batch").whole(), tuning.small_trials = node.at("small_trials").whole();
  tuning.record = node.at("record").text(), tuning.not_recorded = node.at("not_recorded").text();
  tuning.warnings = node.at("warnings").texts();
  if (const Node stage = node.at("last_stage")) tuning.last_stage = last_stage_of(stage);
  if (const Node contest = node.at("contest")) tuning.contest = contest_of(contest);
  tuning.steps = list_of(node.at("steps"), [](const Node& one) {
    return SearchStep{one.at("algorithm").text(), one.at("config").config(),  one.at("vendor").flag(),
                      one.at("resumed").flag(),   one.at("time_us").number(), one.at("failure").text()};
  });
  return tuning;
}

ReportRow row_of(const Node& node) {
  ReportRow row;
  Comparison& comparison = row.comparison;
  comparison.problem = node.at("problem").problem();
  if (const Node name = node.at("case")) comparison.problem.name = name.text();
  comparison.device.fingerprint = node.at("device").text();
  const Node roof = node.at("roofline");
  comparison.roofline = {roof.at("floor_us").number(), roof.at("bound").text(),
                         roof.at("flops_per_second").number(), roof.at("bytes_per_second").number()};
  comparison.providers = list_of(node.at("providers"), provider_of);
  comparison.incumbent = node.at("incumbent").text();
  comparison.best_peer = node.at("best_peer").text(), comparison.speedup = node.at("speedup").number();
  comparison.decision = node.at("decision").text();
  const Node machine = node.at("machine");
  comparison.load = {machine.at("load").number(), machine.at("processors").whole<int>()};
  const Node check = node.at("check");
  comparison.check = {check.at("samples").whole(), check.at("elements").whole(),
                      check.at("oracle_seconds").number(), check.at("ways_seconds").number()};
  if (const Node kernel = node.at("resources")) comparison.resources = resources_of(kernel);
  if (const Node tuning = node.at("tuning")) row.tuning = tuning_of(tuning);
  row.failure = node.at("failure").text();
  row.layers = node.at("layers").texts();
  if (const Node count = node.at("count")) row.count = count.whole();
  return row;
}

VerifyReport verified_of(const Node& node) {
  VerifyReport verified;
  verified.problems = node.at("problems").whole(), verified.checks = node.at("checks").whole();
  verified.compiled = node.at("compiled").whole(), verified.mismatches = node.at("mismatches").whole();
  verified.special = node.at("special").whole();
  verified.failures = list_of(node.at("failures"), [](const Node& one) {
    return Mismatch{one.at("problem").problem(), one.at("algorithm").text(), one.at("config").config(),
                    one.at("what").text(), one.at("again").text()};
  });
  return verified;
}

std::vector<Finding> findings_of(const Node& node) {
  return list_of(node, [](const Node& one) { return Finding{one.at("what").text(), one.at("text").text()}; });
}

Analyzed::Kernel analyzed_kernel_of(const Node& node) {
  Analyzed::Kernel kernel{{node.at("kernel").text(), {}}, findings_of(node.at("findings"))};
  for (const auto& [name, value] : node.at("metrics").members())
    kernel.metrics.values.emplace_back(name, value.number());
  return kernel;
}

RefinedKernel kernel_of(const Node& node) {
  RefinedKernel kernel;
  kernel.kernel = node.at("kernel").text(), kernel.line = node.at("line").whole<int>();
  kernel.original = node.at("original").text(), kernel.unknown = node.at("unknown").text();
  kernel.findings = findings_of(node.at("findings"));
  kernel.notes = node.at("notes").texts(), kernel.verdicts = node.at("verdicts").texts();
  kernel.configs = node.at("configs").texts();
  kernel.measured = list_of(node.at("measured"), [](const Node& one) {
    return MeasuredConfig{one.at("config").text(),   one.at("reason").text(), one.at("time_us").number(),
                          one.at("mad_us").number(), one.at("n").whole(),     one.at("output").text(),
                          one.at("failure").text()};
  });
  kernel.place = node.at("place").text(), kernel.changed = node.at("changed").flag();
  kernel.contests = list_of(node.at("contests"), contest_of);
  return kernel;
}

ModelReport model_of(const Node& node) {
  ModelReport model;
  model.training = node.at("training").flag(), model.mode = node.at("mode").text();
  model.layers = list_of(node.at("layers"), [](const Node& one) {
    return ModelLayer{
        one.at("names").texts(),       one.at("problem").text(),       one.at("calls").whole(),
        one.at("pytorch_us").number(), one.at("convtune_us").number(), one.at("gain").number(),
        one.at("low").number(),        one.at("high").number(),        one.at("algorithm").text(),
        one.at("config").text(),       one.at("layout").text(),        one.at("swapped").flag(),
        one.at("decision").text()};
  });
  model.before_us = node.at("before_us").number(), model.after_us = node.at("after_us").number();
  model.gain = node.at("gain").number(), model.low = node.at("low").number();
  model.high = node.at("high").number();
  model.kept = node.at("kept").flag(), model.notes = node.at("notes").texts();
  return model;
}

ReportEnvironment environment_of(const Node& node) {
  ReportEnvironment environment;
  environment.device.name = node.at("device").text();
  environment.device.fingerprint = node.at("fingerprint").text();
  if (node.at("threads")) environment.threads = node.at("threads").whole<int>();
  for (const auto& [what, version] : node.at("versions").members())
    environment.versions.emplace_back(what, version.text());
  environment.date = node.at("date").text(), environment.command = node.at("command").text();
  return environment;
}

Report report_of(const Node& node) {
  Report report;
  if (const Node schema = node.at("schema"); schema && schema.whole() != 1)
    throw bad("schema", fmt::format("is {}, and this version reads 1", schema.whole()));
  report.environment = environment_of(node.at("environment"));
  report.interrupted = node.at("interrupted").flag();
  if (const Node rows = node.at("rows"))
    report.content = list_of(rows, row_of);
  else if (const Node verified = node.at("verify"))
    report.content = verified_of(verified);
  else if (const Node refined = node.at("refine"))
    report.content =
        Refined{{}, refined.at("notes").texts(), list_of(refined.at("kernels"), kernel_of), false};
  else if (const Node model = node.at("model"))
    report.content = model_of(model);
  else if (const Node analysis = node.at("analysis"))
    report.content = Analyzed{list_of(analysis.at("kernels"), analyzed_kernel_of)};
  else
    throw bad({}, "has none of rows, verify, refine, model and analysis: it is none of convtune's");
  return report;
}

}  // namespace

Report parse_report(std::string_view json) {
  if (json.size() > kMostBytes)
    throw bad({}, fmt::format("has {} bytes; at most {} are read", json.size(), kMostBytes));
  Json read;
  try {
    read = parse_foreign_json(json);
  } catch (const Error& error) {
    throw bad({}, error.what());
  }
  return report_of(Node(&read, {}));
}

Report load_report(const std::string& path) {
  const std::string text = read_named_file(path);
  try {
    return parse_report(text);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace convtune
