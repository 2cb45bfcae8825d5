// The table of tune and bench.
#include "comparison_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "output.h"

namespace convtune::cli {
namespace {

// About four digits, whatever the magnitude.
std::string microseconds(double us) {
  return us < 10     ? fmt::format("{:.3f}", us)
         : us < 1000 ? fmt::format("{:.1f}", us)
                     : fmt::format("{:.0f}", us);
}

constexpr std::size_t kMostPeers = 8;

// Ours, the fastest peers in their order, and all that failed.
std::vector<const ProviderResult*> shown(const Comparison& comparison) {
  std::vector<double> times;
  for (std::size_t i = 1; i < comparison.providers.size(); ++i)
    if (comparison.providers[i].failure.empty()) times.push_back(comparison.providers[i].time_us);
  std::sort(times.begin(), times.end());
  std::vector<const ProviderResult*> rows;
  for (const ProviderResult& provider : comparison.providers)
    if (&provider == &comparison.providers.front() || !provider.failure.empty() ||
        times.size() <= kMostPeers || provider.time_us <= times[kMostPeers - 1])
      rows.push_back(&provider);
  return rows;
}

double best_peer_us(const Comparison& comparison) {
  for (const ProviderResult& provider : comparison.providers)
    if (provider.name == comparison.best_peer && provider.failure.empty()) return provider.time_us;
  return 0;
}

}  // namespace

std::string with_config(const std::string& algorithm, const Config& config) {
  const std::string text = to_string(config);
  return text.empty() ? algorithm : algorithm + ' ' + text;
}

std::string render_comparison(const Comparison& comparison, const Style& style) {
  const Conv2dProblem& problem = comparison.problem;
  const DeviceInfo& device = comparison.device;
  const Roofline& roof = comparison.roofline;
  std::string out =
      printable(problem.name.empty() ? key(problem) : problem.name + ": " + key(problem)) + '\n';
  out += fmt::format("{}: {}, {} {}, {}", to_string(device.device), printable(device.name), device.units,
                     device.device.kind == Device::Kind::cpu ? "threads" : "multiprocessors", device.isa);
  if (roof.floor_us > 0) out += fmt::format("; roofline {} us", microseconds(roof.floor_us));
  if (roof.floor_us > 0 && !roof.bound.empty()) out += ", bound by " + roof.bound;
  out += "\n\n";

  const double peer_us = best_peer_us(comparison);
  Table table({{"provider"},
               {"us", Align::right},
               {"vs best peer", Align::right},
               {"GFLOP/s", Align::right},
               {"GB/s", Align::right},
               {"roofline", Align::right},
               {"max error", Align::right},
               {"algorithm and config"}});
  const std::vector<const ProviderResult*> rows = shown(comparison);
  for (const ProviderResult* row : rows) {
    const ProviderResult& provider = *row;
    const std::string how = with_config(provider.algorithm, provider.config);
    if (!provider.failure.empty()) {
      table.add_row({provider.name, "-", "-", "-", "-", "-", "-", "failed: " + provider.failure}, Tone::bad);
      continue;
    }
    const double us = provider.time_us;
    const auto rate = [&](double work) { return us > 0 ? fmt::format("{:.1f}", work / us / 1e3) : "-"; };
    table.add_row(
        {provider.name, microseconds(us), peer_us > 0 && us > 0 ? fmt::format("{:.2f}x", peer_us / us) : "-",
         rate(problem.flops()), rate(problem.bytes()),
         roof.floor_us > 0 ? fmt::format("{:.1f} % {}", 100 * provider.roofline_fraction, roof.bound) : "-",
         provider.n > 0 ? fmt::format("{:.1e}", provider.max_error) : "-", how},
        &provider == &comparison.providers.front() ? Tone::strong : Tone::plain);
  }
  out += table.render(style);
  if (const std::size_t slower = comparison.providers.size() - rows.size(); slower > 0)
    out += fmt::format("and {} that took longer (--json has them all)\n",
                       counted(static_cast<std::int64_t>(slower), "peer", "peers"));
  if (comparison.providers.size() == 1) out += "no peer ran here\n";
  out += fmt::format("\ndecision: {}\n",
                     printable(comparison.decision.empty() ? comparison.plan.why : comparison.decision));
  return out;
}

std::string render_last_stage(const MicroTuning& stage) {
  std::string out = fmt::format("last stage, of {}\n", printable(stage.original));
  for (const std::string& verdict : stage.verdicts) out += fmt::format("  {}\n", printable(verdict));
  for (const MicroTuning::Tried& one : stage.tried)
    out += fmt::format("    {:>8} us  {}{}\n", one.time_us > 0 ? microseconds(one.time_us) : "-", one.reason,
                       one.failure.empty() ? "" : "; failed: " + printable(one.failure));
  return out;
}

std::string render_summary(const std::vector<ReportRow>& rows) {
  const ReportSummary summary = summarize(rows);
  std::string mean = "no case has a peer to compare with";
  if (summary.compared > 0)
    mean = fmt::format("geomean speed-up over the best peer {:.2f}x over {}", summary.geomean_speedup,
                       counted(summary.compared, "case", "cases"));
  return fmt::format("{}; {}, {}, {} (±{:g} %)\n", mean, counted(summary.wins, "win", "wins"),
                     counted(summary.ties, "tie", "ties"), counted(summary.losses, "loss", "losses"),
                     100 * kTieShare);
}

}  // namespace convtune::cli
