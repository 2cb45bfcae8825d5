// See raw_profile.h.
#include "profile/raw_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/flat_json.h"
#include "base/quoted.h"
#include "profile/lines.h"

namespace convtune {
namespace {

constexpr std::size_t kMaxLaunches = 16384, kMaxMetrics = 4096, kMaxNameBytes = 4096;

NumberFormat::Kind kind_of(const Metric& metric) {
  return metric.unit == Unit::percent ? NumberFormat::Kind::percent
         : metric.unit == Unit::count ? NumberFormat::Kind::whole
                                      : NumberFormat::Kind::any;
}

// "(64, 18, 1)" or "64, 18, 1": a launch's three sizes as their product.
std::optional<double> product_of(std::string_view text) {
  if (text.starts_with('(') && text.ends_with(')')) {
    text.remove_prefix(1), text.remove_suffix(1);
  } else if (text.find(", ") == text.npos) {
    return std::nullopt;
  }
  double product = 1;
  int sizes = 0;
  while (!text.empty()) {
    const std::size_t first = text.find_first_not_of(' ');
    if (first == text.npos) return std::nullopt;
    std::int64_t size = 0;
    const auto [rest, error] = std::from_chars(text.data() + first, text.data() + text.size(), size);
    if (error != std::errc() || size < 1) return std::nullopt;
    text.remove_prefix(std::min(static_cast<std::size_t>(rest - text.data()) + 1, text.size()));
    product *= static_cast<double>(size), ++sizes;
  }
  return sizes == 3 ? std::optional(product) : std::nullopt;
}

std::size_t rank(const std::string& name) {
  const auto table = metric_table();
  return static_cast<std::size_t>(
      std::find_if(table.begin(), table.end(), [&](const Metric& metric) { return metric.name == name; }) -
      table.begin());
}

}  // namespace

Error RawProfile::bad(const std::string& why) const {
  return Error(ErrorKind::invalid_argument, what_ + ": " + why);
}

void RawProfile::launch(std::string kernel) {
  if (launches_.size() == kMaxLaunches) throw bad(fmt::format("has more than {} launches", kMaxLaunches));
  launches_.emplace_back();
  rename(std::move(kernel));
}

void RawProfile::rename(std::string kernel) {
  if (kernel.empty()) throw bad("a launch has no kernel's name");
  if (kernel.size() > kMaxNameBytes || has_control_character(kernel))
    throw bad(
        fmt::format("{} is no fit name of a kernel: it is longer than {} bytes, or holds a control character",
                    convtune::quoted(kernel), kMaxNameBytes));
  launches_.back().kernel = std::move(kernel);
}

const Metric* RawProfile::metric_of(std::string_view name, std::string_view unit, double& scale) const {
  const UnitText in = parse_unit(unit);
  const Metric* const metric = find_metric(name, in);
  scale = in.scale;
  if (metric && metric->name == name && !fits(*metric, in))
    throw bad(fmt::format("{} is in {}, a unit that is not known of it", name, convtune::quoted(unit)));
  return metric;
}

void RawProfile::add(std::string_view name, std::string_view unit, std::string_view text) {
  std::string_view number = trimmed(text);
  // "128 register/thread" in one.
  if (const std::size_t blank = number.find(' ');
      unit.empty() && blank != number.npos && !number.starts_with('(') &&
      parse_unit(number.substr(blank + 1)).kind != UnitText::Kind::other)
    unit = number.substr(blank + 1), number = number.substr(0, blank);
  double scale = 1;
  const Metric* const metric = metric_of(name, unit, scale);
  format_.see(number, metric ? kind_of(*metric) : NumberFormat::Kind::any);
  if (!metric || is_no_number(number)) return;
  if (launches_.back().values.size() == kMaxMetrics)
    throw bad(fmt::format("has more than {} metrics of one kernel", kMaxMetrics));
  launches_.back().values.push_back({metric, {}, std::string(number), 0, scale});
}

void RawProfile::add(std::string_view name, std::string_view unit, double value) {
  if (launches_.back().values.size() == kMaxMetrics)
    throw bad(fmt::format("has more than {} metrics of one kernel", kMaxMetrics));
  double scale = 1;
  const Metric* const metric = metric_of(name, unit, scale);
  launches_.back().values.push_back({metric, std::string(name), {}, value, metric ? scale : 1});
}

double RawProfile::number_of(const Value& value, const std::string& kernel, std::string& note) const {
  if (value.text.empty()) return value.number * value.scale;
  if (value.metric->is == Quantity::grid || value.metric->is == Quantity::block)
    if (const auto product = product_of(value.text)) return *product;
  const auto number = format_.read(value.text);
  if (!number)
    throw bad(fmt::format("{} of kernel {} is {}, and must be a number", value.metric->name,
                          convtune::quoted(kernel), convtune::quoted(value.text)));
  if (!format_.decided() && NumberFormat::is_ambiguous(value.text) && note.empty())
    note = fmt::format(
        "{} is {}, and no number of the file says whether its mark is one of decimals or of thousands: "
        "read as {:g}, as ncu prints numbers in English",
        value.metric->name, convtune::quoted(value.text), *number);
  return *number * value.scale;
}

std::vector<KernelMetrics> RawProfile::read() const {
  std::vector<KernelMetrics> all;
  for (const Launch& launch : launches_) {
    KernelMetrics metrics{launch.kernel, {}};
    std::string note;
    for (const Value& value : launch.values) {
      std::string name(value.metric ? value.metric->name : value.name);
      if (metrics.find(name)) continue;  // a size stands in a column and among the metrics
      const double number = number_of(value, launch.kernel, note);
      metrics.values.emplace_back(std::move(name), number);
    }
    if (sorted_)
      std::stable_sort(metrics.values.begin(), metrics.values.end(),
                       [](const auto& a, const auto& b) { return rank(a.first) < rank(b.first); });
    if (!note.empty()) metrics.notes.push_back(std::move(note));
    all.push_back(std::move(metrics));
  }
  return all;
}

}  // namespace convtune
