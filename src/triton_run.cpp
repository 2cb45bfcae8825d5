// See triton_run.h. The answers are lines of JSON; one that is not as it must be is this run's failure.
#include "triton_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "convtune/error.h"
#include "embedded.h"
#include "quoted.h"

namespace convtune {
namespace {

using nlohmann::json;

// The last line of what was said of an error, which in Python is the error itself.
std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);  // npos + 1 is 0
}

template <class T>
T get(const json& object, const char* name) {
  const auto found = object.find(name);
  try {
    if (found != object.end()) return found->get<T>();
  } catch (const json::exception&) {
  }
  throw RunFailure(fmt::format("its answer has no fit {}", convtune::quoted(name)));
}

double positive(const json& object, const char* name) {
  const auto value = get<double>(object, name);
  if (!std::isfinite(value) || value <= 0)
    throw RunFailure(fmt::format("its answer's {} is {:g}", convtune::quoted(name), value));
  return value;
}

json object_of(const std::string& line) {
  json answer = json::parse(line, nullptr, false);
  if (!answer.is_object()) throw RunFailure("it answered " + convtune::quoted(line));
  return answer;
}

// What no config of the file can do anything about.
void refuse_if_told(const json& answer) {
  if (!answer.contains("refused")) return;
  const auto kind = get<std::string>(answer, "refused"), why = get<std::string>(answer, "message");
  throw Error(kind == "device"    ? ErrorKind::no_device
              : kind == "modules" ? ErrorKind::unsupported
                                  : ErrorKind::invalid_argument,
              "nothing was measured: " + why);
}

TritonOutput output_of(const json& object) {
  TritonOutput output;
  output.shape = get<std::vector<std::int64_t>>(object, "shape");
  output.dtype = get<std::string>(object, "dtype");
  output.finite = get<bool>(object, "finite");
  if (!output.finite) return output;
  output.bits = get<std::int64_t>(object, "bits");
  output.rms = get<double>(object, "rms");
  output.part = get<std::int64_t>(object, "part");
  output.sums = get<std::vector<double>>(object, "sums");
  output.values = get<std::vector<double>>(object, "values");
  return output;
}

// Of an output's size, what another order of its sum may change.
double tolerance_of(const std::string& dtype) {
  return dtype == "float16" ? 2e-3 : dtype == "bfloat16" ? 2e-2 : 1e-4;
}

std::vector<std::string> command_of(const TritonRunSpec& spec, bool pick) {
  const std::string python = find_program(spec.python);
  if (python.empty())
    throw Error(ErrorKind::unsupported,
                fmt::format("there is no {} on PATH to measure with; --python names one that has PyTorch and "
                            "Triton",
                            convtune::quoted(spec.python)));
  json words = {{"kernel", spec.kernel},
                {"listed", spec.listed},
                {"config", spec.config},
                {"num_warps", spec.stage.warps},
                {"num_stages", spec.stage.stages},
                {"input", nullptr},
                {"dtype", "float32"}};
  if (pick) words["config"] = words["num_warps"] = words["num_stages"] = nullptr;
  if (spec.problem) {
    const Conv2dProblem& a = *spec.problem;
    words["input"] = {a.n, a.c, a.h, a.w};
    words["dtype"] = a.dtype == DType::f16 ? "float16" : a.dtype == DType::bf16 ? "bfloat16" : "float32";
  }
  return {python,    "-u",
          "-c",      std::string(embedded_runners().front().text),
          spec.file, words.dump(-1, ' ', false, json::error_handler_t::replace)};
}

}  // namespace

std::string difference(const TritonOutput& original, const TritonOutput& other) {
  if (other.shape != original.shape || other.dtype != original.dtype)
    return "its output has another shape or type";
  if (!other.finite) return "its output holds what is no finite number";
  if (other.values.size() != original.values.size() || other.sums.size() != original.sums.size() ||
      other.part != original.part)
    return "its output was told in another form";
  const double share = tolerance_of(original.dtype);
  for (std::size_t i = 0; i < original.values.size(); ++i) {
    const double limit = share * (std::abs(original.values[i]) + original.rms);
    if (!(std::abs(other.values[i] - original.values[i]) <= limit))
      return fmt::format("an output is {:.7g} and the original's {:.7g}", other.values[i],
                         original.values[i]);
  }
  const double limit =
      share * original.rms * std::sqrt(static_cast<double>(std::max<std::int64_t>(original.part, 1)));
  for (std::size_t i = 0; i < original.sums.size(); ++i)
    if (!(std::abs(other.sums[i] - original.sums[i]) <= limit + 1e-12 * std::abs(original.sums[i])))
      return fmt::format("{} outputs have the sum {:.9g} and the original's {:.9g}", original.part,
                         other.sums[i], original.sums[i]);
  return {};
}

std::size_t picked_config(const TritonRunSpec& spec) {
  TritonRun run(spec, true);
  const json answer = object_of(run.answer());
  refuse_if_told(answer);
  const auto picked = get<std::size_t>(answer, "picked");
  if (picked >= spec.listed) throw RunFailure(fmt::format("it picked config {} of {}", picked, spec.listed));
  return picked;
}

TritonRun::TritonRun(TritonRunSpec spec, bool pick)
    : spec_(std::move(spec)), process_(command_of(spec_, pick)) {}

std::string TritonRun::answer() {
  std::string line;
  switch (process_.read_line(line, spec_.seconds, spec_.cancelled)) {
    case ChildProcess::Got::line:
      return line;
    case ChildProcess::Got::cancelled:
      throw RunCancelled();
    case ChildProcess::Got::late:
      throw RunFailure(fmt::format("it gave no answer within {:g} s", spec_.seconds));
    default:
      break;
  }
  const std::string why = last_line(process_.errors());
  throw RunFailure(fmt::format("its process {}{}", process_.ending(),
                               why.empty() ? "" : ": " + convtune::quoted(why, 300)));
}

void TritonRun::wait() {
  const json first = object_of(answer());
  refuse_if_told(first);
  first_us_ = positive(first, "time_us");
  place_ = fmt::format("{}, PyTorch {}, Triton {}", get<std::string>(first, "device"),
                       get<std::string>(first, "torch"), get<std::string>(first, "triton"));
  capability_ = get<std::string>(first, "capability");
  output_ = output_of(get<json>(first, "output"));
}

double TritonRun::sample_us() {
  process_.write_line("sample");
  return positive(object_of(answer()), "time_us");
}

}  // namespace convtune
