// A comparison as people read it: one block a case, and the footer under all of them.
#pragma once

#include <string>
#include <vector>

#include "convtune/report.h"
#include "table.h"

namespace convtune::cli {

// Selects how much of a comparison is printed.
struct Detail {
  bool all = false;      // every way of the vendor's, rather than the best of each layout
  bool verbose = false;  // every rule of the last stage, rather than what came of it
};

// The case and its roofline, one row a provider, who won by how much, and the decision.
std::string render_comparison(const Comparison& comparison, const Style& style, const Detail& detail = {});
// Tells how the search went, and where its record lies.
std::string render_tuning(const TuningSummary& tuning, const Style& style, const Detail& detail = {});
// "9 wins, 1 tie, 1 loss (±2 %); geomean speed-up over the best peer 1.52x (11 cases)".
std::string render_summary(const std::vector<ReportRow>& rows, const Style& style);
// "direct vectors=4": what an algorithm runs with, on one line.
std::string with_config(const std::string& algorithm, const Config& config);

}  // namespace convtune::cli
