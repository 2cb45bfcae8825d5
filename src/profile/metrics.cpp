// A profile's JSON, read strictly: an object of kernels, each an object of numbers or an array of such, a
// launch each; or an array of launches that name their kernel. nlohmann's event parser neither recurses nor
// throws; the first thing that does not belong stops it.
#include "profile/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/flat_json.h"
#include "base/named_file.h"
#include "base/quoted.h"
#include "convtune/error.h"
#include "profile/ncu.h"

namespace convtune {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxKernels = 1024, kMaxLaunches = 16384, kMaxMetrics = 4096, kMaxNameBytes = 1024;

Error bad(const std::string& why) {
  return Error(ErrorKind::invalid_argument, "metrics: " + why);
}

// The events of nlohmann::json::sax_parse. `failure` says why it stopped.
struct Events {
  enum class In { text, kernels, launches, kernel_launches, metrics, named_metrics };
  std::vector<KernelMetrics> kernels;  // a launch each
  std::vector<In> in = {In::text};     // what is open, the innermost last
  std::string name, metric, failure;   // of the open kernel; of the number to come
  std::size_t names = 0;

  bool stop(std::string why) {
    if (failure.empty()) failure = std::move(why);
    return false;
  }
  bool of_launch() const { return in.back() == In::metrics || in.back() == In::named_metrics; }
  std::string place() const {
    if (in.back() == In::text) return "the text";
    if (in.back() == In::launches) return "a launch";
    if (of_launch() && !metric.empty())
      return fmt::format("metric {} of kernel {}", convtune::quoted(metric), convtune::quoted(name));
    return name.empty() ? "the object" : "kernel " + convtune::quoted(name);
  }
  bool other(const char* kind) {
    const char* const wanted = in.back() == In::text       ? "an object of kernels"
                               : in.back() == In::launches ? "an object of metrics"
                               : of_launch()               ? "a number"
                                                           : "an object of metrics";
    return stop(fmt::format("{} is {}, and must be {}", place(), kind, wanted));
  }
  bool number(double value) {
    if (!of_launch()) return other("a number");
    if (!std::isfinite(value)) return stop(place() + " is not finite");
    if (kernels.back().values.size() == kMaxMetrics)
      return stop(fmt::format("has more than {} metrics of one kernel", kMaxMetrics));
    kernels.back().values.emplace_back(std::exchange(metric, {}), value);
    return true;
  }
  bool launch(In kind) {
    if (kernels.size() == kMaxLaunches) return stop(fmt::format("has more than {} launches", kMaxLaunches));
    in.push_back(kind);
    kernels.push_back({name, {}});
    return true;
  }

  bool null() { return other("null"); }
  bool boolean(bool) { return other("a truth value"); }
  bool number_integer(std::int64_t value) { return number(static_cast<double>(value)); }
  bool number_unsigned(std::uint64_t value) { return number(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) { return number(value); }
  bool string(std::string& value) {
    if (in.back() != In::named_metrics) return other("text");
    if (metric != "kernel" && metric != "name" && metric != "kernel_name" && metric != "Kernel Name") {
      metric.clear();  // a stream, a device: none of the metrics
      return true;
    }
    if (value.empty() || value.size() > kMaxNameBytes || has_control_character(value))
      return stop("a launch's kernel has no fit name");
    name = kernels.back().kernel = value;
    metric.clear();
    return true;
  }
  bool binary(nlohmann::json::binary_t&) { return other("binary"); }
  bool start_object(std::size_t) {
    switch (in.back()) {
      case In::text:
        in.push_back(In::kernels);
        return true;
      case In::kernels:
      case In::kernel_launches:
        return launch(In::metrics);
      case In::launches:
        name.clear();
        return launch(In::named_metrics);
      default:
        if (in.back() != In::named_metrics || metric != "metrics") return other("an object");
        metric.clear();
        in.push_back(In::named_metrics);  // {"kernel": ..., "metrics": {...}}
        return true;
    }
  }
  bool end_object() {
    const In closed = in.back();
    in.pop_back();
    if (closed == In::named_metrics && in.back() == In::launches && kernels.back().kernel.empty())
      return stop("a launch names no kernel: it needs a \"kernel\"");
    return true;
  }
  bool start_array(std::size_t) {
    if (in.back() != In::text && in.back() != In::kernels) return other("an array");
    in.push_back(in.back() == In::text ? In::launches : In::kernel_launches);
    return true;
  }
  bool end_array() {
    in.pop_back();
    return true;
  }
  bool key(std::string& key_name) {
    const bool is_kernel = in.back() == In::kernels;
    if (key_name.empty() || key_name.size() > kMaxNameBytes)
      return stop(fmt::format("a {} has a name of {} bytes; 1 to {} are allowed",
                              is_kernel ? "kernel" : "metric", key_name.size(), kMaxNameBytes));
    if (has_control_character(key_name)) return stop("a name holds a control character");
    if (is_kernel) {
      for (const KernelMetrics& known : kernels)
        if (known.kernel == key_name)
          return stop(fmt::format("kernel {} stands there twice", convtune::quoted(key_name)));
      if (++names > kMaxKernels) return stop(fmt::format("has more than {} kernels", kMaxKernels));
      name = key_name;
      return true;
    }
    if (kernels.back().find(key_name))
      return stop(fmt::format("metric {} of kernel {} stands there twice", convtune::quoted(key_name),
                              convtune::quoted(name)));
    metric = key_name;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    return stop(fmt::format("is not JSON at byte {}{}", position,
                            in.back() == In::text ? "" : ", in or after " + place()));
  }
};

// Keeps one launch of each kernel: that of median time, or the middle one where there are no times.
std::vector<KernelMetrics> one_a_kernel(std::vector<KernelMetrics> launches) {
  std::map<std::string, std::vector<std::size_t>> places;
  std::vector<std::string> order;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    auto& of_name = places[launches[i].kernel];
    if (of_name.empty()) order.push_back(launches[i].kernel);
    of_name.push_back(i);
  }
  const auto time = [&](std::size_t i) { return launches[i].find("gpu__time_duration.sum").value_or(0); };
  std::vector<KernelMetrics> kernels;
  for (const std::string& kernel : order) {
    auto& of_name = places[kernel];
    std::stable_sort(of_name.begin(), of_name.end(),
                     [&](std::size_t a, std::size_t b) { return time(a) < time(b); });
    kernels.push_back(std::move(launches[of_name[of_name.size() / 2]]));
  }
  return kernels;
}

bool is_table(std::string_view text) {
  return text.starts_with("==") || text.starts_with("\"ID\"");
}

class Reader {
 public:
  explicit Reader(const KernelMetrics& metrics) : metrics_(metrics) {}

  // The first of the names that is there, if its number lies within the limits.
  std::optional<double> number(std::initializer_list<std::string_view> names, double low, double high) const {
    for (const std::string_view name : names)
      if (const auto value = metrics_.find(name)) {
        if (*value < low || *value > high)
          throw bad(fmt::format("{} of kernel {} is {:g}, out of its range {:g} to {:g}", name,
                                convtune::quoted(metrics_.kernel), *value, low, high));
        return value;
      }
    return std::nullopt;
  }
  // In percent; a little over 100 is what a profiler's separate passes can make of 100.
  std::optional<double> share(std::initializer_list<std::string_view> names) const {
    const auto percent = number(names, 0, 110);
    return percent ? std::optional(*percent / 100) : std::nullopt;
  }
  template <class T>
  std::optional<T> whole(std::initializer_list<std::string_view> names, double low, double high) const {
    const auto value = number(names, low, high);
    if (!value) return std::nullopt;
    if (*value != std::floor(*value))
      throw bad(fmt::format("{} of kernel {} is {:g}, and must be a whole number", *names.begin(),
                            convtune::quoted(metrics_.kernel), *value));
    return static_cast<T>(*value);
  }

 private:
  const KernelMetrics& metrics_;
};

}  // namespace

std::optional<double> KernelMetrics::find(std::string_view metric) const {
  const auto found =
      std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == metric; });
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

std::vector<KernelMetrics> parse_metrics(std::string_view json) {
  if (json.size() > kMaxBytes)
    throw bad(fmt::format("has {} bytes; at most {} are read", json.size(), kMaxBytes));
  // nlohmann takes a zero byte for the end of the text, and would not look at what follows.
  if (const auto zero = json.find('\0'); zero != json.npos)
    throw bad(fmt::format("is not JSON at byte {}", zero + 1));
  if (is_table(json)) {
    NcuAnswer answer = parse_ncu(json);
    if (answer.launches.empty()) throw bad("ncu's table holds no launch");
    return one_a_kernel(std::move(answer.launches));
  }
  Events events;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &events) || !events.failure.empty())
    throw bad(events.failure.empty() ? "is not JSON" : events.failure);
  if (events.kernels.empty()) throw bad("hold no kernel");
  return one_a_kernel(std::move(events.kernels));
}

std::vector<KernelMetrics> load_metrics(const std::string& path) {
  const std::string text = read_named_file(path);
  try {
    return parse_metrics(text);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", convtune::quoted(path, 200), error.what()));
  }
}

std::string to_json(const std::vector<KernelMetrics>& kernels) {
  const auto text = [](const std::string& name) {
    return nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::string json = "{";
  for (const KernelMetrics& kernel : kernels) {
    json += fmt::format("{}\n  {}: {{", &kernel == kernels.data() ? "" : ",", text(kernel.kernel));
    for (std::size_t i = 0; i < kernel.values.size(); ++i)
      json += fmt::format("{}\n    {}: {}", i == 0 ? "" : ",", text(kernel.values[i].first),
                          kernel.values[i].second);
    json += kernel.values.empty() ? "}" : "\n  }";
  }
  json += "\n}\n";
  parse_metrics(json);  // what is written can be read
  return json;
}

KnownMetrics known_metrics(const KernelMetrics& metrics) {
  const Reader read(metrics);
  constexpr double kLargest = 9e15;
  KnownMetrics known;
  known.sm_share = read.share({"sm__throughput.avg.pct_of_peak_sustained_elapsed"});
  known.tensor_share = read.share({"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
                                   "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"});
  known.memory_share = read.share({"dram__throughput.avg.pct_of_peak_sustained_elapsed",
                                   "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"});
  known.l2_hit_share = read.share({"lts__t_sector_hit_rate.pct"});
  known.achieved_occupancy = read.share({"sm__warps_active.avg.pct_of_peak_sustained_active"});
  known.load_sector_share = read.share({"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"});
  known.store_sector_share = read.share({"smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct"});
  known.grid = read.whole<std::int64_t>({"launch__grid_size"}, 1, kLargest);
  known.block = read.whole<std::int64_t>({"launch__block_size"}, 1, 1024);
  known.registers = read.whole<int>({"launch__registers_per_thread"}, 0, 1024);
  known.by_registers = read.whole<int>({"launch__occupancy_limit_registers"}, 0, 1 << 20);
  known.by_smem = read.whole<int>({"launch__occupancy_limit_shared_mem"}, 0, 1 << 20);
  const auto fixed = read.whole<std::int64_t>({"launch__shared_mem_per_block_static"}, 0, 1 << 30);
  const auto dynamic = read.whole<std::int64_t>({"launch__shared_mem_per_block_dynamic"}, 0, 1 << 30);
  known.smem_bytes = read.whole<std::int64_t>({"launch__shared_mem_per_block"}, 0, 1 << 30);
  if (fixed && dynamic) known.smem_bytes = *fixed + *dynamic;
  known.memory_bytes = read.number({"dram__bytes.sum"}, 0, kLargest);
  const auto read_bytes = read.number({"dram__bytes_read.sum"}, 0, kLargest);
  const auto written_bytes = read.number({"dram__bytes_write.sum"}, 0, kLargest);
  if (!known.memory_bytes && read_bytes) known.memory_bytes = *read_bytes + written_bytes.value_or(0);
  if (const auto nanoseconds = read.number({"gpu__time_duration.sum"}, 0, kLargest))
    known.time_us = *nanoseconds / 1e3;
  const auto conflicts = read.number({"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"}, 0, kLargest);
  const auto wavefronts = read.number({"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"}, 0, kLargest);
  if (conflicts && wavefronts && *wavefronts > 0) known.bank_conflict_share = *conflicts / *wavefronts;
  known.memory_stall_share = read.share({"smsp__warp_issue_stalled_memory_dependency_per_warp_active.pct",
                                         "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct"});
  known.local_loads =
      read.number({"smsp__inst_executed_op_local_ld.sum", "smsp__sass_inst_executed_op_local_ld.sum",
                   "sass__inst_executed_register_spilling"},
                  0, kLargest);
  return known;
}

}  // namespace convtune
