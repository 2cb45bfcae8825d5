// The tables of --model: a model's convolutions, each with how often it runs, and where the time of them
// goes.
#pragma once

#include <string>
#include <vector>

#include "convtune/model.h"
#include "convtune/report.h"
#include "table.h"

namespace convtune::cli {

// Returns the table of `cases`, in the model's order.
std::string render_convolutions(const Model& model, const Style& style);

// Returns the share of time of each row by its best peer, and the gain: most time first, and all of
// it. Empty where nothing was measured.
std::string render_model(const std::vector<ReportRow>& rows, const Style& style);

// Holds the plan of one convolution: `us` of one run, from a record or by a model's estimate; 0 is
// not known. Its config is what `plan` of the problem says.
struct PlannedRow {
  const ModelConvolution* convolution;
  std::string algorithm, source;
  double us = 0;
};
// Most time first, then most work. `time`: what the times are: "recorded", "estimate".
std::string render_plans(std::vector<PlannedRow> rows, const std::string& time, const Style& style);

}  // namespace convtune::cli
