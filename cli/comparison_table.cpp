// The table of tune and bench, and the sentences under it.
#include "comparison_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "convtune/units.h"
#include "output.h"

namespace convtune::cli {
namespace {

constexpr int kIndent = 2;  // per sentence's second line

using Providers = std::vector<const ProviderResult*>;

std::string sentence(const std::string& text, const Style& style) {
  return wrapped(printable(text), style.width, kIndent) + '\n';
}

// convtune's own result is a way of the vendor's. A record knows that one's name alone.
bool same_way(const ProviderResult& own, const ProviderResult& peer) {
  return peer.name == with_config(own.algorithm, own.config);
}

// A vendor's layout is what its configs name first: "nhwc=1", "blocked=0".
bool same_layout(const ProviderResult& a, const ProviderResult& b) {
  const auto first = [](const ProviderResult& one) {
    return one.config.values.empty() ? std::pair<std::string, std::int64_t>() : one.config.values.front();
  };
  return a.algorithm == b.algorithm && first(a) == first(b);
}

// The vendor's ways that ran, the one left out that is convtune's own row.
Providers peers_of(const Comparison& comparison) {
  Providers peers;
  for (std::size_t i = 1; i < comparison.providers.size(); ++i)
    if (const ProviderResult& one = comparison.providers[i];
        one.failure.empty() && !same_way(comparison.providers.front(), one))
      peers.push_back(&one);
  return peers;
}

// Picks each layout's best peer, or else its fastest.
Providers best_of_layouts(const Providers& peers, const std::string& best_peer) {
  const auto better = [&](const ProviderResult& a, const ProviderResult& b) {
    return a.name == best_peer || (b.name != best_peer && a.time_us < b.time_us);
  };
  Providers best;
  for (const ProviderResult* one : peers) {
    const auto known = std::find_if(best.begin(), best.end(),
                                    [&](const ProviderResult* other) { return same_layout(*one, *other); });
    if (known == best.end())
      best.push_back(one);
    else if (better(*one, **known))
      *known = one;
  }
  return best;
}

std::string table_of(const Comparison& comparison, const Providers& rows, const Style& style) {
  const Roofline& roof = comparison.roofline;
  double least_us = 0;
  for (const ProviderResult* row : rows)
    if (row->time_us > 0 && (least_us == 0 || row->time_us < least_us)) least_us = row->time_us;
  const auto rate = [](double work, double us) { return us > 0 ? work / us * 1e6 : 0; };
  const Scale time = scale_of_us(least_us),
              flops = scale_of_flops(rate(comparison.problem.flops(), least_us)),
              bytes = scale_of_bytes(rate(comparison.problem.bytes(), least_us));
  const ProviderResult* const peer = best_peer(comparison);

  Table table({{"provider"},
               {std::string("time ") + time.unit, Align::right},
               {"speed-up", Align::right},
               {flops.unit, Align::right, 3},
               {bytes.unit, Align::right, 2},
               {"of roofline", Align::right, 4},
               {"max error", Align::right, 1}});
  for (const ProviderResult* row : rows) {
    const double us = row->time_us;
    if (us <= 0) {
      table.add_row({row->name, "-", "-", "-", "-", "-", "-"}, Tone::bad);
      continue;
    }
    table.add_row({row->name, time(us), peer ? fmt::format("{:.2f}x", peer->time_us / us) : "-",
                   flops(rate(comparison.problem.flops(), us)), bytes(rate(comparison.problem.bytes(), us)),
                   roof.floor_us > 0 ? fmt::format("{:.1f} %", 100 * row->roofline_fraction) : "-",
                   row->n > 0 ? fmt::format("{:.1e}", row->max_error) : "-"},
                  row == rows.front() ? Tone::strong : Tone::plain);
  }
  return table.render(style);
}

// Returns the notes below the table.
std::string remainder(const Comparison& comparison, std::size_t hidden, const Style& style, bool all) {
  std::string out;
  if (hidden > 0)
    out += sentence(fmt::format("and {} of the vendor's (--all)",
                                counted(static_cast<std::int64_t>(hidden), "slower way", "slower ways")),
                    style);
  Providers failed;
  for (const ProviderResult& one : comparison.providers)
    if (!one.failure.empty()) failed.push_back(&one);
  for (const ProviderResult* one : failed) {
    const bool own = one == &comparison.providers.front();
    if (own || all || failed.size() <= 1) {
      out += sentence(fmt::format("{} failed: {}", one->name, one->failure), style);
    } else {
      out += sentence(fmt::format("{} of the vendor's ways failed (--all), as {}: {}", failed.size(),
                                  one->name, one->failure),
                      style);
      break;
    }
  }
  return out;
}

// convtune's config has a line of its own, and the decision need not tell it again.
std::string decision_of(const Comparison& comparison) {
  const std::string how = with_config(comparison.plan.algorithm, comparison.plan.config);
  std::string text = comparison.decision.empty() ? comparison.plan.why : comparison.decision;
  for (const ProviderResult& one : comparison.providers)
    if (one.name == how) return text;
  if (comparison.plan.config.values.empty()) return text;
  for (std::size_t at = 0; (at = text.find(how, at)) != text.npos;) text.replace(at, how.size(), "convtune");
  return text;
}

std::string last_stage_line(const MicroTuning& stage) {
  if (stage.changed)
    return fmt::format("last stage: {} is proven faster than {}", stage.kept, stage.original);
  const auto measured = std::count_if(stage.tried.begin(), stage.tried.end(),
                                      [](const MicroTuning::Tried& one) { return one.time_us > 0; });
  return measured > 1 ? fmt::format("last stage: {} measured, none is proven faster",
                                    counted(measured - 1, "neighbour", "neighbours"))
                      : "last stage: no neighbour was measured (--verbose says why)";
}

std::string last_stage_rules(const MicroTuning& stage, const Style& style) {
  std::string out = sentence("last stage, of " + stage.original, style);
  for (const std::string& verdict : stage.verdicts)
    out += "  " + wrapped(printable(verdict), style.width, 6, 2) + '\n';
  for (const MicroTuning::Tried& one : stage.tried)
    out += fmt::format("    {:>10}  {}{}\n", one.time_us > 0 ? time_text(one.time_us) : "-", one.reason,
                       one.failure.empty() ? "" : "; failed: " + printable(one.failure));
  return out;
}

}  // namespace

std::string with_config(const std::string& algorithm, const Config& config) {
  const std::string text = to_string(config);
  return text.empty() ? algorithm : algorithm + ' ' + text;
}

std::string render_comparison(const Comparison& comparison, const Style& style, const Detail& detail) {
  const ConvProblem& problem = comparison.problem;
  const DeviceInfo& device = comparison.device;
  const Roofline& roof = comparison.roofline;
  std::string out = sentence(problem.name.empty() ? key(problem) : problem.name + ": " + key(problem), style);
  const bool cpu = device.device.kind == Device::Kind::cpu;
  std::string where = fmt::format(
      "{}: {}, {}, {}", to_string(device.device), device.name,
      counted(device.units, cpu ? "thread" : "multiprocessor", cpu ? "threads" : "multiprocessors"),
      device.isa);
  if (roof.floor_us > 0) where += fmt::format("; roofline {}", time_text(roof.floor_us));
  if (roof.floor_us > 0 && !roof.bound.empty()) where += ", bound by " + roof.bound;
  if (!comparison.incumbent.empty()) where += "; incumbent " + comparison.incumbent;
  out += sentence(where, style) + '\n';

  const Providers peers = peers_of(comparison);
  const Providers told = detail.all ? peers : best_of_layouts(peers, comparison.best_peer);
  Providers rows = {&comparison.providers.front()};
  rows.insert(rows.end(), told.begin(), told.end());
  out += table_of(comparison, rows, style);
  if (const std::string machine = interruptions(comparison); !machine.empty())
    out += sentence((machine_is_busy(comparison) ? "the machine is busy: " : "") + machine, style);
  if (const std::string check = check_text(comparison); !check.empty()) out += sentence(check, style);
  out += remainder(comparison, peers.size() - told.size(), style, detail.all) + '\n';

  const bool unproven = comparison.plan.source == PlanSource::unproven;
  out += sentence(verdict(comparison) + (unproven ? " (not proven)" : ""), style);
  const ProviderResult& own = comparison.providers.front();
  if (const ProviderResult* peer = best_peer(comparison); !peer || !same_way(own, *peer))
    out += sentence("convtune runs " + with_config(own.algorithm, own.config), style);
  if (own.algorithm.starts_with("winograd") && own.roofline_fraction > 1)
    out += sentence("more than 100 %: winograd makes fewer products than the roofline counts", style);
  else if (own.roofline_fraction > 1 && comparison.roofline.bound == "memory")
    out += sentence("more than 100 %: the roof is that of memory, and caches are faster", style);
  return out + sentence("decision: " + decision_of(comparison), style);
}

std::string render_tuning(const TuningSummary& tuning, const Style& style, const Detail& detail) {
  std::string out;
  if (tuning.from_record) {
    out += sentence("search: none, nothing was measured; --retune searches again", style);
  } else {
    std::string search = fmt::format("search: {} of {} tried", tuning.trials + tuning.resumed,
                                     counted(tuning.candidates, "candidate", "candidates"));
    if (tuning.small_batch > 0)
      search += fmt::format(", the fastest of {} on a batch of {}", tuning.small_trials, tuning.small_batch);
    if (tuning.resumed > 0) search += fmt::format(", {} of them in an earlier search", tuning.resumed);
    if (tuning.pruned > 0) search += fmt::format("; {} could not have won", tuning.pruned);
    if (tuning.wrong > 0) search += fmt::format("; {} failed", tuning.wrong);
    out += sentence(search, style);
  }
  if (tuning.last_stage)
    out += detail.verbose ? last_stage_rules(*tuning.last_stage, style)
                          : sentence(last_stage_line(*tuning.last_stage), style);
  if (!tuning.record.empty())  // a path is not broken: it is copied
    out += sentence("record: plan, conv2d and Python's convtune.conv2d use it from now on", style) + "  " +
           printable(tuning.record) + '\n';
  return out;
}

std::string render_summary(const std::vector<ReportRow>& rows, const Style& style) {
  const ReportSummary summary = summarize(rows);
  std::string mean = "no case has a peer to compare with";
  if (summary.compared > 0)
    mean = fmt::format("geomean speed-up over the best peer {:.2f}x ({})", summary.geomean_speedup,
                       counted(summary.compared, "case", "cases"));
  return sentence(fmt::format("{}, {}, {} (±{:g} %); {}", counted(summary.wins, "win", "wins"),
                              counted(summary.ties, "tie", "ties"), counted(summary.losses, "loss", "losses"),
                              100 * kTieShare, mean),
                  style);
}

}  // namespace convtune::cli
