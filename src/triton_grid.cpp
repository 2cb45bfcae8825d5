// From a wrapper's arithmetic to a grid, and from a grid to a config. Names are understood as wrappers round
// a convolution use them: `x` and `weight` are the tensors, `stride` is the stride.
#include "triton_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "convtune/cases.h"
#include "convtune/error.h"
#include "python_values.h"
#include "quoted.h"

namespace convtune {
namespace {

using Kind = PythonToken::Kind;

// What a name means by itself in a wrapper round a convolution.
PythonValue by_name(std::string_view name, const Conv2dProblem& a) {
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  using Type = PythonValue::Type;
  if (is({"x", "input", "inp", "inputs", "input_tensor"}))
    return a.layout == Layout::nchw ? PythonValue{Type::tensor, {a.n, a.c, a.h, a.w}}
                                    : PythonValue{Type::tensor, {a.n, a.h, a.w, a.c}};
  if (is({"w", "weight", "weights"})) return {Type::tensor, {a.k, a.c / a.groups, a.r, a.s}};
  if (is({"b", "bias"})) return {Type::tensor, {a.k}};
  if (is({"stride"})) return {Type::tuple, {a.stride_h, a.stride_w}};
  if (is({"padding"})) return {Type::tuple, {a.pad_top, a.pad_left}};
  if (is({"dilation"})) return {Type::tuple, {a.dilation_h, a.dilation_w}};
  if (is({"kernel_size"})) return {Type::tuple, {a.r, a.s}};
  if (is({"groups"})) return PythonValue::of(a.groups);
  if (is({"in_channels"})) return PythonValue::of(a.c);
  if (is({"out_channels"})) return PythonValue::of(a.k);
  return {};
}

// Where the kernel is launched: its name, then '['.
std::vector<const PythonToken*> launches(const TritonSource& source) {
  std::vector<const PythonToken*> all;
  const auto& tokens = source.tokens();
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    if (tokens[i].is(source.kernel()) && tokens[i + 1].is("[")) all.push_back(&tokens[i]);
  return all;
}

// The innermost def round a token: its own tokens, from "def" on.
PythonTokens def_round(const TritonSource& source, const PythonToken& launch) {
  const auto& tokens = source.tokens();
  struct Open {
    std::size_t def;
    int depth;
  };
  std::vector<Open> open;
  int depth = 0;
  std::size_t pending = tokens.size();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].is("def")) pending = i;
    if (tokens[i].kind == Kind::indent) {
      ++depth;
      if (pending < i) open.push_back({pending, depth});
      pending = tokens.size();
    }
    if (tokens[i].kind == Kind::dedent) {
      if (!open.empty() && open.back().depth == depth) open.pop_back();
      --depth;
    }
    if (&tokens[i] == &launch)
      return open.empty() ? PythonTokens() : PythonTokens(tokens).subspan(open.back().def);
  }
  return {};
}

PythonValue grid_value(const TritonSource& source, const TritonConfig& config, const Conv2dProblem& problem) {
  const auto found = launches(source);
  const int line = found.empty() ? 1 : found.back()->line;
  if (found.size() != 1)
    fail_at_line(line,
                 fmt::format("{} is launched at {} places", convtune::quoted(source.kernel()), found.size()));
  const PythonToken& launch = *found[0];
  const PythonTokens def = def_round(source, launch);
  if (def.size() < 3 || !def[2].is("(")) fail_at_line(line, "the kernel is not launched from a function");

  PythonScope scope;
  scope.by_name = [&](std::string_view name) { return by_name(name, problem); };
  for (const auto& [name, text] : config.meta)
    if (const auto value = whole_number({Kind::number, text, 1, 0}); value >= 0) scope.meta[name] = value;
  const std::size_t header = after_bracket(def, 2);
  for (std::size_t i = 3; i < header; ++i)
    if (def[i].kind == Kind::name && (def[i - 1].is("(") || def[i - 1].is(",")))
      scope.values[std::string(def[i].text)] = by_name(def[i].text, problem);
  std::size_t body = header;
  while (body < def.size() && def[body].kind != Kind::line_end) ++body;
  follow(def.subspan(std::min(body + 1, def.size())), &launch, scope);

  const PythonTokens after =
      PythonTokens(source.tokens()).subspan(static_cast<std::size_t>(&launch - source.tokens().data()) + 1);
  PythonTokens grid = after.subspan(1, after_bracket(after, 0) - 2);
  PythonFunction function;
  if (grid.size() == 1 && scope.functions.contains(grid[0].text))
    function = scope.functions.find(grid[0].text)->second;
  else if (grid.size() > 3 && grid[0].is("lambda") && grid[2].is(":"))
    function = {std::string(grid[1].text), grid.subspan(3), true};
  if (!function.parameter.empty()) {
    scope.values[function.parameter] = {PythonValue::Type::meta, {}};
    grid = function.is_lambda ? function.body : follow(function.body, nullptr, scope);
  }
  if (grid.empty()) fail_at_line(line, "the grid is no expression");
  return evaluate(grid, scope);
}

// A literal nn.Conv2d: extents of the layer alone. `call` begins with its '('.
std::optional<Conv2dProblem> layer_of(PythonTokens call) {
  constexpr std::array<std::string_view, 8> kNames = {"in_channels", "out_channels", "kernel_size", "stride",
                                                      "padding",     "dilation",     "groups",      "bias"};
  std::array<std::array<std::int64_t, 2>, 8> values = {
      {{0, 0}, {0, 0}, {0, 0}, {1, 1}, {0, 0}, {1, 1}, {1, 1}, {1, 1}}};
  const std::size_t close = after_bracket(call, 0) - 1;
  for (std::size_t begin = 1, position = 0; begin < close; ++position) {
    std::size_t end = begin;
    while (end < close && !call[end].is(","))
      end = call[end].is("(") || call[end].is("[") ? after_bracket(call, end) : end + 1;
    PythonTokens value = call.subspan(begin, end - begin);
    begin = end + 1;
    std::size_t which = position;
    if (value.size() > 2 && value[1].is("=")) {
      which =
          static_cast<std::size_t>(std::find(kNames.begin(), kNames.end(), value[0].text) - kNames.begin());
      value = value.subspan(2);
    }
    if (which >= values.size() || value.empty()) return std::nullopt;
    if (value[0].is("True") || value[0].is("False")) {
      values[which] = {value[0].is("True"), value[0].is("True")};
      continue;
    }
    try {
      const PythonValue number = evaluate(value, PythonScope{});
      const bool pair = number.type == PythonValue::Type::tuple && number.numbers.size() == 2;
      if (number.type != PythonValue::Type::number && !pair) return std::nullopt;
      values[which] = {number.numbers[0], number.numbers.back()};
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  Conv2dProblem layer;
  layer.c = values[0][0], layer.k = values[1][0];
  layer.r = values[2][0], layer.s = values[2][1];
  layer.stride_h = values[3][0], layer.stride_w = values[3][1];
  layer.pad_top = layer.pad_bottom = values[4][0], layer.pad_left = layer.pad_right = values[4][1];
  layer.dilation_h = values[5][0], layer.dilation_w = values[5][1];
  layer.groups = values[6][0], layer.bias = values[7][0] != 0;
  return layer;
}

bool same_layer(const Conv2dProblem& problem, const Conv2dProblem& layer) {
  Conv2dProblem here = layer;
  here.n = problem.n, here.h = problem.h, here.w = problem.w;
  here.dtype = problem.dtype, here.layout = problem.layout, here.precision = problem.precision;
  here.activation = problem.activation;
  return here == problem;
}

}  // namespace

TritonGrid grid_of(const TritonSource& source, const TritonConfig& config, const Conv2dProblem& problem) {
  try {
    const PythonValue value = grid_value(source, config, problem);
    std::int64_t blocks = 1;
    for (const std::int64_t extent : value.numbers)
      if (extent < 1 || __builtin_mul_overflow(blocks, extent, &blocks))
        return {{}, "the grid is empty or too large"};
    return {blocks, {}};
  } catch (const Error& error) {
    return {{}, error.what()};
  }
}

std::vector<Conv2dProblem> cases_of(const TritonSource& source) {
  std::vector<Conv2dProblem> found;
  const PythonTokens tokens(source.tokens());
  for (std::size_t i = 0; i + 2 < tokens.size(); ++i) {
    if (!tokens[i].is("Conv2d") || !tokens[i + 1].is("(")) continue;
    const auto layer = layer_of(tokens.subspan(i + 1));
    if (!layer) continue;
    for (const Suite& suite : suites())
      for (const Conv2dProblem& problem : suite.problems)
        if (same_layer(problem, *layer)) found.push_back(problem);
  }
  return found;
}

Profiled profiled_configs(const TritonSource& source, std::int64_t grid,
                          const std::vector<Conv2dProblem>& problems) {
  Profiled result;
  if (problems.empty())
    result.why_none =
        "what was convolved is not known: name it with --problem, or the config with --original";
  for (const Conv2dProblem& problem : problems) {
    std::vector<const TritonConfig*> fitting;
    std::string grids;
    for (const TritonConfig& config : source.configs()) {
      const TritonGrid answer = grid_of(source, config, problem);
      if (!answer.blocks) {
        result.why_none = "the grid cannot be worked out from the file: " + answer.why_not;
        return result;
      }
      if (*answer.blocks == grid) fitting.push_back(&config);
      const std::string text = fmt::format("{}", *answer.blocks);
      if (grids.find(text) == grids.npos) grids += (grids.empty() ? "" : ", ") + text;
    }
    if (fitting.empty()) {
      if (result.configs.empty())
        result.why_none = fmt::format("no config launches {} blocks for {}; they launch {}", grid,
                                      problem.name.empty() ? to_string(problem) : problem.name, grids);
    } else if (result.configs.empty()) {
      result.configs = fitting, result.problem = problem, result.why_none.clear();
    } else if (result.configs != fitting) {
      result.configs.clear();
      result.why_none =
          fmt::format("a grid of {} fits other configs for {} than for {}: say which with --problem", grid,
                      result.problem.name, problem.name);
      return result;
    }
  }
  return result;
}

}  // namespace convtune
