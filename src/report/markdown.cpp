// Reports as tables in Markdown: the one writer of them.
#include <fmt/format.h>

#include <algorithm>

#include "report/formats.h"

namespace convtune {
namespace {

// Text that stays text in a cell: no end of it, no markup, no name that is called.
std::string plain(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == '\t')
      cell += ' ';
    else if (c == '<')
      cell += "&lt;";
    else if (c == '&')
      cell += "&amp;";
    else if (std::string_view("|\\`*_[]@#~").find(c) != std::string_view::npos)
      cell += std::string("\\") + c;
    else if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f)
      cell += c;
  }
  return cell;
}

// Writes a block of code, whose text is taken as it stands.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; },
      ' ');
  return text;
}

struct Column {
  std::string header;
  bool number = false;
};

std::string line(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string head(const std::vector<Column>& columns) {
  std::vector<std::string> names, rules;
  for (const Column& column : columns) {
    names.push_back(column.header);
    rules.emplace_back(column.number ? "---:" : "---");
  }
  return line(names) + line(rules);
}

Scale scale_of(const std::vector<double>& times) {
  double least = 0, most = 0;
  for (const double us : times)
    if (us > 0) least = least > 0 ? std::min(least, us) : us, most = std::max(most, us);
  return scale_of_us(least, most, Letters::typographic);
}

std::string table(const std::vector<ReportRow>& rows) {
  std::vector<double> times;
  for (const ReportRow& row : rows)
    for (const ProviderResult* one : {own_result(row), best_peer(row.comparison)})
      times.push_back(one ? one->time_us : 0);
  const Scale time = scale_of(times);
  std::string text;
  if (rows.size() == 1 && rows.front().failure.empty()) {
    text = plain(verdict(rows.front().comparison, Letters::typographic)) + ".\n\n";
  } else if (const ReportSummary sum = summarize(rows); sum.compared > 0) {
    text = fmt::format(
        "{:.2f}× over the best peer, the geometric mean of {} case{}: {} won, {} tied (±{:g} %), {} "
        "lost.\n\n",
        sum.geomean_speedup, sum.compared, sum.compared == 1 ? "" : "s", sum.wins, sum.ties, 100 * kTieShare,
        sum.losses);
  }
  text += head({{"case"},
                {"batch", true},
                {fmt::format("convtune {}", time.unit), true},
                {fmt::format("best peer {}", time.unit), true},
                {"speed-up", true},
                {"plan"},
                {"convtune runs"}});
  for (const ReportRow& row : rows) {
    const Comparison& comparison = row.comparison;
    const ConvProblem& problem = comparison.problem;
    const ProviderResult *const own = own_result(row), *const peer = best_peer(comparison);
    const std::string config = own ? to_string(own->config) : "";
    text += line({plain(problem.name.empty() ? key(problem) : problem.name), fmt::format("{}", problem.n),
                  own && own->time_us > 0 ? time(own->time_us) : "-", peer ? time(peer->time_us) : "-",
                  comparison.speedup > 0 ? fmt::format("{:.2f}×", comparison.speedup) : "-",
                  own ? std::string(to_string(comparison.plan.source)) : "-",
                  own ? plain(own->algorithm + (config.empty() ? "" : " " + config))
                      : "failed" + (row.failure.empty() ? "" : ": " + plain(row.failure))});
  }
  return text;
}

std::string table(const ModelReport& model) {
  std::vector<double> times;
  for (const ModelLayer& layer : model.layers)
    times.insert(times.end(), {layer.pytorch_us, layer.convtune_us});
  const Scale time = scale_of(times);
  std::string text;
  if (model.before_us > 0)
    text = fmt::format(
        "The whole forward: {} with PyTorch, {} with convtune: {:.1f} % less ({:.1f} to {:.1f} %). {}\n\n",
        time_text(model.before_us, Letters::typographic), time_text(model.after_us, Letters::typographic),
        100 * model.gain, 100 * model.low, 100 * model.high,
        model.kept ? "The swaps stay." : "The swaps do not stay.");
  text += head({{"layer"},
                {"calls", true},
                {fmt::format("PyTorch {}", time.unit), true},
                {fmt::format("convtune {}", time.unit), true},
                {"gain", true},
                {"decision"}});
  for (const ModelLayer& layer : model.layers) {
    std::string gain = fmt::format("{:.1f} %", 100 * layer.gain);
    if (layer.low < layer.high)
      gain += fmt::format(" ({:.1f} to {:.1f} %)", 100 * layer.low, 100 * layer.high);
    const std::size_t more = layer.names.size() > 1 ? layer.names.size() - 1 : 0;
    text += line({layer.names.empty()
                      ? "-"
                      : plain(layer.names.front()) + (more > 0 ? fmt::format(" and {} more", more) : ""),
                  fmt::format("{}", layer.calls), layer.pytorch_us > 0 ? time(layer.pytorch_us) : "-",
                  layer.convtune_us > 0 ? time(layer.convtune_us) : "-", layer.convtune_us > 0 ? gain : "-",
                  plain(layer.decision)});
  }
  return text;
}

}  // namespace

std::string report_markdown(const Report& report) {
  std::string text;
  if (const auto* const rows = std::get_if<std::vector<ReportRow>>(&report.content))
    text = table(*rows);
  else if (const auto* const model = std::get_if<ModelReport>(&report.content))
    text = table(*model);
  else
    throw has_no(report, "table in Markdown", "tune's, bench's and optimize's");
  const ReportEnvironment& from = report.environment;
  text += fmt::format("\n{}, {} CPU thread{}",
                      plain(from.device.name.empty() ? from.device.fingerprint : from.device.name),
                      from.threads, from.threads == 1 ? "" : "s");
  for (const auto& [what, version] : from.versions)
    text += fmt::format("; {} {}", plain(what), plain(version));
  text += fmt::format("; {}\n", plain(from.date));
  if (!from.command.empty()) text += fmt::format("\n    {}\n", one_line(from.command));
  if (report.interrupted) text += "\nInterrupted: the numbers are those of what was done.\n";
  return text;
}

}  // namespace convtune
