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
#include "report/report_fields.h"

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
  bool flag() const {
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

 private:
  Error refused(const char* wanted) const {
    return bad(place_.empty() ? "the whole" : place_,
               fmt::format("is {}, and must be {}", json_->type_name(), wanted));
  }

  const Json* json_;  // null: it is not there
  std::string place_;
};

// Reads the fields of a struct. What is not there stays as it is.
template <class T>
void read(const Node& node, T& value, double of_null = 0);

class Reader {
 public:
  explicit Reader(const Node& node) : node_(node) {}
  template <class T>
  void operator()(const char* name, T& value, When = When::always, double of_null = 0) {
    read(node_.at(name), value, of_null);
  }
  void object(const char* name, When, const auto& body) {
    Reader inner(node_.at(name));
    body(inner);
  }
  void derived(const char*, When, const auto&) {}

 private:
  const Node node_;
};

void complete(const Node&, const auto&) {}
void complete(const Node& node, HeldContest& held) {
  ContestResult& result = held.result;
  if (result.incumbent_us.size() != result.challenger_us.size() || result.incumbent_us.size() % 2 != 0)
    throw bad(node.place(), "has no two times of each side a round");
  result.rounds = static_cast<int>(result.incumbent_us.size() / 2);
}
void complete(const Node& node, ReportRow& row) {
  if (const Node name = node.at("case")) row.comparison.problem.name = name.text();  // not its problem's
}

template <class T>
void read(const Node& node, T& value, double of_null) {
  if constexpr (std::same_as<T, Config>) {
    value = node.parsed(parse_config);
  } else if constexpr (std::same_as<T, ConvProblem>) {
    value = node.parsed(parse_problem);
  } else if constexpr (std::same_as<T, double>) {
    value = node.number(of_null);
  } else if constexpr (std::same_as<T, Limiter>) {
    for (const Limiter one :
         {Limiter::warps, Limiter::registers, Limiter::shared_memory, Limiter::block_slots})
      if (node.text() == to_string(one)) value = one;
  } else if constexpr (requires(Reader reader) { fields(value, reader); }) {
    Reader reader(node);
    fields(value, reader);
    complete(node, value);
  } else if (!node) {
    return;
  } else if constexpr (std::same_as<T, bool>) {
    value = node.flag();
  } else if constexpr (std::integral<T>) {
    value = node.whole<T>();
  } else if constexpr (std::same_as<T, std::string>) {
    value = node.text();
  } else if constexpr (requires { value.emplace(); }) {
    read(node, value.emplace());
  } else if constexpr (requires { value.front().first; }) {
    for (const auto& [name, one] : node.members())
      value.emplace_back().first = name, read(one, value.back().second);
  } else {
    for (const Node& one : node.items()) read(one, value.emplace_back());
  }
}

template <class T>
T read(const Node& node) {
  T value{};
  read(node, value);
  return value;
}

Report report_of(const Node& node) {
  Report report;
  if (const Node schema = node.at("schema"); schema && schema.whole() != 1)
    throw bad("schema", fmt::format("is {}, and this version reads 1", schema.whole()));
  read(node.at("environment"), report.environment);
  read(node.at("interrupted"), report.interrupted);
  if (const Node rows = node.at("rows"))
    report.content = read<std::vector<ReportRow>>(rows);
  else if (const Node verified = node.at("verify"))
    report.content = read<VerifyReport>(verified);
  else if (const Node refined = node.at("refine"))
    report.content = read<Refined>(refined);
  else if (const Node model = node.at("model"))
    report.content = read<ModelReport>(model);
  else if (const Node analysis = node.at("analysis"))
    report.content = read<Analyzed>(analysis);
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
