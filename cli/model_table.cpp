// See model_table.h.
#include "model_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "convtune/units.h"
#include "output.h"

namespace convtune::cli {
namespace {

// "conv1", "layer1.0.conv2 and 3 more". A terminal has little room, so that its names are without what all of
// them begin and end with.
class LayerCells {
 public:
  LayerCells(const std::vector<std::string>& names, const Style& style) : names_{names, {}} {
    if (style.width > 0) names_ = short_names(names);
  }
  std::string cell(std::size_t i, const std::vector<std::string>& layers) const {
    return layers.size() > 1 ? fmt::format("{} and {} more", names_.names.at(i), layers.size() - 1)
                             : names_.names.at(i);
  }
  std::string below() const { return names_.left_out.empty() ? "" : names_.left_out + '\n'; }

 private:
  ShortNames names_;
};

std::string share_cell(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

double gflop(const ConvProblem& problem, std::int64_t count) {
  return static_cast<double>(count) * problem.flops() / 1e9;
}

}  // namespace

std::string render_convolutions(const Model& model, const Style& style) {
  Table table({{"layer", Align::left, 0, true},
               {"runs", Align::right},
               {"GFLOP", Align::right, 3},
               {"of all", Align::right, 2},
               {"problem"}});
  std::vector<std::string> names;
  for (const ModelConvolution& one : model.convolutions) names.push_back(one.problem.name);
  const LayerCells layers(names, style);
  double all = 0;
  std::int64_t runs = 0;
  for (const ModelConvolution& one : model.convolutions) {
    all += gflop(one.problem, one.count);
    runs += one.count;
  }
  for (std::size_t i = 0; i < model.convolutions.size(); ++i) {
    const ModelConvolution& one = model.convolutions[i];
    const double work = gflop(one.problem, one.count);
    table.add_row({layers.cell(i, one.layers), fmt::format("{}", one.count), fmt::format("{:.3g}", work),
                   share_cell(work, all), key(one.problem)});
  }
  const auto kinds = static_cast<std::int64_t>(model.convolutions.size());
  table.add_row({"all of " + model.name, fmt::format("{}", runs), fmt::format("{:.3g}", all),
                 share_cell(all, all), counted(kinds, "problem", "problems")},
                Tone::strong);
  return table.render(style) + layers.below();
}

std::string render_model(const std::vector<ReportRow>& rows, const Style& style) {
  const ModelTimes all = model_times(rows);
  if (all.us <= 0) return "";
  struct Line {
    const ReportRow* row;
    double us, peer_us;
    bool has_peer;
  };
  std::vector<Line> lines;
  std::int64_t runs = 0;
  for (const ReportRow& row : rows)
    if (const ProviderResult* const own = own_result(row)) {
      const ProviderResult* const peer = best_peer(row.comparison);
      const auto count = static_cast<double>(row.count);
      lines.push_back({&row, count * own->time_us, count * (peer ? peer : own)->time_us, peer != nullptr});
      runs += row.count;
    }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.peer_us > b.peer_us; });
  const Scale time = scale_of_us(lines.back().peer_us, all.best_peer_us);
  std::vector<std::string> names;
  for (const Line& line : lines) names.push_back(line.row->comparison.problem.name);
  const LayerCells layers(names, style);
  Table table({{"where the time goes", Align::left, 0, true},
               {"runs", Align::right, 4},
               {"share", Align::right},
               {std::string("best peer ") + time.unit, Align::right},
               {std::string("convtune ") + time.unit, Align::right},
               {"speed-up", Align::right, 3},
               {std::string("gain ") + time.unit, Align::right},
               {"algorithm", Align::left, 2},
               {"problem", Align::left, 1}});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    const ConvProblem& problem = line.row->comparison.problem;
    table.add_row({layers.cell(i, line.row->layers), fmt::format("{}", line.row->count),
                   share_cell(line.peer_us, all.best_peer_us), line.has_peer ? time(line.peer_us) : "-",
                   time(line.us), line.has_peer ? fmt::format("{:.2f}x", line.peer_us / line.us) : "-",
                   time(line.peer_us - line.us), line.row->comparison.plan.algorithm, key(problem)});
  }
  table.add_row(
      {"all convolutions", fmt::format("{}", runs), share_cell(1, 1), time(all.best_peer_us), time(all.us),
       fmt::format("{:.2f}x", all.best_peer_us / all.us), time(all.best_peer_us - all.us), "", ""},
      Tone::strong);
  std::string text = table.render(style) + layers.below();
  if (all.without > 0)
    text += fmt::format("{} no time, and {} no part of this\n",
                        counted(all.without, "kind has", "kinds have"), all.without == 1 ? "is" : "are");
  return text;
}

std::string render_plans(std::vector<PlannedRow> rows, const std::string& time_name, const Style& style) {
  const auto count = [](const PlannedRow& row) { return static_cast<double>(row.convolution->count); };
  const auto work = [](const PlannedRow& row) {
    return gflop(row.convolution->problem, row.convolution->count);
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const PlannedRow& a, const PlannedRow& b) {
    return std::pair(count(a) * a.us, work(a)) > std::pair(count(b) * b.us, work(b));
  });
  double us = 0, all_work = 0, least_us = 0;
  std::int64_t runs = 0, without = 0;
  for (const PlannedRow& row : rows) {
    us += count(row) * row.us;
    all_work += work(row);
    runs += row.convolution->count;
    if (row.us <= 0)
      ++without;
    else if (least_us == 0 || count(row) * row.us < least_us)
      least_us = count(row) * row.us;
  }
  const Scale time = scale_of_us(least_us, us);
  std::vector<std::string> names;
  for (const PlannedRow& row : rows) names.push_back(row.convolution->problem.name);
  const LayerCells layers(names, style);
  Table table({{"layer", Align::left, 0, true},
               {"runs", Align::right},
               {"GFLOP", Align::right, 3},
               {fmt::format("{} {}", time_name, time.unit), Align::right},
               {"share", Align::right},
               {"algorithm"},
               {"source", Align::left, 2},
               {"problem", Align::left, 1}});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PlannedRow& row = rows[i];
    table.add_row({layers.cell(i, row.convolution->layers), fmt::format("{}", row.convolution->count),
                   fmt::format("{:.3g}", work(row)), row.us > 0 ? time(count(row) * row.us) : "-",
                   row.us > 0 ? share_cell(count(row) * row.us, us) : "-", row.algorithm, row.source,
                   key(row.convolution->problem)});
  }
  table.add_row({"all convolutions", fmt::format("{}", runs), fmt::format("{:.3g}", all_work),
                 us > 0 ? time(us) : "-", us > 0 ? share_cell(1, 1) : "-", "", "", ""},
                Tone::strong);
  std::string text = table.render(style) + layers.below();
  if (without > 0)
    text += fmt::format("{} no {} time, and {} no part of the sum\n",
                        counted(without, "kind has", "kinds have"), time_name, without == 1 ? "is" : "are");
  return text;
}

}  // namespace convtune::cli
