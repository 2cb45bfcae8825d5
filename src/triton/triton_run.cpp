// See triton_run.h. The answers are lines of JSON; one that is not as it must be is this run's failure.
#include "triton/triton_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/quoted.h"
#include "convtune/error.h"
#include "problem/element.h"

namespace convtune {
namespace {

using nlohmann::json;

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

// An error that no config of the file can do anything about.
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

// The share of an output's size that another order of its sum may change.
double tolerance_of(const std::string& dtype) {
  return dtype == "float16" ? 2e-3 : dtype == "bfloat16" ? 2e-2 : 1e-4;
}

json words_of(const TritonRunSpec& spec, bool pick) {
  json words = {{"names", {spec.kernel}}, {"path", spec.path}, {"source", spec.source}, {"call", spec.call},
                {"pick", pick},           {"input", nullptr},  {"dtype", "float32"}};
  if (spec.problem) {
    const ConvProblem& a = *spec.problem;
    words["input"] = {a.n, a.c, a.h, a.w};
    words["dtype"] = element_row(a.dtype.x).torch_name;
  }
  return words;
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

std::string difference(const std::vector<TritonOutput>& original, const std::vector<TritonOutput>& other) {
  if (original.size() != other.size())
    return fmt::format("it has {} outputs and the original {}", other.size(), original.size());
  for (std::size_t i = 0; i < original.size(); ++i)
    if (const std::string why = difference(original[i], other[i]); !why.empty()) return why;
  return {};
}

PickedConfig picked_config(const TritonRunSpec& spec) {
  TritonRun run(spec, true);
  const json answer = run.answer();
  PickedConfig picked{get<std::string>(answer, "picked"), get<std::size_t>(answer, "index"),
                      get<std::size_t>(answer, "of")};
  if (picked.index >= picked.of)
    throw RunFailure(fmt::format("it picked config {} of {}", picked.index, picked.of));
  return picked;
}

TritonRun::TritonRun(TritonRunSpec spec, bool pick)
    : process_(spec.python, "triton_runner", spec.seconds, spec.cancelled) {
  process_.write(words_of(spec, pick));
}

json TritonRun::answer() {
  json found = process_.read();
  refuse_if_told(found);
  return found;
}

void TritonRun::wait() {
  const json first = answer();
  first_us_ = positive(first, "time_us");
  place_ = fmt::format("{}, PyTorch {}, Triton {}", get<std::string>(first, "device"),
                       get<std::string>(first, "torch"), get<std::string>(first, "triton"));
  capability_ = get<std::string>(first, "capability");
  for (const json& output : get<std::vector<json>>(first, "outputs")) outputs_.push_back(output_of(output));
  if (outputs_.empty()) throw RunFailure("it told of no output");
}

double TritonRun::sample_us() {
  return positive(process_.ask("sample"), "time_us");
}

}  // namespace convtune
