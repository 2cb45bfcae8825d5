// See model_list.h.
#include "onnx/model_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/foreign_json.h"
#include "base/quoted.h"
#include "convtune/error.h"

namespace convtune {
namespace {

using Json = nlohmann::ordered_json;
using nlohmann::json;

constexpr int kSchema = 1;
constexpr std::size_t kMostLayers = 1'000'000, kMostNameBytes = 4096, kMostLabelBytes = 120;
constexpr std::int64_t kMostRuns = 1'000'000'000;

[[noreturn]] void fail(const std::string& why) {
  throw Error(ErrorKind::invalid_argument, why);
}

void allow(const json& object, const std::string& where, std::initializer_list<std::string_view> fields) {
  if (!object.is_object()) fail(where + " is no object");
  for (const auto& [name, value] : object.items())
    if (std::find(fields.begin(), fields.end(), name) == fields.end())
      fail(fmt::format("{} has a field {}, which none is", where, convtune::quoted(name)));
}

const json& field(const json& object, const std::string& where, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) fail(fmt::format("{} has no field '{}'", where, name));
  return *found;
}

std::string text(const json& value, const std::string& where) {
  if (!value.is_string() || value.get_ref<const std::string&>().size() > kMostNameBytes)
    fail(fmt::format("{} is no text of at most {} bytes", where, kMostNameBytes));
  return value.get<std::string>();
}

const json& list(const json& object, const std::string& where, const char* name) {
  const json& value = field(object, where, name);
  if (!value.is_array() || value.size() > kMostLayers)
    fail(fmt::format("{} of {} is no list of at most {}", name, where, kMostLayers));
  return value;
}

std::int64_t count_of(const json& object, const std::string& where) {
  const json& value = field(object, where, "count");
  if (!value.is_number_integer() || value < 1 || value > kMostRuns)
    fail(fmt::format("count of {} is no whole number from 1 to {}", where, kMostRuns));
  return value.get<std::int64_t>();
}

std::vector<std::string> layers_of(const json& object, const std::string& where) {
  std::vector<std::string> layers;
  for (const json& name : list(object, where, "layers")) layers.push_back(text(name, "a layer of " + where));
  return layers;
}

// A layer's name as a problem may have it: no quotes or control characters, and not for ever.
std::string name_of(const std::vector<std::string>& layers) {
  std::string name = layers.empty() ? "" : layers.front();
  for (char& c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '"') c = '_';
  if (name.size() <= kMostLabelBytes) return name;
  std::size_t end = kMostLabelBytes;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;  // no half of a character
  return name.substr(0, end) + "…";
}

// Equal problems are one, whatever the list says. `places`: by key, where each stands.
void add(std::vector<ModelConvolution>& to, std::unordered_map<std::string, std::size_t>& places,
         ModelConvolution one) {
  const auto [place, is_new] = places.try_emplace(key(one.problem), to.size());
  if (is_new) {
    to.push_back(std::move(one));
    return;
  }
  ModelConvolution& known = to[place->second];
  known.count += one.count;
  known.layers.insert(known.layers.end(), one.layers.begin(), one.layers.end());
}

}  // namespace

Model model_of(const json& object, bool skip_refused) {
  Model model;
  std::unordered_map<std::string, std::size_t> places;
  for (const json& one : list(object, "the list", "convolutions")) {
    const std::string where =
        fmt::format("convolution {}", model.convolutions.size() + model.skipped.size() + 1);
    allow(one, where, {"problem", "count", "layers"});
    ModelConvolution found;
    found.count = count_of(one, where);
    found.layers = layers_of(one, where);
    const std::string line = text(field(one, where, "problem"), "problem of " + where);
    try {
      found.problem = parse_problem(line);
    } catch (const Error& error) {
      if (!skip_refused) fail(fmt::format("problem of {}: {}", where, error.what()));
      model.skipped.push_back({"convolution", error.what(), found.count, std::move(found.layers)});
      continue;
    }
    if (const std::string name = name_of(found.layers); !name.empty()) found.problem.name = name;
    add(model.convolutions, places, std::move(found));
  }
  for (const json& one : list(object, "the list", "skipped")) {
    const std::string where = fmt::format("skipped layer {}", model.skipped.size() + 1);
    allow(one, where, {"what", "why", "count", "layers"});
    model.skipped.push_back({text(field(one, where, "what"), "what of " + where),
                             text(field(one, where, "why"), "why of " + where), count_of(one, where),
                             layers_of(one, where)});
  }
  return model;
}

std::string model_json(const Model& model) {
  Json object = {{"schema", kSchema},
                 {"model", model.name},
                 {"convolutions", Json::array()},
                 {"skipped", Json::array()}};
  for (const ModelConvolution& one : model.convolutions)
    object["convolutions"].push_back(
        {{"problem", key(one.problem)}, {"count", one.count}, {"layers", one.layers}});
  for (const SkippedLayers& one : model.skipped)
    object["skipped"].push_back(
        {{"what", one.what}, {"why", one.why}, {"count", one.count}, {"layers", one.layers}});
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

Model parse_model(std::string_view text_of_it) {
  json object;
  try {
    object = parse_foreign_json(text_of_it);
  } catch (const Error& error) {
    fail(fmt::format("it {}", error.what()));
  }
  allow(object, "the list", {"schema", "model", "convolutions", "skipped"});
  if (field(object, "the list", "schema") != kSchema)
    fail(fmt::format("schema is not {}, the only one that is known here", kSchema));
  Model model = model_of(object, false);
  model.name = text(field(object, "the list", "model"), "model");
  return model;
}

}  // namespace convtune
