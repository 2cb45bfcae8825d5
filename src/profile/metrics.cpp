// A profile of any form to metrics by name, and those to what they mean.
#include "profile/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/named_file.h"
#include "base/quoted.h"
#include "convtune/error.h"
#include "profile/readers.h"

namespace convtune {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // of what ncu prints of a whole model
constexpr double kSectorBytes = 32;
constexpr std::string_view kLongScoreboard = "long_scoreboard";

// Reasons why a warp issues nothing, as they stand in metrics' names, in words.
constexpr std::pair<std::string_view, const char*> kStallReasons[] = {
    {kLongScoreboard, "data from memory (long scoreboard)"},
    {"short_scoreboard", "data from shared memory (short scoreboard)"},
    {"barrier", "other warps at a barrier"},
    {"wait", "results of fixed latency (wait)"},
    {"lg_throttle", "room in the queue of loads and stores (LG throttle)"},
    {"mio_throttle", "room in the queue of shared memory (MIO throttle)"},
    {"math_pipe_throttle", "a free math pipe"},
    {"no_instruction", "its next instruction (no instruction)"},
    {"not_selected", "its turn (not selected)"},
    {"imc_miss", "a constant (IMC miss)"},
};

Error bad(const std::string& why) {
  return Error(ErrorKind::invalid_argument, "metrics: " + why);
}

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

// A profile that says nothing is an error: every finding would be that it is not there.
void require_known(const std::vector<KernelMetrics>& launches) {
  for (const KernelMetrics& launch : launches)
    if (known_metrics(launch) != KnownMetrics()) return;
  throw bad(fmt::format(
      "hold no metric of {} that analyze and refine read (launch__grid_size, gpu__time_duration.sum, ...; on "
      "the details page \"Grid Size\", \"Duration\", ...): profile with "
      "`ncu --set full --csv --page raw PROGRAM > metrics.csv`",
      convtune::quoted(launches[0].kernel)));
}

// JSON may begin as "[1013347] python3.11@127.0.0.1" of a page does.
bool may_be_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return true;
  if (text[first] == '{') return true;
  const std::size_t second = text.find_first_not_of(" \t\r\n", first + 1);
  return text[first] == '[' && (second == text.npos || text[second] == '{' || text[second] == ']');
}

RawProfile read_profile(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // what editors on Windows begin a file with
  if (may_be_json(text)) return read_json(text);
  if (text.starts_with("NVR"))
    throw bad(
        "is a report of ncu (.ncu-rep), which ncu alone reads: `ncu --import FILE --csv --page raw > "
        "metrics.csv` "
        "prints what is read here");
  const bool is_table = has_table(text);
  if (!is_table && !has_page(text)) {
    for (const std::string& message : read_table(text).messages)
      if (message.starts_with("ERROR: ")) throw bad("ncu measured nothing: " + message.substr(7));
    try {
      return read_json(text);
    } catch (const Error& error) {
      throw Error(
          error.kind(),
          fmt::format("{}; nor is it what ncu prints: a table with a column \"Kernel Name\" "
                      "(`ncu --csv`), or a page with a line \"kernel (grid)x(block), Context 1, ...\"",
                      error.what()));
    }
  }
  NcuOutput output = is_table ? read_table(text) : read_page(text);
  if (output.profile.empty())
    throw bad(fmt::format("ncu's table holds no launch{}",
                          output.messages.empty() ? "" : "; ncu says " + output.messages.back()));
  return std::move(output.profile);
}

constexpr std::string_view kSelected = "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio";

// "long_scoreboard" of "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio".
std::string_view reason_of(std::string_view metric) {
  constexpr std::string_view kBefore = "issue_stalled_", kBehind = "_per_";
  const std::size_t at = metric.find(kBefore);
  if (at == metric.npos) return {};
  metric = metric.substr(at + kBefore.size());
  metric = metric.substr(0, metric.find(kBehind));
  return metric == "memory_dependency" ? kLongScoreboard : metric;  // as older tools call it
}

std::string words_of(std::string_view reason) {
  for (const auto& [known, words] : kStallReasons)
    if (known == reason) return words;
  std::string words(reason);
  std::replace(words.begin(), words.end(), '_', ' ');
  return "\"" + words + '"';
}

// Looks metrics up by what they mean.
class Reader {
 public:
  explicit Reader(const KernelMetrics& metrics) : metrics_(metrics) {}

  // The first metric of the quantity that is there, if its number lies within the limits.
  std::optional<double> number(Quantity quantity, double low, double high,
                               const Metric** which = nullptr) const {
    for (const Metric& metric : metric_table()) {
      if (metric.is != quantity) continue;
      const auto value = metrics_.find(metric.name);
      if (!value) continue;
      if (*value < low || *value > high)
        throw bad(fmt::format("{} of kernel {} is {:g}, out of its range {:g} to {:g}", metric.name,
                              convtune::quoted(metrics_.kernel), *value, low, high));
      if (which) *which = &metric;
      return value;
    }
    return std::nullopt;
  }
  // In percent; a little over 100 is what a profiler's separate passes can make of 100. More, as launches of
  // a few microseconds have it, is no share of anything, and is said.
  std::optional<double> share(Quantity quantity, std::string& impossible) const {
    const Metric* metric = nullptr;
    const auto percent = number(quantity, 0, 200, &metric);
    if (!percent) return std::nullopt;
    if (*percent <= 110) return *percent / 100;
    impossible = fmt::format("{} is {:.6g} %, which cannot be and is not used", metric->name, *percent);
    return std::nullopt;
  }
  template <class T>
  std::optional<T> whole(Quantity quantity, double low, double high) const {
    const Metric* metric = nullptr;
    const auto value = number(quantity, low, high, &metric);
    if (!value) return std::nullopt;
    if (*value != std::floor(*value))
      throw bad(fmt::format("{} of kernel {} is {:g}, and must be a whole number", metric->name,
                            convtune::quoted(metrics_.kernel), *value));
    return static_cast<T>(*value);
  }
  std::optional<double> amount(Quantity quantity) const { return number(quantity, 0, kLargest); }
  // The sum of two metrics, if either is there.
  std::optional<double> sum(Quantity one, Quantity other) const {
    const auto a = amount(one), b = amount(other);
    return a || b ? std::optional(a.value_or(0) + b.value_or(0)) : std::nullopt;
  }
  // Reasons that warps wait for, each once.
  std::vector<KnownMetrics::Stall> stalls() const {
    std::optional<double> cycles = amount(Quantity::issue_cycles);
    // All reasons and the cycles in which a warp issues are together all of its cycles.
    if (!cycles && metrics_.find(kSelected)) cycles = 0;
    const bool sum = cycles == 0;
    for (const Metric& metric : metric_table())
      if (sum && metric.is == Quantity::stall && metric.unit == Unit::number)
        *cycles += metrics_.find(metric.name).value_or(0);
    std::vector<KnownMetrics::Stall> all;
    for (const Metric& metric : metric_table()) {
      if (metric.is != Quantity::stall || metric.name == kSelected) continue;
      const std::string_view reason = reason_of(metric.name);
      const bool known =
          std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.reason == reason; });
      const double whole =
          (metric.name.ends_with(".pct") ? 100 : 1) * (metric.unit == Unit::percent ? 1 : cycles.value_or(0));
      if (const auto value = metrics_.find(metric.name); value && !known && whole > 0)
        all.push_back({std::string(reason), words_of(reason), std::min(1.0, *value / whole)});
    }
    return all;
  }

  static constexpr double kLargest = 9e15;

 private:
  const KernelMetrics& metrics_;
};

}  // namespace

std::optional<double> KernelMetrics::find(std::string_view metric) const {
  const auto found =
      std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == metric; });
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

std::vector<KernelMetrics> parse_metrics(std::string_view text) {
  if (text.size() > kMaxBytes)
    throw bad(fmt::format("has {} bytes; at most {} are read", text.size(), kMaxBytes));
  const RawProfile profile = read_profile(text);
  if (profile.empty()) throw bad("hold no kernel");
  std::vector<KernelMetrics> launches = profile.read();
  require_known(launches);
  return one_a_kernel(std::move(launches));
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
  read_json(json).read();  // what is written can be read
  return json;
}

KnownMetrics known_metrics(const KernelMetrics& metrics) {
  using enum Quantity;
  const Reader read(metrics);
  KnownMetrics known;
  const auto share = [&](Quantity quantity) { return read.share(quantity, known.impossible); };
  known.sm_share = share(sm_share);
  known.tensor_share = share(tensor_share);
  known.memory_share = share(memory_share);
  known.busiest_memory_share = share(busiest_memory_share);
  known.l1_share = share(l1_share);
  known.l2_share = share(l2_share);
  known.l2_hit_share = share(l2_hit_share);
  known.achieved_occupancy = share(achieved_occupancy);
  known.theoretical_occupancy = share(theoretical_occupancy);
  known.load_sector_share = share(load_sectors);
  known.store_sector_share = share(store_sectors);
  // No access of the kind moves no sector at all, and wastes none.
  for (auto* sectors : {&known.load_sector_share, &known.store_sector_share})
    if (*sectors && **sectors == 0) sectors->reset();
  known.grid = read.whole<std::int64_t>(grid, 1, Reader::kLargest);
  known.block = read.whole<std::int64_t>(block, 1, 1024);
  known.registers = read.whole<int>(registers, 0, 1024);
  known.by_registers = read.whole<int>(by_registers, 0, 1 << 20);
  known.by_smem = read.whole<int>(by_smem, 0, 1 << 20);
  // In Kbyte with two decimals a size is no whole number of bytes.
  const auto bytes = [&](Quantity quantity) { return read.number(quantity, 0, 1 << 30); };
  const auto fixed = bytes(smem_static), dynamic = bytes(smem_dynamic), both = bytes(smem);
  if (fixed && dynamic)
    known.smem_bytes = std::llround(*fixed + *dynamic);
  else if (both)
    known.smem_bytes = std::llround(*both);
  known.memory_bytes = read.amount(memory_bytes);
  if (!known.memory_bytes && read.amount(read_bytes))
    known.memory_bytes = read.sum(read_bytes, written_bytes);
  if (const auto nanoseconds = read.amount(time)) known.time_us = *nanoseconds / 1e3;
  known.bank_conflicts = read.amount(bank_conflicts);
  if (!known.bank_conflicts) known.bank_conflicts = read.sum(load_bank_conflicts, store_bank_conflicts);
  if (const auto wavefronts = read.amount(shared_wavefronts);
      known.bank_conflicts && wavefronts && *wavefronts > 0)
    known.bank_conflict_share = *known.bank_conflicts / *wavefronts;
  known.stalls = read.stalls();
  for (const KnownMetrics::Stall& stall : known.stalls)
    if (stall.reason == kLongScoreboard) known.memory_stall_share = stall.share;
  known.local_loads = read.amount(local_loads);
  if (const auto sectors = read.sum(local_load_sectors, local_store_sectors)) {
    known.local_bytes = *sectors * kSectorBytes;
    if (!known.local_loads) known.local_loads = read.amount(local_load_sectors);
  }
  return known;
}

}  // namespace convtune
