// See triton_file.h.
#include "triton/triton_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/quoted.h"
#include "convtune/cases.h"

namespace convtune {

Error bad_input(const std::string& message) {
  return Error(ErrorKind::invalid_argument, message);
}

namespace {

using nlohmann::json;

constexpr double kSeconds =
    40;  // for an answer about a file, by the clock: of the processor it takes 10 s at most

using Fields = std::vector<std::pair<std::string, std::string>>;

Fields fields_of(const json& pairs) {
  Fields fields;
  for (const json& pair : pairs)
    fields.emplace_back(pair.at(0).get<std::string>(), pair.at(1).get<std::string>());
  return fields;
}

json to_json(const Fields& fields) {
  json pairs = json::array();
  for (const auto& [name, text] : fields) pairs.push_back({name, text});
  return pairs;
}

TritonKernel kernel_from_json(const json& object) {
  TritonKernel kernel;
  kernel.at = object.at("at").get<int>();
  kernel.name = object.at("name").get<std::string>();
  kernel.line = object.at("line").get<int>();
  kernel.listed = object.at("listed").get<bool>();
  kernel.literal = object.at("literal").get<bool>();
  for (const json& config : object.at("configs")) kernel.configs.push_back(config_from_json(config));
  kernel.why = object.at("why").get<std::string>();
  kernel.blocks = fields_of(object.at("blocks"));
  if (const json& stages = object.at("stages"); !stages.is_null()) kernel.stages = stages.get<std::int64_t>();
  kernel.maker = object.at("maker").get<std::string>();
  if (object.at("loads").is_number_integer()) kernel.loads = object.at("loads").get<std::int64_t>();
  kernel.fixed = object.at("fixed").get<std::string>();
  const auto loops = object.at("loops").get<std::string>();
  kernel.loops = loops == "none"     ? TritonKernel::Loops::none
                 : loops == "static" ? TritonKernel::Loops::unrolled
                                     : TritonKernel::Loops::any;
  kernel.hooks = object.at("hooks").get<std::vector<std::string>>();
  kernel.in_place = object.at("in_place").get<std::vector<std::string>>();
  kernel.is_protected = object.at("protected").get<bool>();
  kernel.pruned = object.at("pruned").get<bool>();
  return kernel;
}

ConvProblem layer_from_json(const json& object) {
  const auto pair = [&](const char* name) { return object.at(name).get<std::array<std::int64_t, 2>>(); };
  ConvProblem layer;
  layer.c = pair("in_channels")[0], layer.k = pair("out_channels")[0];
  layer.r = pair("kernel_size")[0], layer.s = pair("kernel_size")[1];
  layer.stride_h = pair("stride")[0], layer.stride_w = pair("stride")[1];
  layer.pad_top = layer.pad_bottom = pair("padding")[0],
  layer.pad_left = layer.pad_right = pair("padding")[1];
  layer.dilation_h = pair("dilation")[0], layer.dilation_w = pair("dilation")[1];
  layer.groups = pair("groups")[0], layer.bias = pair("bias")[0] != 0;
  return layer;
}

bool same_layer(const ConvProblem& problem, const ConvProblem& layer) {
  ConvProblem here = layer;
  here.n = problem.n, here.h = problem.h, here.w = problem.w;
  here.dtype = problem.dtype, here.layout = problem.layout, here.precision = problem.precision;
  here.activation = problem.activation;
  return here == problem;
}

}  // namespace

std::string to_string(const TritonConfig& config) {
  std::string text;
  for (const auto& [name, value] : config.meta) text += fmt::format("{}={} ", name, value);
  for (const auto& [name, value] : config.others) text += fmt::format("{}={} ", name, value);
  return text + to_string(config.stage);
}

json to_json(const TritonConfig& config) {
  return {{"meta", to_json(config.meta)},
          {"others", to_json(config.others)},
          {"warps", config.stage.warps},
          {"stages", config.stage.stages}};
}

TritonConfig config_from_json(const json& object) {
  try {
    return {fields_of(object.at("meta")),
            fields_of(object.at("others")),
            {object.at("warps").get<std::int64_t>(), object.at("stages").get<std::int64_t>()},
            object.at("line").get<int>(),
            object.at("hidden").get<std::string>()};
  } catch (const json::exception& error) {
    throw RunFailure(fmt::format("its config is none: {}", error.what()));
  }
}

std::vector<std::pair<std::string, std::string>> parse_config_words(std::string_view text) {
  Fields fields;
  const auto refuse = [&](std::size_t at) {
    throw bad_input(
        fmt::format("{} is no config: write BLOCK_M=32 num_warps=4, or Triton's own BLOCK_M: 32, "
                    "num_warps: 4; stopped at {}",
                    convtune::quoted(text, 200), convtune::quoted(text.substr(at))));
  };
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == ',' || c == ';'; };
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  std::size_t i = 0;
  while (true) {
    while (i < text.size() && blank(text[i])) ++i;
    if (i == text.size()) break;
    const std::size_t name_begin = i;
    while (i < text.size() && letter(text[i])) ++i;
    const std::string name(text.substr(name_begin, i - name_begin));
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) refuse(name_begin);
    while (i < text.size() && text[i] == ' ') ++i;
    if (i == text.size() || (text[i] != '=' && text[i] != ':')) refuse(name_begin);
    ++i;
    while (i < text.size() && text[i] == ' ') ++i;
    const std::size_t value_begin = i;
    int depth = 0;
    char quote = 0;
    for (; i < text.size(); ++i) {
      const char c = text[i];
      if (quote) {
        if (c == quote) quote = 0;
      } else if (c == '\'' || c == '"') {
        quote = c;
      } else if (c == '(' || c == '[' || c == '{') {
        ++depth;
      } else if (c == ')' || c == ']' || c == '}') {
        --depth;
      } else if (depth == 0 && blank(c)) {
        break;
      }
    }
    if (quote || depth != 0 || i == value_begin) refuse(value_begin);
    fields.emplace_back(name, std::string(text.substr(value_begin, i - value_begin)));
  }
  if (fields.empty()) refuse(0);
  return fields;
}

json TritonFile::ask(const json& request) {
  try {
    json answer = reader_->ask(request);
    if (answer.contains("refused")) throw bad_input(answer.at("refused").get<std::string>());
    return answer;
  } catch (const RunFailure& failure) {
    throw bad_input(fmt::format("Python could not read the file: {}", failure.what()));
  } catch (const json::exception& error) {
    throw bad_input(fmt::format("Python could not read the file: {}", error.what()));
  }
}

TritonFile::TritonFile(std::string source, std::string path, const Target& target, const std::string& python)
    : source_(std::move(source)), path_(std::move(path)) {
  require_python(source_);
  reader_ = std::make_unique<PythonChild>(python, "triton_reader", kSeconds);
  const json request = {{"do", "read"},
                        {"source", source_},
                        {"path", path_},
                        {"target",
                         {{"major", target.capability.major},
                          {"minor", target.capability.minor},
                          {"sms", target.multiprocessors},
                          {"shared", target.smem_per_block},
                          {"product", target.product}}}};
  const json answer = ask(request);
  try {
    has_triton_ = answer.at("triton").get<bool>(), other_ = answer.at("other").get<std::string>();
    for (const json& kernel : answer.at("kernels")) kernels_.push_back(kernel_from_json(kernel));
    for (const json& layer : answer.at("layers"))
      for (const Suite& suite : suites())
        for (const ConvProblem& problem : suite.problems)
          // Other suites have the same layers again in other types.
          if (problem.dtype == DTypes() && same_layer(problem, layer_from_json(layer)))
            cases_.push_back(problem);
  } catch (const json::exception& error) {
    throw bad_input(fmt::format("Python could not read the file: {}", error.what()));
  }
}

std::vector<std::vector<TritonGrid>> TritonFile::grids(const TritonKernel& kernel, const TritonGiven& given,
                                                       const std::vector<TritonConfig>& configs,
                                                       std::string& why) {
  json request = to_json(given);
  request["do"] = "grids", request["kernel"] = kernel.at;
  if (configs != kernel.configs)
    for (const TritonConfig& config : configs) request["configs"].push_back(to_json(config));
  const json answer = ask(request);
  std::vector<std::vector<TritonGrid>> launches;
  try {
    why = answer.at("why").get<std::string>();
    for (const json& launch : answer.at("grids")) {
      std::vector<TritonGrid>& grids = launches.emplace_back();
      for (const json& grid : launch)
        grids.push_back({std::max<std::int64_t>(1, grid.at(0).get<std::int64_t>()), grid.at(1).get<bool>(),
                         std::max<std::int64_t>(1, grid.at(2).get<std::int64_t>())});
      if (grids.size() != configs.size()) return {};
    }
  } catch (const json::exception& error) {
    throw bad_input(fmt::format("Python could not read the file: {}", error.what()));
  }
  return launches;
}

std::string TritonFile::edited(const std::vector<List>& lists, bool in_order,
                               std::vector<std::string>& notes) {
  json edits = json::array();
  for (const List& list : lists) {
    json configs = json::array();
    for (const Entry& entry : list.configs) {
      configs.push_back(to_json(entry.config));
      configs.back()["comment"] = entry.comment;
    }
    edits.push_back({{"kernel", list.kernel}, {"configs", configs}, {"keep", list.keep}});
  }
  const json answer = ask({{"do", "edit"}, {"edits", edits}, {"order", in_order}});
  try {
    for (const json& note : answer.at("notes")) notes.push_back(note.get<std::string>());
    return answer.at("source").get<std::string>();
  } catch (const json::exception& error) {
    throw bad_input(fmt::format("Python could not edit the file: {}", error.what()));
  }
}

}  // namespace convtune
