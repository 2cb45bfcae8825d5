// read_module(): what src/triton/runner/module_class.py reads of a class, as a module of problems.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/quoted.h"
#include "convtune/error.h"
#include "convtune/export.h"
#include "python/python_child.h"

namespace convtune {
namespace {

using nlohmann::json;

constexpr double kSeconds = 40;  // by the clock; of the processor the reader takes 10 s at most

Error bad(const std::string& message) {
  return Error(ErrorKind::invalid_argument, message);
}

json asked(const std::string& source, const ReadModuleOptions& options) {
  require_python(source);
  const json request = {
      {"do", "class"}, {"source", source}, {"class", options.class_name}, {"of_kernels", options.of_kernels}};
  try {
    json answer = PythonChild(options.python, "triton_reader", kSeconds).ask(request);
    if (answer.contains("refused")) throw bad(answer.at("refused").get<std::string>());
    return answer;
  } catch (const RunFailure& failure) {
    throw bad(fmt::format("Python could not read the class: {}", failure.what()));
  }
}

// A layer's numbers as a problem of a tensor that is not known yet.
ConvProblem problem_of(const json& layer) {
  const json& values = layer.at("values");
  const auto first = [&](const char* name) { return values.at(name).at(0).get<std::int64_t>(); };
  const auto rows = [&](const char* name, std::int64_t without) {
    return values.at(name).size() > 1 ? first(name) : without;
  };
  const auto columns = [&](const char* name) { return values.at(name).back().get<std::int64_t>(); };
  ConvProblem a;
  a.c = first("in_channels"), a.k = first("out_channels");
  a.r = rows("kernel_size", 1), a.s = columns("kernel_size");
  a.stride_h = rows("stride", 1), a.stride_w = columns("stride");
  a.pad_top = a.pad_bottom = rows("padding", 0), a.pad_left = a.pad_right = columns("padding");
  a.dilation_h = rows("dilation", 1), a.dilation_w = columns("dilation");
  a.groups = first("groups"), a.bias = first("bias") != 0;
  return a;
}

// The name of the layer's class and where it stands: "line 9: nn.Conv2d 'conv1'".
std::string place_of(const json& layer) {
  return fmt::format("line {}: nn.{} {}", layer.at("line").get<int>(), layer.at("kind").get<std::string>(),
                     convtune::quoted(layer.at("name").get<std::string>()));
}

// The numbers of the layer that are known are those of the problem that was given for it.
void check_given(const json& layer, const ConvProblem& given) {
  if (given.d != 1 || given.t != 1 || given.direction != Direction::forward)
    throw bad(fmt::format("{} is not {}", place_of(layer), to_string(given)));
  const std::vector<std::pair<const char*, std::vector<std::int64_t>>> numbers = {
      {"in_channels", {given.c}},
      {"out_channels", {given.k}},
      {"kernel_size", {given.r, given.s}},
      {"stride", {given.stride_h, given.stride_w}},
      {"padding", {given.pad_top, given.pad_left}},
      {"dilation", {given.dilation_h, given.dilation_w}},
      {"groups", {given.groups}},
      {"bias", {given.bias ? 1 : 0}}};
  for (const auto& [name, of_given] : numbers) {
    const auto found = layer.at("values").find(name);
    if (found == layer.at("values").end()) continue;
    const auto known = found->get<std::vector<std::int64_t>>();
    if (!std::equal(known.rbegin(), known.rend(), of_given.rbegin()))
      throw bad(
          fmt::format("{} is not {}: its {} is {}", place_of(layer), to_string(given), name, found->dump()));
  }
  if (layer.at("rank") == 1 && (given.h != 1 || given.r != 1))
    throw bad(fmt::format("{} is not {}, which has a height", place_of(layer), to_string(given)));
}

class Reading {
 public:
  Reading(const json& answer, const ReadModuleOptions& options) : answer_(answer), options_(options) {}

  ExportModule module() const {
    ExportModule module;
    module.parameters = answer_.at("parameters").get<std::string>();
    std::vector<ExportLayer> chained;
    for (const json& step : answer_.at("chain")) {
      const json& layer = answer_.at("layers").at(step.at(0).get<std::size_t>());
      refuse_slow(layer);
      ExportLayer next(chained.empty() ? first_problem(layer) : behind(chained.back().problem, layer));
      if (step.at(1).get<bool>()) next.problem.activation = Activation::relu;
      validate(next.problem);
      next.name = layer.at("name").get<std::string>();
      next.one_dimensional = layer.at("rank") == 1;
      next.arguments = layer.at("arguments").get<std::string>();
      next.varies = layer.at("free").get<bool>();
      next.padding_word = layer.at("word").get<std::string>();
      chained.push_back(std::move(next));
    }
    // The layers in the order of their construction, which a seed's numbers follow.
    module.chain.resize(chained.size());
    for (std::size_t at = 0; at < chained.size(); ++at)
      for (std::size_t i = 0; i < chained.size(); ++i)
        if (answer_.at("chain").at(i).at(0) == at) {
          module.chain[i] = at;
          module.layers.push_back(chained[i]);
        }
    return module;
  }

 private:
  static void refuse_slow(const json& layer) {
    const auto kind = layer.at("kind").get<std::string>();
    const std::string why = kind.starts_with("ConvTranspose") ? "a transposed convolution"
                            : layer.at("rank") == 3           ? "three dimensions"
                                                              : "";
    if (!why.empty())
      throw Error(
          ErrorKind::unsupported,
          fmt::format("{}: no fast kernel of ours runs {} yet, so none is written", place_of(layer), why));
  }

  ConvProblem known(const json& layer) const {
    if (const auto why = layer.at("unknown").get<std::string>(); !why.empty())
      throw bad(fmt::format("{}: {}", place_of(layer), why));
    return problem_of(layer);
  }

  ConvProblem first_problem(const json& layer) const {
    if (options_.problem) {
      if (answer_.at("layers").size() > 1)
        throw bad(fmt::format("{} is one of {} convolutions, and a problem names one", place_of(layer),
                              answer_.at("layers").size()));
      check_given(layer, *options_.problem);
      return *options_.problem;
    }
    ConvProblem problem = known(layer);
    const json& input = answer_.at("input");
    if (input.is_null())
      throw bad(fmt::format("{}: the size of its input is not known: the file has no get_inputs()",
                            place_of(layer)));
    const auto shape = input.at("shape").get<std::vector<std::int64_t>>();
    if (shape.size() != layer.at("rank").get<std::size_t>() + 2 || shape[1] != problem.c)
      throw bad(
          fmt::format("{}: get_inputs() gives a tensor of {}", place_of(layer), input.at("shape").dump()));
    problem.n = shape[0], problem.h = shape.size() > 3 ? shape[2] : 1, problem.w = shape.back();
    problem.dtype = parse_dtypes(input.at("dtype").get<std::string>());
    return problem;
  }

  ConvProblem behind(const ConvProblem& before, const json& layer) const {
    ConvProblem problem = known(layer);
    if (problem.c != before.k)
      throw bad(fmt::format("{} takes {} channels, and {} come to it", place_of(layer), problem.c, before.k));
    problem.n = before.n, problem.h = before.p(), problem.w = before.q();
    problem.dtype = before.dtype, problem.layout = before.layout, problem.precision = before.precision;
    return problem;
  }

  const json& answer_;
  const ReadModuleOptions& options_;
};

}  // namespace

std::optional<ExportModule> read_module(const std::string& source, const ReadModuleOptions& options) {
  const json answer = asked(source, options);
  try {
    if (!answer.at("found").get<bool>()) return std::nullopt;
    if (const auto more = answer.find("more"); more != answer.end())
      throw Error(ErrorKind::unsupported, more->get<std::string>());
    return Reading(answer, options).module();
  } catch (const json::exception& error) {
    throw bad(fmt::format("Python could not read the class: {}", error.what()));
  }
}

}  // namespace convtune
