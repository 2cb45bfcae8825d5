// Shared options and their parsers; every refusal names the word and shows a right one.
#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "convtune/cases.h"
#include "convtune/error.h"
#include "directions.h"
#include "output.h"
#include "table.h"

namespace convtune::cli {
namespace {

// Stands for "no limit" where a budget counts trials; finite, so that estimates stay numbers.
constexpr double kNoLimitSeconds = 7 * 86400.0;

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

// A number, and the text after it without the blanks between.
struct Quantity {
  double value = 0;
  std::string_view unit;
};

std::optional<Quantity> parse_quantity(std::string_view text) {
  Quantity quantity;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, quantity.value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(quantity.value)) return std::nullopt;
  quantity.unit = text.substr(static_cast<std::size_t>(rest - text.data()));
  const auto unit_start = quantity.unit.find_first_not_of(' ');
  quantity.unit = unit_start == std::string_view::npos ? "" : quantity.unit.substr(unit_start);
  return quantity;
}

// "act=relu", but neither `mb1…n"a=b"`, with or without its quotes, nor a whole quoted line with options of
// its own.
bool is_key_value(const std::string& word) {
  const auto mark = word.find_first_of("=\" 0123456789");
  return mark != std::string::npos && word[mark] == '=';
}

std::int64_t left_out_by_now = 0;

const ConvProblem* built_in_case(std::string_view name) {
  for (const Suite& suite : suites())
    for (const ConvProblem& problem : suite.problems)
      if (problem.name == name) return &problem;
  return nullptr;
}

}  // namespace

std::string python_program() {
  const char* const named = ::secure_getenv("CONVTUNE_PYTHON");
  return named != nullptr && *named != '\0' ? named : "python3";
}

Error bad(const std::string& message) {
  return Error(ErrorKind::invalid_argument, message);
}

CLI::Option* add_whole_number(CLI::App& app, const std::string& name, std::optional<std::int64_t>& target,
                              std::int64_t low, std::int64_t high, const std::string& description) {
  const auto read = [name, low, high, &target](const std::string& text) {
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || rest != end || value < low || value > high)
      throw CLI::ValidationError(name,
                                 fmt::format("'{}' is not a whole number from {} to {}", text, low, high));
    target = value;
  };
  return app.add_option_function<std::string>(name, read, description)->type_name("N");
}

CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& target,
                        const std::vector<std::string>& choices, const std::string& description) {
  const auto read = [name, choices, &target](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end())
      throw CLI::ValidationError(
          name, fmt::format("'{}' is not known; there {} {}", text, choices.size() > 1 ? "are" : "is",
                            fmt::join(choices, ", ")));
    target = text;
  };
  return app.add_option_function<std::string>(name, read, description)
      ->type_name(fmt::format("{}", fmt::join(choices, "|")))
      ->default_str(target);
}

void add_way(CLI::App& app, std::string& algorithm, std::string& config, const std::string& verb) {
  CLI::Option* named =
      app.add_option("--algorithm", algorithm, verb + " this algorithm")->type_name("ALGORITHM");
  app.add_option("--config", config, verb + " this config, as in \"vectors=4 channels=6\"")
      ->type_name("CONFIG")
      ->needs(named);
}

void add_output(CLI::App& app, std::string& path, const std::string& where) {
  app.add_option("--output,-o", path, where + " (- is standard output)")
      ->type_name("FILE")
      ->group(group::kOutput)
      ->capture_default_str();
}

void begin_group(CLI::App& app, const char* title) {
  app.option_defaults()->group(title);
}

void add_color(CLI::App& app) {
  static std::string when;
  begin_group(app, group::kOthers);
  add_choice(app, "--color", when, {"auto", "always", "never"},
             "Colors: auto has them on a terminal, unless NO_COLOR is set")
      ->default_str("auto")
      ->each([](const std::string& word) {
        set_color(word == "always" ? Color::always : word == "never" ? Color::never : Color::automatic);
      });
  for (CLI::App* one : app.get_subcommands([](CLI::App*) { return true; })) add_color(*one);
}

void refuse_empty_names(CLI::App& app) {
  constexpr std::array<std::string_view, 7> kNames = {"FILE",      "PROGRAM", "SUITE",  "TARGET",
                                                      "ALGORITHM", "NAME",    "DEVICES"};
  for (CLI::Option* const option : app.get_options())
    if (std::find(kNames.begin(), kNames.end(), option->get_type_name()) != kNames.end() ||
        option->get_name() == "FILE")
      option->check([](const std::string& word) { return std::string(word.empty() ? "'' is no name" : ""); },
                    "");
  for (CLI::App* one : app.get_subcommands([](CLI::App*) { return true; })) refuse_empty_names(*one);
}

Budget parse_budget(std::string_view text) {
  const auto fail = [&](std::string_view why) {
    return bad(fmt::format("--budget '{}' {}; write 90s, 1.5m, 500ms or 200t (trials)", text, why));
  };
  const auto quantity = parse_quantity(text);
  if (!quantity) throw fail("is not a number with a unit");
  const auto [value, unit] = *quantity;
  if (value <= 0) throw fail("is not above 0");
  if (unit == "t" || unit == "trial" || unit == "trials") {
    if (value != std::floor(value) || value > 1e12) throw fail("is not a whole number of trials");
    return {kNoLimitSeconds, static_cast<std::int64_t>(value)};
  }
  if (unit.empty()) throw fail("has no unit");
  const double scale = unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "m" ? 60 : 0;
  if (scale == 0) throw fail(fmt::format("has the unknown unit '{}'", unit));
  if (value * scale > kNoLimitSeconds) throw fail("is more than a week");
  return {value * scale, 0};
}

double parse_share(std::string_view text) {
  const auto quantity = parse_quantity(text);
  const bool percent = quantity && quantity->unit == "%";
  if (!quantity || !(percent || quantity->unit.empty()))
    throw bad(fmt::format("'{}' is not a share; write 2% or 0.02", text));
  const double share = percent ? quantity->value / 100 : quantity->value;
  if (share < 0 || share >= 1)
    throw bad(fmt::format("'{}' is {:g} %, outside 0 % to 100 %; write 2% or 0.02", text, 100 * share));
  return share;
}

std::vector<ConvProblem> parse_problem_words(const std::vector<std::string>& words) {
  std::vector<ConvProblem> problems;
  for (std::size_t i = 0; i < words.size();) {
    const std::string& head = words[i++];
    std::string extras;
    while (i < words.size() && is_key_value(words[i])) extras += ' ' + words[i++];
    // A problem line is parsed together with its words, which may be what makes it valid.
    const ConvProblem* known = extras.empty() ? nullptr : built_in_case(head);
    problems.push_back(known ? parse_problem(to_string(*known) + extras) : find_problem(head + extras));
  }
  return problems;
}

ConvProblem one_problem(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; (begin = text.find_first_not_of(' ', begin)) != text.npos;) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  const std::vector<ConvProblem> problems = parse_problem_words(words);
  if (problems.size() != 1)
    throw bad(fmt::format("'{}' names {} problems; one is expected", text, problems.size()));
  return problems[0];
}

std::vector<ConvProblem> suite_problems(const std::string& name_or_path) {
  constexpr std::size_t kSaid = 20;
  std::vector<std::string> left_out;
  std::vector<ConvProblem> problems = load_suite(name_or_path, &left_out);
  for (std::size_t i = 0; i < std::min(left_out.size(), kSaid); ++i) print_warning(printable(left_out[i]));
  if (left_out.size() > kSaid)
    print_warning(
        fmt::format("... and {} more lines of {}", left_out.size() - kSaid, printable(name_or_path)));
  left_out_by_now += static_cast<std::int64_t>(left_out.size());
  return problems;
}

std::string suite_help() {
  std::string names;
  for (const std::string& name : suite_names()) names += name + ", ";
  return names + "all, or of a file";
}

std::int64_t lines_left_out() {
  return left_out_by_now;
}

std::string label(const ConvProblem& problem) {
  return problem.name.empty() ? to_string(problem) : problem.name;
}

// "input=1x3x224x224"; a name may hold a '=' of its own.
std::pair<std::string, std::vector<std::int64_t>> parse_shape(const std::string& text) {
  const auto fail = [&] {
    return bad(fmt::format("--shape '{}' is no shape of an input; write input=1x3x224x224", printable(text)));
  };
  const std::size_t mark = text.rfind('=');
  if (mark == text.npos || mark == 0) throw fail();
  std::vector<std::int64_t> extents;
  const char* at = text.data() + mark + 1;
  const char* const end = text.data() + text.size();
  while (true) {
    std::int64_t extent = -1;
    const auto [rest, error] = std::from_chars(at, end, extent);
    if (error != std::errc() || extent < 0 || (rest != end && *rest != 'x')) throw fail();
    extents.push_back(extent);
    if (rest == end) return {text.substr(0, mark), extents};
    at = rest + 1;
  }
}

void ProblemOptions::add_to(CLI::App& app) {
  begin_group(app, group::kWhat);
  app.add_option("PROBLEM", words,
                 "Case names or benchdnn lines; words like precision=tf32 act=relu belong to the one before");
  app.add_option("--suite", suite, "All problems of " + suite_help())->type_name("SUITE");
  add_model_to(app)->excludes("PROBLEM")->excludes("--suite");
  begin_group(app, group::kHow);
}

CLI::Option* ProblemOptions::add_model_to(CLI::App& app) {
  add_whole_number(app, "--batch", batch, 0, kLargest, "Use this batch size instead of the problem's (mb)");
  add_choice(app, "--dtype", dtype, {"f32", "f16", "bf16"}, "Use this element type instead of the problem's");
  add_choice(app, "--layout", layout, {"nchw", "nhwc"}, "Use this layout instead of the problem's");
  add_choice(app, "--dir", dir, {"fwd", "bwd_d", "bwd_w"},
             "Use this direction instead of the problem's: forward, the gradient of x, that of w");
  CLI::Option* of_model =
      app.add_option("--model", model, "The convolutions of an ONNX file, or of a list by `cases --json`")
          ->type_name("FILE");
  app.add_option("--shape", shapes, "Of a model's input that it leaves open: input=1x3x224x224")
      ->type_name("NAME=SHAPE")
      ->needs(of_model);
  app.add_option("--python", python, "The Python that has the package onnx, which reads the model")
      ->type_name("PROGRAM")
      ->capture_default_str()
      ->needs(of_model);
  return of_model;
}

void ProblemOptions::add_train_to(CLI::App& app) {
  app.add_flag(
         "--train", train,
         "All that training runs of each layer: it alone and its gradients, of x not for a model's first "
         "layer of up to 4 channels")
      ->group(group::kWhat)
      ->excludes("--dir");
}

Model ProblemOptions::read() const {
  ModelOptions options;
  options.batch = batch;
  options.python = python;
  for (const std::string& text : shapes) options.shapes.push_back(parse_shape(text));
  Model found = read_model(model, options);
  for (const SkippedLayers& one : found.skipped)
    print_warning(printable(fmt::format(
        "skipped {} ({}{}): {}", one.count == 1 ? one.what : fmt::format("{} of {}", one.count, one.what),
        one.layers.empty() ? "" : one.layers.front(),
        one.layers.size() > 1 ? fmt::format(" and {} more", one.layers.size() - 1) : "", one.why)));
  return found;
}

ConvProblem ProblemOptions::changed(ConvProblem problem) const {
  if (batch && model.empty()) problem.n = *batch;  // a model's batch is its inputs'
  if (!dtype.empty()) problem.dtype = parse_dtypes(dtype);
  if (!layout.empty()) problem.layout = parse_layout(layout);
  if (!dir.empty()) problem = in_direction(std::move(problem), parse_direction(dir));
  validate(problem);
  return problem;
}

void ProblemOptions::train_all(Asked& found) const {
  std::vector<ConvProblem> problems;
  std::vector<ModelConvolution> convolutions;
  for (std::size_t i = 0; i < found.problems.size(); ++i) {
    const ConvProblem& one = found.problems[i];
    const bool is_transposed = one.direction == Direction::backward_data &&
                               (found.model || one.bias || one.activation != Activation::none);
    std::vector<ConvProblem> all = {one};  // a gradient stays what it is
    if (one.direction == Direction::forward || is_transposed)
      all = of_training(one, found.model && i == 0 && one.c <= 4);
    for (ConvProblem& problem : all) {
      if (found.model) {
        ModelConvolution part = found.model->convolutions[i];
        part.problem = problem;
        for (std::string& layer : part.layers) layer += problem.name.substr(one.name.size());
        convolutions.push_back(std::move(part));
      }
      problems.push_back(std::move(problem));
    }
  }
  found.problems = std::move(problems);
  if (found.model) found.model->convolutions = std::move(convolutions);
}

Asked ProblemOptions::asked() const {
  if (empty())
    throw bad(
        "no problem given: name a case (see `convtune cases`), write a benchdnn line, or use --suite or "
        "--model");
  Asked found;
  std::vector<ConvProblem>& all = found.problems;
  all = parse_problem_words(words);
  if (!model.empty()) {
    found.model = read();
    for (const ModelConvolution& one : found.model->convolutions) all.push_back(one.problem);
  }
  if (!suite.empty()) {
    const std::vector<ConvProblem> listed = suite_problems(suite);
    if (listed.empty()) throw bad(fmt::format("suite '{}' has no problems", suite));
    all.insert(all.end(), listed.begin(), listed.end());
  }
  for (ConvProblem& one : all) one = changed(std::move(one));
  if (found.model)
    for (std::size_t i = 0; i < all.size(); ++i) found.model->convolutions[i].problem = all[i];
  if (train) train_all(found);
  return found;
}

void DeviceOptions::add_to(CLI::App& app) {
  begin_group(app, group::kWhere);
  app.add_option("--device", device, "auto, cpu, cuda or cuda:N")->type_name("DEVICE")->capture_default_str();
  add_whole_number(app, "--threads", threads, 1, kMostCpuThreads,
                   "CPU threads to use (default: all, or OMP_NUM_THREADS)");
  begin_group(app, group::kHow);
}

DeviceInfo DeviceOptions::select() const {
  if (threads) set_cpu_threads(static_cast<int>(*threads));
  return device_info(device == "auto" ? best_device() : parse_device(device));
}

}  // namespace convtune::cli
