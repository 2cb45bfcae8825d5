// read_module(): what src/triton/runner/module_class.py reads of a class, as a module of problems.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/quoted.h"
#include "convtune/error.h"
#include "convtune/export.h"
#include "export/export_template.h"
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

bool is_transposed(const json& layer) {
  return layer.at("kind").get<std::string>().starts_with("ConvTranspose");
}

// A layer's numbers as a problem of a tensor that is not known yet.
ConvProblem problem_of(const json& layer) {
  const json& values = layer.at("values");
  const auto first = [&](const char* name) { return values.at(name).at(0).get<std::int64_t>(); };
  // Along columns, rows and frames; `without` where the layer has no such axis.
  const auto axes = [&](const char* name, std::int64_t without) {
    auto found = values.at(name).get<std::vector<std::int64_t>>();
    std::ranges::reverse(found);
    found.resize(3, without);
    return std::array{found[0], found[1], found[2]};
  };
  ConvProblem a;
  a.c = first("in_channels"), a.k = first("out_channels");
  std::tie(a.s, a.r, a.t) = std::tuple_cat(axes("kernel_size", 1));
  std::tie(a.stride_w, a.stride_h, a.stride_d) = std::tuple_cat(axes("stride", 1));
  std::tie(a.pad_left, a.pad_top, a.pad_front) = std::tuple_cat(axes("padding", 0));
  a.pad_right = a.pad_left, a.pad_bottom = a.pad_top, a.pad_back = a.pad_front;
  std::tie(a.dilation_w, a.dilation_h, a.dilation_d) = std::tuple_cat(axes("dilation", 1));
  a.groups = first("groups"), a.bias = first("bias") != 0;
  return a;
}

// The problem of a layer whose input has these sizes, given its numbers; a transposed layer's are those of
// the convolution that it transposes.
ConvProblem fed(ConvProblem a, const json& layer, const std::array<std::int64_t, 3>& sizes) {
  const auto& [d, h, w] = sizes;
  if (!is_transposed(layer)) {
    a.d = d, a.h = h, a.w = w;
    return a;
  }
  a.direction = Direction::backward_data;
  std::swap(a.c, a.k);
  auto more = layer.at("values").at("output_padding").get<std::vector<std::int64_t>>();
  std::ranges::reverse(more);
  more.resize(3, 0);
  // Padding of the output may reach the stride, beside a dilation: then that behind the image is smaller.
  const auto size = [](std::int64_t in, std::int64_t taps, std::int64_t stride, std::int64_t dilation,
                       std::int64_t pad, std::int64_t& behind, std::int64_t added) {
    behind -= added / stride * stride;
    return (in - 1) * stride - 2 * pad + dilation * (taps - 1) + 1 + added;
  };
  a.d = size(d, a.t, a.stride_d, a.dilation_d, a.pad_front, a.pad_back, more[2]);
  a.h = size(h, a.r, a.stride_h, a.dilation_h, a.pad_top, a.pad_bottom, more[1]);
  a.w = size(w, a.s, a.stride_w, a.dilation_w, a.pad_left, a.pad_right, more[0]);
  return a;
}

// The name of the layer's class and where it stands: "line 9: nn.Conv2d 'conv1'".
std::string place_of(const json& layer) {
  return fmt::format("line {}: nn.{} {}", layer.at("line").get<int>(), layer.at("kind").get<std::string>(),
                     convtune::quoted(layer.at("name").get<std::string>()));
}

// The numbers of the layer that are known are those of the problem that was given for it.
void check_given(const json& layer, const ConvProblem& given) {
  const auto rank = layer.at("rank").get<int>();
  const bool flat = rank == 3 || (given.d == 1 && given.t == 1);
  if (!flat || is_transposed(layer) != (given.direction == Direction::backward_data) ||
      given.direction == Direction::backward_weights)
    throw bad(fmt::format("{} is not {}", place_of(layer), to_string(given)));
  const LayerShape shape(given);
  const auto all = [](const Extents& extents) { return std::vector(extents.begin(), extents.end()); };
  const std::vector<std::pair<const char*, std::vector<std::int64_t>>> numbers = {
      {"in_channels", {shape.in_channels}}, {"out_channels", {shape.out_channels}},
      {"kernel_size", all(shape.filter)},   {"stride", all(shape.stride)},
      {"padding", all(shape.padding)},      {"output_padding", all(shape.output_padding)},
      {"dilation", all(shape.dilation)},    {"groups", {given.groups}},
      {"bias", {given.bias ? 1 : 0}}};
  for (const auto& [name, of_given] : numbers) {
    const auto found = layer.at("values").find(name);
    if (found == layer.at("values").end()) continue;
    const auto known = found->get<std::vector<std::int64_t>>();
    if (!std::equal(known.rbegin(), known.rend(), of_given.rbegin()))
      throw bad(
          fmt::format("{} is not {}: its {} is {}", place_of(layer), to_string(given), name, found->dump()));
  }
  if (rank == 1 && (given.h != 1 || given.r != 1))
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
      ExportLayer next(chained.empty() ? first_problem(layer) : behind(chained.back().problem, layer));
      if (step.at(1).get<bool>()) next.problem.activation = Activation::relu;
      validate(next.problem);
      next.name = layer.at("name").get<std::string>();
      next.rank = layer.at("rank").get<int>();
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
    problem.n = shape[0];
    problem.dtype = parse_dtypes(input.at("dtype").get<std::string>());
    const std::size_t rank = shape.size() - 2;
    return fed(problem, layer, {rank > 2 ? shape[2] : 1, rank > 1 ? shape[rank] : 1, shape.back()});
  }

  ConvProblem behind(const ConvProblem& before, const json& layer) const {
    ConvProblem problem = known(layer);
    const LayerShape from(before);
    if (problem.c != from.out_channels)
      throw bad(fmt::format("{} takes {} channels, and {} come to it", place_of(layer), problem.c,
                            from.out_channels));
    problem.n = before.n;
    problem.dtype = before.dtype, problem.layout = before.layout, problem.precision = before.precision;
    return fed(problem, layer, from.output);
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
