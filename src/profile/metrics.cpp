// A profile of any form to metrics by name.
#include "convtune/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/named_file.h"
#include "base/quoted.h"
#include "convtune/error.h"
#include "profile/known_metrics.h"
#include "profile/readers.h"

namespace convtune {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // more than what ncu prints of a whole model
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
  throw bad_metrics(fmt::format(
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
  if (text.starts_with("\xef\xbb\xbf"))
    text.remove_prefix(3);  // the mark that editors on Windows begin a file with
  if (may_be_json(text)) return read_json(text);
  if (text.starts_with("NVR"))
    throw bad_metrics(
        "is a report of ncu (.ncu-rep), which ncu alone reads: `ncu --import FILE --csv --page raw > "
        "metrics.csv` "
        "prints what is read here");
  const bool is_table = has_table(text);
  if (!is_table && !has_page(text)) {
    for (const std::string& message : read_table(text).messages)
      if (message.starts_with("ERROR: ")) throw bad_metrics("ncu measured nothing: " + message.substr(7));
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
    throw bad_metrics(fmt::format("ncu's table holds no launch{}",
                                  output.messages.empty() ? "" : "; ncu says " + output.messages.back()));
  return std::move(output.profile);
}

}  // namespace

std::optional<double> KernelMetrics::find(std::string_view metric) const {
  const auto found =
      std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == metric; });
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

std::vector<KernelMetrics> parse_metrics(std::string_view text) {
  if (text.size() > kMaxBytes)
    throw bad_metrics(fmt::format("has {} bytes; at most {} are read", text.size(), kMaxBytes));
  const RawProfile profile = read_profile(text);
  if (profile.empty()) throw bad_metrics("hold no kernel");
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
  read_json(json).read();  // metrics that are written can be read
  return json;
}

}  // namespace convtune
