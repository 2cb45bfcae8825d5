// Draws what tune and bench found: all cases at a glance, then each by itself.
#include <algorithm>
#include <cmath>
#include <map>

#include "page/charts.h"
#include "page/html_table.h"
#include "page/labels.h"
#include "page/numbers.h"
#include "page/sections.h"

namespace convtune::page {
namespace {

Limits limits_of(std::size_t rows) {
  return rows <= 20 ? Limits{12, 300, true} : Limits{3, 0, false};
}

std::string with_config(const ProviderResult& one) {
  const std::string config = to_string(one.config);
  return config.empty() ? one.algorithm : one.algorithm + ' ' + config;
}

bool ran(const ProviderResult& one) {
  return one.failure.empty() && std::isfinite(one.time_us) && one.time_us > 0;
}

// The vendor's ways that ran, the fastest first, but for the one that convtune itself runs.
std::vector<const ProviderResult*> peers_of(const Comparison& comparison) {
  std::vector<const ProviderResult*> peers;
  const auto& all = comparison.providers;
  for (std::size_t i = 1; i < all.size(); ++i)
    if (ran(all[i]) && all[i].name != with_config(all[0])) peers.push_back(&all[i]);
  std::stable_sort(peers.begin(), peers.end(),
                   [](const ProviderResult* a, const ProviderResult* b) { return a->time_us < b->time_us; });
  return peers;
}

std::string outcome(const ReportRow& row) {
  const double speedup = row.comparison.speedup;
  if (!own_result(row)) return "failed";
  if (!(speedup > 0)) return "no peer";
  return speedup > 1 + kTieShare ? "win" : speedup < 1 - kTieShare ? "loss" : "tie";
}

std::string verdict_of(const ReportRow& row) {
  if (!row.failure.empty()) return "It failed: " + row.failure;
  return verdict(row.comparison, Letters::typographic) + ".";
}

bool is_proven(const ReportRow& row) {
  return row.tuning ? row.tuning->proven : row.comparison.plan.source == PlanSource::tuned;
}
// No record answered: a model of time or a first guess did.
bool is_guess(const ReportRow& row) {
  const PlanSource source = row.comparison.plan.source;
  return own_result(row) && !row.tuning && source != PlanSource::tuned && source != PlanSource::unproven;
}

// True where a contest stands behind what convtune runs.
std::string proof_of(const ReportRow& row) {
  if (!own_result(row) || !best_peer(row.comparison)) return {};
  if (row.tuning && row.tuning->contest) {
    const ContestResult& result = row.tuning->contest->result;
    return result.accepted    ? " The gain is proven in a contest."
           : result.undecided ? " It is not proven: the contest could not decide."
                              : " The contest proved no gain, so that the vendor's way stays.";
  }
  if (is_proven(row)) return " The contest behind its record decided.";
  if (row.tuning || row.comparison.plan.source == PlanSource::unproven)
    return " It is not proven: its record says so.";
  return " No contest was held: the plan is an estimate, and the times are medians of one run.";
}

// The verdict of all rows: how much faster, how often, and how much of that is proven.
Markup headline(const std::vector<ReportRow>& rows) {
  const auto strong = [](const std::string& words) { return markup("<p class=\"verdict\">{}</p>\n", words); };
  if (rows.size() == 1) return strong(verdict_of(rows.front()) + proof_of(rows.front()));
  Markup html;
  if (const ModelTimes all = model_times(rows); is_model(rows) && all.us > 0)
    html += strong(fmt::format("All convolutions of a pass: {} by the best peers, {} by convtune: {:.2f}×.",
                               time_text(all.best_peer_us), time_text(all.us), all.best_peer_us / all.us));
  const ReportSummary summary = summarize(rows);
  std::string sum;
  if (summary.compared > 0)
    sum = fmt::format("{:.2f}× over the best peer, the geometric mean of {} case{}. ",
                      summary.geomean_speedup, summary.compared, summary.compared == 1 ? "" : "s");
  const auto proven = std::count_if(
      rows.begin(), rows.end(), [](const ReportRow& row) { return is_proven(row) && outcome(row) == "win"; });
  sum += fmt::format("{} of {} cases won, {} of them proven in a contest; {} tied (±{:g} %), {} lost.",
                     summary.wins, rows.size(), proven, summary.ties, 100 * kTieShare, summary.losses);
  html += strong(sum);
  if (const auto guesses = std::count_if(rows.begin(), rows.end(), is_guess); guesses > 0)
    html +=
        paragraph(fmt::format("No contest was held for {} {}: the plans are estimates, and the times are "
                              "medians of one run. `convtune tune` proves what it finds.",
                              guesses, guesses == 1 ? "case" : "cases"));
  return html;
}

// The roofs of a row: measured with it, or what its floor says of one of them.
Roof roof_of(const Comparison& comparison) {
  const Roofline& known = comparison.roofline;
  const ConvProblem& problem = comparison.problem;
  Roof roof{std::string(to_string(problem.precision)), known.flops_per_second, known.bytes_per_second};
  if (known.floor_us > 0 && roof.flops_per_second == 0 && known.bound == "compute")
    roof.flops_per_second = problem.flops() / known.floor_us * 1e6;
  if (known.floor_us > 0 && roof.bytes_per_second == 0 && known.bound == "memory")
    roof.bytes_per_second = problem.bytes() / known.floor_us * 1e6;
  return roof;
}

// One a precision; what one row does not know another may.
std::vector<Roof> roofs_of(const std::vector<ReportRow>& rows) {
  std::map<std::string, Roof> of_precision;
  double copy = 0;
  for (const ReportRow& row : rows) {
    const Roof roof = roof_of(row.comparison);
    copy = std::max(copy, roof.bytes_per_second);
    Roof& known = of_precision[roof.name];
    known.name = roof.name, known.flops_per_second = std::max(known.flops_per_second, roof.flops_per_second);
  }
  std::vector<Roof> roofs;
  for (auto& [name, roof] : of_precision) {
    roof.bytes_per_second = copy;
    roofs.push_back(roof);
  }
  return roofs;
}

Markup roofline(const std::vector<ReportRow>& rows, const Limits& limits, const Place& place) {
  std::vector<RooflineMark> marks;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Comparison& comparison = rows[i].comparison;
    const double flops = comparison.problem.flops(), intensity = flops / comparison.problem.bytes();
    const auto add = [&](const ProviderResult& one, Who who, const std::string& name) {
      marks.push_back({intensity, flops / one.time_us * 1e6, who, name});
    };
    std::vector<const ProviderResult*> peers = peers_of(comparison);
    if (peers.size() > limits.peers) peers.resize(limits.peers);
    const bool alone = rows.size() == 1;
    for (const ProviderResult* peer : peers) {
      const bool best = peer->name == comparison.best_peer;
      add(*peer, best ? Who::best_peer : Who::peer, alone && best ? peer->name : "");
    }
    if (const ProviderResult* own = own_result(rows[i]); own && ran(*own))
      add(*own, Who::own, alone ? "convtune" : fmt::format("{}", i + 1));
  }
  return roofline_chart(place.id + "-roofline", marks, roofs_of(rows));
}

Markup overview(const std::vector<ReportRow>& rows, const Place& place) {
  double least = 0, most = 0;
  for (const ReportRow& row : rows)
    for (const ProviderResult* one : {own_result(row), best_peer(row.comparison)})
      if (one && ran(*one)) {
        least = least > 0 ? std::min(least, one->time_us) : one->time_us;
        most = std::max(most, one->time_us);
      }
  const Scale time = scale_of_us(least, most);
  Table table("the cases",
              {{"#", true, true},
               {"case"},
               {"batch", true, true},
               {fmt::format("convtune {}", time.unit), true, true},
               {fmt::format("best peer {}", time.unit), true, true},
               {"speed-up", true},
               {"of roofline", true, true},
               {"bound", false, true},
               {"outcome"}},
              true);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Comparison& comparison = rows[i].comparison;
    const ProviderResult *own = own_result(rows[i]), *peer = best_peer(comparison);
    const auto text = [](const std::string& words) { return Markup{escaped(words)}; };
    const bool has_own = own && ran(*own);
    const std::string name =
        comparison.problem.name.empty() ? key(comparison.problem) : comparison.problem.name;
    table.add_row({text(fmt::format("{}", i + 1)), markup("<a href=\"#{}-{}\">{}</a>", place.id, i + 1, name),
                   text(fmt::format("{}", comparison.problem.n)), text(has_own ? time(own->time_us) : "-"),
                   text(peer ? time(peer->time_us) : "-"),
                   text(comparison.speedup > 0 ? fmt::format("{:.2f}×", comparison.speedup) : "-"),
                   text(has_own && own->roofline_fraction > 0 ? percent(own->roofline_fraction) : "-"),
                   text(comparison.roofline.bound), text(outcome(rows[i]))});
  }
  return table.render();
}

Markup providers_table(const Comparison& comparison, const std::vector<const ProviderResult*>& shown) {
  double least = 0;
  for (const ProviderResult* one : shown)
    if (ran(*one)) least = least > 0 ? std::min(least, one->time_us) : one->time_us;
  const double flops = comparison.problem.flops(), bytes = comparison.problem.bytes();
  const double most = least > 0 ? 1e6 / least : 0;
  const Scale time = scale_of_us(least), speed = scale_of_flops(flops * most),
              copy = scale_of_bytes(bytes * most);
  const ProviderResult* const peer = best_peer(comparison);
  Table table("times and rates",
              {{"provider"},
               {fmt::format("time {}", time.unit), true},
               {"±", true, true},
               {"samples", true, true},
               {"speed-up", true},
               {speed.unit, true, true},
               {copy.unit, true, true},
               {"of roofline", true, true},
               {"max error", true, true}},
              true);
  for (const ProviderResult* one : shown) {
    const bool own = one == &comparison.providers.front();
    std::vector<std::string> cells = {one->name};
    if (ran(*one)) {
      for (const std::string& cell :
           {time(one->time_us), one->n > 1 ? percent(one->mad_us / one->time_us) : std::string("-"),
            one->interrupted > 0 ? fmt::format("{}, {} interrupted", one->n, one->interrupted)
                                 : fmt::format("{}", one->n),
            peer ? fmt::format("{:.2f}×", peer->time_us / one->time_us) : std::string("-"),
            speed(flops / one->time_us * 1e6), copy(bytes / one->time_us * 1e6),
            one->roofline_fraction > 0 ? percent(one->roofline_fraction) : std::string("-"),
            one->n > 0 ? fmt::format("{:.1e}", one->max_error) : std::string("-")})
        cells.push_back(cell);
    } else {
      cells.resize(9, "-");
    }
    table.add_row(cells, own ? "own" : !ran(*one) ? "bad" : "");
  }
  return table.render();
}

Markup resources(const Resources& kernel) {
  const Occupancy& occupancy = kernel.occupancy;
  Table table("what the kernel takes, by its compiler", {{"registers a thread", true},
                                                         {"spilled bytes a thread", true},
                                                         {"shared memory a block, bytes", true},
                                                         {"threads a block", true},
                                                         {"blocks", true},
                                                         {"occupancy", true},
                                                         {"limited by"}});
  table.add_row(std::vector<std::string>{
      fmt::format("{}", kernel.registers), fmt::format("{}", kernel.spill_bytes),
      fmt::format("{}", kernel.smem_bytes), fmt::format("{}", kernel.threads),
      fmt::format("{}", kernel.blocks), fmt::format("{:.0f} %", 100 * occupancy.share),
      std::string(to_string(occupancy.limiter))});
  Markup html =
      paragraph(fmt::format("{} warps, in {} block{}, fit a multiprocessor at once, {:.0f} % of what it can "
                            "hold: {} allow no more.",
                            occupancy.warps, occupancy.blocks, occupancy.blocks == 1 ? "" : "s",
                            100 * occupancy.share, to_string(occupancy.limiter)));
  html += table.render();
  return html;
}

Markup fact(std::string_view name, std::string_view value) {
  return value.empty() ? Markup{} : markup("<dt>{}</dt><dd>{}</dd>\n", name, value);
}

Markup facts(const ReportRow& row) {
  const Comparison& comparison = row.comparison;
  const ConvProblem& problem = comparison.problem;
  const Roofline& roof = comparison.roofline;
  Markup list = fact("problem", key(problem));
  list += fact("batch", fmt::format("{}", problem.n));
  list += fact("work", fmt::format("{}, and {} that must move at least: {} FLOP per byte",
                                   with_prefix(problem.flops(), "FLOP"), with_prefix(problem.bytes(), "B"),
                                   short_number(problem.flops() / problem.bytes())));
  if (roof.floor_us > 0)
    list += fact("roofline", fmt::format("{}, bound by {}", time_text(roof.floor_us), roof.bound));
  if (const ProviderResult* own = own_result(row)) list += fact("convtune runs", with_config(*own));
  list += fact("checked", check_text(comparison));
  list += fact("machine", interruptions(comparison));
  if (row.tuning) list += fact("record", row.tuning->record);
  return markup("<dl>\n{}</dl>\n", list);
}

// Quotes a word for a shell; a problem's text has no character that the shell would read otherwise.
Markup commands(const ReportRow& row, const ReportEnvironment& environment) {
  const std::string& device = row.comparison.device.fingerprint;
  const std::string where = device.starts_with("cuda|")
                                ? std::string("--device cuda")
                                : fmt::format("--device cpu --threads {}", environment.threads);
  const std::string problem = key(row.comparison.problem);
  return markup(
      "<pre><code>convtune bench {0} {1}\nconvtune tune {0} {1} --retune\nconvtune plan {0} {1}\nconvtune "
      "verify {0} {1}</code></pre>\n",
      problem, where);
}

Markup case_section(const ReportRow& row, const ReportEnvironment& environment, const Limits& limits,
                    const Place& place) {
  const Comparison& comparison = row.comparison;
  Markup html = facts(row);
  if (!comparison.providers.empty()) {
    const std::vector<const ProviderResult*> peers = peers_of(comparison);
    std::vector<const ProviderResult*> shown = {&comparison.providers.front()};
    shown.insert(shown.end(), peers.begin(),
                 peers.begin() + static_cast<std::ptrdiff_t>(std::min(peers.size(), limits.peers)));
    std::vector<TimeBar> bars;
    for (const ProviderResult* one : shown)
      if (ran(*one))
        bars.push_back({one->name, one->time_us, one->mad_us, one->n,
                        one == shown[0]                     ? Who::own
                        : one->name == comparison.best_peer ? Who::best_peer
                                                            : Who::peer});
    html += time_bars(place.id + "-times", "Time of each provider", bars, comparison.roofline.floor_us,
                      Cut::outliers, limits.all ? Rooms::both : Rooms::small);
    html += providers_table(comparison, shown);
    if (peers.size() > limits.peers)
      html += paragraph(
          fmt::format("{} slower ways of the vendor's are in the JSON.", peers.size() - limits.peers));
    std::vector<std::string> failed;
    for (const ProviderResult& one : comparison.providers)
      if (!one.failure.empty()) failed.push_back(fmt::format("{} failed: {}", one.name, one.failure));
    if (failed.size() > limits.peers) {
      const std::size_t more = failed.size() - limits.peers;
      failed.resize(limits.peers);
      failed.push_back(fmt::format("{} more failed; they are in the JSON", more));
    }
    html += bullets(failed);
  }
  if (comparison.resources) {
    html += heading(place.level + 1, "Resources and occupancy");
    html += resources(*comparison.resources);
  }
  if (!comparison.decision.empty()) {
    html += heading(place.level + 1, "Decision");
    html += paragraph(comparison.decision);
  }
  if (row.tuning) html += tuning_section(*row.tuning, limits, {place.id, place.level + 1});
  html += heading(place.level + 1, "Again");
  html += commands(row, environment);
  return html;
}

}  // namespace

Markup section(const std::vector<ReportRow>& rows, const ReportEnvironment& environment, const Place& place) {
  if (rows.empty()) return paragraph("Nothing was measured.");
  const Limits limits = limits_of(rows.size());
  Markup html = headline(rows);
  html += model_times_section(rows, place);
  if (rows.size() > 1) {
    html += heading(place.level, "Cases", place.id + "-cases");
    html += overview(rows, place);
  }
  html += heading(place.level, "Roofline");
  const Markup chart = roofline(rows, limits, place);
  html += chart.empty() ? paragraph("No provider has a time.") : chart;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Place of_case{fmt::format("{}-{}", place.id, i + 1), place.level};
    const std::string name = case_name(rows[i].comparison.problem);
    Markup verdict;
    if (rows.size() > 1) verdict = markup("<p class=\"verdict\">{}</p>\n", verdict_of(rows[i]));
    html +=
        markup("<section>\n{}{}{}</section>\n",
               heading(place.level, rows.size() > 1 ? fmt::format("{}. {}", i + 1, name) : name, of_case.id),
               verdict, case_section(rows[i], environment, limits, of_case));
  }
  return html;
}

}  // namespace convtune::page
