// See problem_words.h; benchdnn's own words are those of its drivers' documentation.
#include "problem/problem_words.h"

#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "base/quoted.h"
#include "convtune/error.h"
#include "problem/activation.h"

namespace convtune {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::invalid_argument, why);
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

float read_float(std::string_view text) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::isnan(value))
    refuse(fmt::format("{} is not a number", quoted(text)));
  return value;
}

// "clip:0:6", "leaky_relu:0.01", "silu".
void read_activation(std::string_view text, ConvProblem& problem) {
  const std::vector<std::string_view> parts = split(text, ':');
  problem.activation = parse_activation(parts[0]);
  const ActivationRow& row = activation_row(problem.activation);
  const std::size_t parameters = row.parameters();
  if (parts.size() != 1 + parameters)
    refuse(fmt::format("act {} has {} parameters behind colons, not {}: {}", parts[0], parameters,
                       parts.size() - 1, row.usage));
  if (parameters > 0) problem.alpha = read_float(parts[1]);
  if (parameters > 1) problem.beta = read_float(parts[2]);
}

void read_direction(std::string_view text, ConvProblem& problem) {
  const bool transposed = text == "transposed";
  problem.direction = transposed ? Direction::backward_data : parse_direction(text);
  problem.bias = transposed || problem.direction != Direction::backward_data;
}

void read_benchdnn_direction(std::string_view text, ConvProblem& problem) {
  problem.bias = text == "FWD_B" || text == "BWD_WB";
  if (text == "FWD_B" || text == "FWD_D" || text == "FWD_I")
    problem.direction = Direction::forward;
  else if (text == "BWD_D")
    problem.direction = Direction::backward_data;
  else if (text == "BWD_W" || text == "BWD_WB")
    problem.direction = Direction::backward_weights;
  else
    refuse(fmt::format("--dir {} is not one of FWD_B, FWD_D, FWD_I, BWD_D, BWD_W, BWD_WB", quoted(text)));
}

// One of benchdnn's element-wise post-ops, where it is one of our activations.
void read_eltwise(std::string_view text, ConvProblem& problem) {
  const std::vector<std::string_view> parts = split(text, ':');
  const auto parameter = [&](std::size_t i) { return parts.size() > i ? read_float(parts[i]) : 0.0F; };
  const float alpha = parameter(1), beta = parameter(2);
  const auto is = [&](std::string_view name, bool parameters_fit) {
    return parts[0] == name && parameters_fit;
  };
  constexpr float kNear = 1e-4F;  // 0.1667 is meant to be a sixth
  const bool plain = alpha == 0 && beta == 0;
  if (parts.size() > 3)
    refuse(fmt::format("{} has more parameters than alpha and beta", quoted(text)));
  else if (is("relu", plain))
    problem.activation = Activation::relu;
  else if (is("relu", beta == 0))
    problem.activation = Activation::leaky_relu, problem.alpha = alpha;
  else if (is("clip", true) || is("clip_v2", true))
    problem.activation = Activation::clip, problem.alpha = alpha, problem.beta = beta;
  else if (is("swish", alpha == 1 && beta == 0))
    problem.activation = Activation::silu;
  else if (is("gelu_erf", plain))
    problem.activation = Activation::gelu_erf;
  else if (is("gelu_tanh", plain))
    problem.activation = Activation::gelu_tanh;
  else if (is("hardswish", std::abs(alpha - 1.0F / 6) < kNear && beta == 0.5F))
    problem.activation = Activation::hardswish;
  else if (is("logistic", plain))
    problem.activation = Activation::sigmoid;
  else
    refuse(
        fmt::format("{} is none of relu[:SLOPE], clip:LOW:HIGH, swish:1, gelu_erf, gelu_tanh, "
                    "hardswish:0.16667:0.5, logistic",
                    quoted(text)));
}

// "sum+relu": the residual, then the activation.
void read_post_ops(std::string_view text, ConvProblem& problem) {
  std::vector<std::string_view> ops = split(text, '+');
  if (ops.front() == "sum" || ops.front() == "sum:1") {
    problem.residual = true;
    ops.erase(ops.begin());
  }
  if (ops.size() > 1)
    refuse(fmt::format("post-ops {}: there is room for a sum, then one activation", quoted(text)));
  if (!ops.empty()) read_eltwise(ops[0], problem);
}

bool read_flag(const ProblemLine& line, std::string_view key, const Word& word) {
  if (word.value != "0" && word.value != "1")
    line.fail_at(word.position, fmt::format("{} is 0 or 1, not {}", key, quoted(word.value)));
  return word.value == "1";
}

// Words of ours and those of benchdnn's that say the same.
constexpr std::pair<std::string_view, std::string_view> kSame[] = {
    {"dtype", "--dt"}, {"dir", "--dir"}, {"act", "--attr-post-ops"}, {"residual", "--attr-post-ops"}};

}  // namespace

void apply_words(const ProblemLine& line, ConvProblem& problem) {
  for (const auto& [ours, benchdnns] : kSame)
    if (line.words.contains(ours) && line.words.contains(benchdnns))
      line.fail_at(line.words.at(benchdnns).position, fmt::format("'{}' is given too", ours));
  for (const auto& [key, word] : line.words) {
    try {
      if (key == "precision") problem.precision = parse_precision(word.value);
      if (key == "layout") problem.layout = parse_layout(word.value);
      if (key == "dtype" || key == "--dt") problem.dtype = parse_dtypes(word.value);
      if (key == "dir") read_direction(word.value, problem);
      if (key == "--dir") read_benchdnn_direction(word.value, problem);
      if (key == "act") read_activation(word.value, problem);
      if (key == "--attr-post-ops") read_post_ops(word.value, problem);
      if (key == "rounding") problem.rounding = parse_rounding(word.value);
      if (key == "snake") problem.snake = parse_snake(word.value);
    } catch (const Error& error) {
      line.fail_at(word.position, error.what());
    }
    if (key == "residual") problem.residual = read_flag(line, key, word);
    if (key == "pad_back") problem.pad_back = line.parse_number(word.value, key, word.position);
    if (key == "pad_bottom") problem.pad_bottom = line.parse_number(word.value, key, word.position);
    if (key == "pad_right") problem.pad_right = line.parse_number(word.value, key, word.position);
    if (key == "cache") problem.cache = line.parse_number(word.value, key, word.position);
  }
  // After the direction, which has a default for it.
  if (const auto bias = line.words.find("bias"); bias != line.words.end())
    problem.bias = read_flag(line, "bias", bias->second);
}

std::string words_of(const ConvProblem& problem) {
  const ConvProblem standard;
  std::string words;
  const auto add = [&](std::string_view key, const auto& value, bool is_default) {
    if (!is_default) words += fmt::format(" {}={}", key, value);
  };
  // Equal problems have one text: 0 is added because -0 equals it.
  std::string activation(to_string(problem.activation));
  const std::size_t parameters = activation_row(problem.activation).parameters();
  if (parameters > 0) activation += fmt::format(":{}", problem.alpha + 0.0F);
  if (parameters > 1) activation += fmt::format(":{}", problem.beta + 0.0F);
  const bool usual_bias = problem.direction != Direction::backward_data;

  add("precision", to_string(problem.precision), problem.precision == standard.precision);
  add("layout", to_string(problem.layout), problem.layout == standard.layout);
  add("dtype", to_string(problem.dtype), problem.dtype == standard.dtype);
  add("dir", to_string(problem.direction), problem.direction == standard.direction);
  add("act", activation, problem.activation == standard.activation);
  add("bias", problem.bias ? 1 : 0, problem.bias == usual_bias);
  add("residual", 1, !problem.residual);
  add("rounding", to_string(problem.rounding), problem.rounding == standard.rounding);
  add("snake", to_string(problem.snake), problem.snake == standard.snake);
  add("pad_back", problem.pad_back, problem.pad_back == problem.pad_front);
  add("pad_bottom", problem.pad_bottom, problem.pad_bottom == problem.pad_top);
  add("pad_right", problem.pad_right, problem.pad_right == problem.pad_left);
  add("cache", problem.cache, problem.cache == 0);
  return words;
}

}  // namespace convtune
