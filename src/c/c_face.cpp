// convtune/c.h over the C++ face: each function checks its pointers, calls one function, and turns what is
// thrown into a status and a text of this thread.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "c/status.h"
#include "c/structs.h"
#include "convtune/c.h"
#include "convtune/cases.h"
#include "convtune/contest.h"
#include "convtune/convolution.h"
#include "convtune/database.h"
#include "convtune/device.h"
#include "convtune/error.h"
#include "convtune/report.h"
#include "convtune/tuner.h"

struct convtune_convolution {
  convtune::Convolution convolution;
};

namespace convtune::c {
namespace {

using Json = nlohmann::ordered_json;

// A name may hold any bytes: what is no UTF-8 is replaced rather than thrown at.
std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Convolution plan_of(const ConvProblem& problem, Device device, const char* algorithm, const char* config) {
  if (algorithm) return plan(problem, device, algorithm, config ? parse_config(config) : Config{});
  if (config)
    throw Error(ErrorKind::invalid_argument,
                "config is given but algorithm is null: a config belongs to one");
  return plan(problem, device);
}

// Calls the caller's progress, where it has one, and notes in `stopped` that it wants no more.
template <typename Options>
std::function<void(const Progress&)> told(const Options& from, std::atomic<bool>& stopped) {
  if (!from.progress) return nullptr;
  return [&](const Progress& step) {
    if (!stopped && from.progress(from.context, step.stage.c_str(), step.done, step.total, step.best_us,
                                  step.best.c_str(), step.eta_seconds) != 0)
      stopped = true;
  };
}

}  // namespace
}  // namespace convtune::c

using namespace convtune::c;  // NOLINT: this file is that namespace's outer side

extern "C" {

int32_t convtune_c_version(void) {
  return CONVTUNE_C_VERSION;
}
const char* convtune_version(void) {
  return CONVTUNE_VERSION;
}
const char* convtune_error_text(void) {
  return error_text();
}

const char* convtune_activation_usage(int32_t activation) {
  const auto usages = convtune::activation_usages();
  return activation >= 0 && activation < std::ssize(usages) ? usages[static_cast<std::size_t>(activation)]
                                                            : nullptr;
}

void convtune_text_free(convtune_text* text) {
  if (!text) return;
  std::free(text->data);
  *text = {nullptr, 0};
}

convtune_status convtune_problem_parse(const char* text, convtune_problem* problem) {
  return guarded([&] {
    require(text, "text");
    require(problem, "problem");
    write_problem(convtune::find_problem(text), problem);
  });
}

convtune_status convtune_problem_text(const convtune_problem* problem, convtune_text* text) {
  return text_of(text, "text", [&] { return convtune::to_string(read_problem(problem)); });
}

convtune_status convtune_output_size(const convtune_problem* problem, int64_t* p, int64_t* q) {
  return guarded([&] {
    require(p, "p");
    require(q, "q");
    const convtune::ConvProblem read = read_problem(problem);
    *p = read.p();
    *q = read.q();
  });
}

convtune_status convtune_output_size_3d(const convtune_problem* problem, int64_t* z, int64_t* p, int64_t* q) {
  return guarded([&] {
    require(z, "z");
    require(p, "p");
    require(q, "q");
    const convtune::ConvProblem read = read_problem(problem);
    *z = read.z();
    *p = read.p();
    *q = read.q();
  });
}

convtune_status convtune_problem_bytes(const convtune_problem* problem, double* bytes) {
  return guarded([&] {
    require(bytes, "bytes");
    *bytes = read_problem(problem).bytes();
  });
}

convtune_status convtune_devices(convtune_text* json) {
  return text_of(json, "json", [] {
    Json all = Json::array();
    for (const convtune::DeviceInfo& info : convtune::devices())
      all.push_back({{"device", to_string(info.device)},
                     {"name", info.name},
                     {"fingerprint", info.fingerprint},
                     {"isa", info.isa},
                     {"units", info.units},
                     {"memory_bytes", info.memory_bytes}});
    return dumped({{"devices", std::move(all)}});
  });
}

convtune_status convtune_set_cpu_threads(int32_t threads) {
  return guarded([&] { convtune::set_cpu_threads(threads); });
}

convtune_status convtune_set_cpu_executor(const convtune_cpu_executor* executor) {
  return guarded([&] {
    if (executor == nullptr) return convtune::set_cpu_executor(nullptr);
    const convtune::CpuExecutor read = read_cpu_executor(executor);
    convtune::set_cpu_executor(&read);
  });
}

convtune_status convtune_share_openmp_threads(int32_t share) {
  return guarded([&] { convtune::share_openmp_threads(share != 0); });
}

convtune_status convtune_set_gpu_share(double share) {
  return guarded([&] { convtune::set_gpu_share(share); });
}

convtune_status convtune_plan(const convtune_problem* problem, const char* device, const char* algorithm,
                              const char* config, convtune_convolution** convolution) {
  if (convolution) *convolution = nullptr;
  return guarded([&] {
    require(convolution, "convolution");
    const convtune::ConvProblem asked = read_problem(problem);
    *convolution = new convtune_convolution{plan_of(asked, device_of(device), algorithm, config)};
  });
}

void convtune_convolution_free(convtune_convolution* convolution) {
  delete convolution;
}

convtune_status convtune_plan_json(const convtune_convolution* convolution, convtune_text* json) {
  return text_of(json, "json", [&] {
    require(convolution, "convolution");
    const convtune::Convolution& planned = convolution->convolution;
    return dumped({{"problem", to_string(planned.problem())},
                   {"device", to_string(planned.device().device)},
                   {"fingerprint", planned.device().fingerprint},
                   {"algorithm", planned.plan().algorithm},
                   {"config", to_string(planned.plan().config)},
                   {"source", to_string(planned.plan().source)},
                   {"why", planned.plan().why},
                   {"packed_order", planned.packed_order()},
                   {"can_lay_dw_last", planned.can_lay_dw_last()}});
  });
}

convtune_status convtune_explain(const convtune_convolution* convolution, convtune_text* text) {
  return text_of(text, "text", [&] {
    require(convolution, "convolution");
    return convolution->convolution.explain();
  });
}

size_t convtune_packed_bytes(const convtune_convolution* convolution) {
  return convolution ? convolution->convolution.packed_bytes() : 0;
}

convtune_status convtune_pack(const convtune_convolution* convolution, const void* w, const void* bias,
                              void* packed, void* stream) {
  return guarded([&] {
    require(convolution, "convolution");
    convolution->convolution.pack_into(w, bias, packed, stream);
  });
}

// On the way of every call: no text, no memory, no lock of its own.
convtune_status convtune_run(const convtune_convolution* convolution, const void* x, const void* packed,
                             void* y, void* stream) {
  if (!convolution) [[unlikely]]
    return fail(CONVTUNE_INVALID_ARGUMENT, "convolution is null");
  return guarded([&] { convolution->convolution.run_packed({.x = x, .y = y}, packed, stream); });
}

convtune_status convtune_run_tensors(const convtune_convolution* convolution, const convtune_tensors* tensors,
                                     const void* packed, void* stream) {
  return guarded([&] {
    require(convolution, "convolution");
    convolution->convolution.run_packed(read_tensors(tensors), packed, stream);
  });
}

convtune_status convtune_tune(const convtune_problem* problem, const char* device,
                              const convtune_tune_options* options, convtune_text* json) {
  return text_of(json, "json", [&] {
    const convtune::ConvProblem asked = read_problem(problem);
    const convtune_tune_options from = read_tune_options(options);
    std::atomic<bool> stopped = false;
    convtune::TuneOptions to;
    to.budget_seconds = from.budget_seconds;
    to.budget_trials = from.budget_trials;
    to.min_gain = from.min_gain;
    to.retune = from.retune != 0;
    to.save = from.save != 0;
    to.cancel = &stopped, to.progress = told(from, stopped);
    return to_json(convtune::report_row(convtune::tune(asked, device_of(device), to)));
  });
}

convtune_status convtune_bench(const convtune_problem* problem, const char* device,
                               const convtune_bench_options* options, convtune_text* json) {
  return text_of(json, "json", [&] {
    const convtune::ConvProblem asked = read_problem(problem);
    const convtune_bench_options from = read_bench_options(options);
    std::atomic<bool> stopped = false;
    convtune::CompareOptions to;
    to.seconds_per_case = from.seconds;
    to.cancel = &stopped, to.progress = told(from, stopped);
    convtune::ReportRow row;
    row.comparison = compare(asked, device_of(device), to);
    return to_json(row);
  });
}

convtune_status convtune_export_records(convtune_text* lines) {
  return text_of(lines, "lines", [] { return convtune::Database().pack(); });
}

convtune_status convtune_import_records(const char* lines, const char* source, convtune_text* json) {
  return text_of(json, "json", [&] {
    require(lines, "lines");
    require(source, "source");
    const convtune::Database::ImportResult result = convtune::Database().import_lines(lines, source);
    return dumped({{"imported", result.imported},
                   {"kept", result.kept},
                   {"rejected", result.rejected},
                   {"problems", result.problems}});
  });
}

convtune_status convtune_missing_shipped_records(convtune_text* lines) {
  return text_of(lines, "lines", [] {
    std::string text;
    for (const convtune::Record& record : convtune::missing_shipped_records())
      text += to_json_line(record) + '\n';
    return text;
  });
}

convtune_status convtune_environment(const char* device, convtune_text* json) {
  return text_of(json, "json",
                 [&] { return to_json(convtune::environment_of(convtune::device_info(device_of(device)))); });
}

convtune_status convtune_report_page(const char* report, convtune_text* html) {
  return text_of(html, "html", [&] {
    require(report, "report");
    return convtune::report_page({convtune::parse_report(report)});
  });
}

convtune_status convtune_contest(convtune_side side, void* context, const convtune_contest_options* options,
                                 convtune_contest_result* result) {
  return guarded([&] {
    if (!side) throw convtune::Error(convtune::ErrorKind::invalid_argument, "side is null");
    const convtune_contest_options from = read_contest_options(options);
    write_contest_result({}, result);  // refused before anything runs
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begun = Clock::now();
    convtune::ContestOptions rules;
    rules.min_gain = from.min_gain;
    rules.confidence = from.confidence;
    rules.min_rounds = from.min_rounds;
    rules.max_rounds = from.max_rounds;
    rules.max_seconds = std::numeric_limits<double>::infinity();
    rules.late = [&] {
      return std::chrono::duration<double>(Clock::now() - begun).count() > from.max_seconds;
    };
    const convtune::ContestResult found =
        convtune::contest([&] { return side(context, 0); }, [&] { return side(context, 1); }, rules);
    write_contest_result({0, found.gain, found.interval.low, found.interval.high, found.incumbent_median_us(),
                          found.challenger_median_us(), found.accepted ? 1 : 0, found.rounds},
                         result);
  });
}

}  // extern "C"
