// Shows how a search went: the contest with the vendor, the tries, the rules of the last stage.
#include "page/charts.h"
#include "page/html_table.h"
#include "page/numbers.h"
#include "page/sections.h"

namespace convtune::page {
namespace {

Markup contests(const std::vector<HeldContest>& held, bool with_rounds, const std::string& id) {
  Markup html;
  for (std::size_t i = 0; i < held.size(); ++i)
    html += contest_chart(fmt::format("{}{}", id, i + 1), held[i], with_rounds);
  return html;
}

std::string summary(const TuningSummary& tuning) {
  if (tuning.from_record) return "Answered from the record: nothing was measured.";
  const std::int64_t tried = tuning.trials + tuning.resumed;
  // Reports of earlier versions do not know how many there were.
  std::string text = tuning.candidates > 0
                         ? fmt::format("{} of {} candidates were tried", tried, tuning.candidates)
                         : fmt::format("{} candidates were tried", tried);
  if (tuning.small_batch > 0)
    text += fmt::format(", the fastest of {} on a batch of {}", tuning.small_trials, tuning.small_batch);
  if (tuning.resumed > 0) text += fmt::format(", {} of them in an earlier search", tuning.resumed);
  if (tuning.pruned > 0) text += fmt::format("; {} could not have won", tuning.pruned);
  if (tuning.wrong > 0) text += fmt::format("; {} failed", tuning.wrong);
  text += '.';
  if (!tuning.proven) text += " The result is not proven: the next tune holds the contest again.";
  if (!tuning.not_recorded.empty()) text += " It is not recorded: " + tuning.not_recorded;
  return text;
}

Markup last_stage(const MicroTuning& stage, bool with_contests, const Place& place) {
  Markup html = heading(place.level, "Last stage");
  html += paragraph(stage.changed ? fmt::format("{} is proven faster than {}.", stage.kept, stage.original)
                                  : fmt::format("{} stays.", stage.original));
  html += bullets(stage.verdicts);
  Table table("the neighbours of the winner", {{"config"}, {"why"}, {"time", true}});
  for (const MicroTuning::Tried& one : stage.tried)
    table.add_row(std::vector<std::string>{to_string(one.config), one.reason,
                                           !one.failure.empty() ? "failed: " + one.failure
                                           : one.time_us > 0    ? time_text(one.time_us)
                                                                : std::string("-")},
                  one.failure.empty() ? "" : "bad");
  if (!table.empty()) html += table.render();
  if (with_contests) html += contests(stage.contests, true, place.id + "-stage");
  return html;
}

}  // namespace

Markup tuning_section(const TuningSummary& tuning, const Limits& limits, const Place& place) {
  Markup html;
  if (tuning.contest) {
    html += heading(place.level, "Contest");
    html += contests({*tuning.contest}, limits.all, place.id + "-contest");
  }
  html += heading(place.level, "Search");
  html += paragraph(summary(tuning));
  if (limits.tries > 0) html += search_chart(place.id + "-search", tuning.steps, limits.tries);
  html += bullets(tuning.warnings);
  if (tuning.last_stage) html += last_stage(*tuning.last_stage, limits.all, place);
  return html;
}

}  // namespace convtune::page
