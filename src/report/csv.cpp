// Comparisons as CSV: the one writer of it.
#include <fmt/format.h>

#include "report/formats.h"

namespace convtune {
namespace {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += csv_field(field) + ',';
  line.back() = '\n';
  return line;
}

std::string number(double value) {
  return fmt::format("{:.9g}", value);
}

}  // namespace

std::string report_csv(const Report& report) {
  const auto* const rows = std::get_if<std::vector<ReportRow>>(&report.content);
  if (rows == nullptr) throw has_no(report, "CSV", "tune's and bench's");
  std::string csv = csv_line({"case", "problem", "device", "floor_us", "bound", "provider", "algorithm",
                              "config", "time_us", "mad_us", "n", "gflop_per_s", "gb_per_s",
                              "roofline_fraction", "max_error", "best_peer", "speedup", "failure"});
  for (const ReportRow& row : *rows) {
    const Comparison& comparison = row.comparison;
    const std::string speedup = comparison.speedup > 0 ? number(comparison.speedup) : "";
    const std::vector<std::string> head = {comparison.problem.name, to_string(comparison.problem),
                                           comparison.device.fingerprint,
                                           number(comparison.roofline.floor_us), comparison.roofline.bound};
    const auto add = [&](const std::vector<std::string>& middle, const std::string& failure) {
      std::vector<std::string> fields = head;
      fields.insert(fields.end(), middle.begin(), middle.end());
      fields.resize(15);
      fields.insert(fields.end(), {comparison.best_peer, speedup, failure});
      csv += csv_line(fields);
    };
    if (!row.failure.empty()) add({}, row.failure);
    for (const ProviderResult& provider : comparison.providers) {
      const std::vector<std::string> names = {provider.name, provider.algorithm, to_string(provider.config)};
      if (!provider.failure.empty() || provider.time_us <= 0) {
        add(names, provider.failure);
        continue;
      }
      std::vector<std::string> fields = names;
      for (const double value : {provider.time_us, provider.mad_us, static_cast<double>(provider.n),
                                 comparison.problem.flops() / provider.time_us / 1e3,
                                 comparison.problem.bytes() / provider.time_us / 1e3,
                                 provider.roofline_fraction, provider.max_error})
        fields.push_back(number(value));
      add(fields, "");
    }
  }
  return csv;
}

}  // namespace convtune
