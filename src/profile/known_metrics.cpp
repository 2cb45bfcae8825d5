// Metrics by name to what they mean.
#include "profile/known_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/quoted.h"
#include "convtune/error.h"
#include "profile/metric_table.h"

namespace convtune {

Error bad_metrics(const std::string& why) {
  return Error(ErrorKind::invalid_argument, "metrics: " + why);
}

namespace {

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
        throw bad_metrics(fmt::format("{} of kernel {} is {:g}, out of its range {:g} to {:g}", metric.name,
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
      throw bad_metrics(fmt::format("{} of kernel {} is {:g}, and must be a whole number", metric->name,
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
