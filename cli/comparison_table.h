// A comparison as people read it: one block a case, and the footer under all of them.
#pragma once

#include <string>
#include <vector>

#include "convtune/report.h"
#include "table.h"

namespace convtune::cli {

// The case and its roofline, one row a provider, the plan and the decision.
std::string render_comparison(const Comparison& comparison, const Style& style);
// What the rules of a search's last stage said, and what was measured.
std::string render_last_stage(const MicroTuning& stage);
// "geomean speed-up over the best peer 1.52x over 11 cases; 9 wins, 1 tie, 1 loss (±2 %)".
std::string render_summary(const std::vector<ReportRow>& rows);
// "direct vectors=4": what an algorithm runs with, on one line.
std::string with_config(const std::string& algorithm, const Config& config);

}  // namespace convtune::cli
