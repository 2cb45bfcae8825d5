// The parts of a page, one for each kind of report.
#pragma once

#include <string>

#include "convtune/report.h"
#include "page/markup.h"

namespace convtune::page {

// Gives a section the prefix of its ids and the level of its headings.
struct Place {
  std::string id;
  int level = 2;

  Place below(const std::string& name) const { return {id + '-' + name, level + 1}; }
};

Markup section(const std::vector<ReportRow>& rows, const ReportEnvironment& environment, const Place& place);
Markup section(const VerifyReport& verified, const ReportEnvironment& environment, const Place& place);
Markup section(const Refined& refined, const ReportEnvironment& environment, const Place& place);
Markup section(const ModelReport& model, const ReportEnvironment& environment, const Place& place);
Markup section(const Analyzed& analyzed, const ReportEnvironment& environment, const Place& place);

// True where the rows are a model's.
bool is_model(const std::vector<ReportRow>& rows);
// Draws a model's time by layer; empty if the rows are not a model's.
Markup model_times_section(const std::vector<ReportRow>& rows, const Place& place);

// A page of 60 cases stays below 500 KiB: of many cases each shows less.
struct Limits {
  std::size_t peers, tries;  // drawn; 0: there is no chart
  bool all;                  // each round of a contest in figures, and the contests of the last stage
};

// Shows how the search of one row went.
Markup tuning_section(const TuningSummary& tuning, const Limits& limits, const Place& place);

}  // namespace convtune::page
