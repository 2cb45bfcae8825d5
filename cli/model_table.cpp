// See model_table.h.
#include "model_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "convtune/units.h"
#include "output.h"

namespace convtune::cli {
namespace {

// "conv1", "layer1.0.conv2 and 3 more".
std::string layer_cell(const ConvProblem& problem, const std::vector<std::string>& layers) {
  const std::string& first = problem.name;
  return layers.size() > 1 ? fmt::format("{} and {} more", first, layers.size() - 1) : first;
}

std::string share_cell(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

double gflop(const ConvProblem& problem, std::int64_t count) {
  return static_cast<double>(count) * problem.flops() / 1e9;
}

}  // namespace

std::string render_convolutions(const Model& model, const Style& style) {
  Table table({{"layer"},
               {"runs", Align::right},
               {"GFLOP", Align::right, 3},
               {"of all", Align::right, 2},
               {"problem"}});
  double all = 0;
  std::int64_t runs = 0;
  for (const ModelConvolution& one : model.convolutions) {
    all += gflop(one.problem, one.count);
    runs += one.count;
  }
  for (const ModelConvolution& one : model.convolutions) {
    const double work = gflop(one.problem, one.count);
    table.add_row({layer_cell(one.problem, one.layers), fmt::format("{}", one.count),
                   fmt::format("{:.3g}", work), share_cell(work, all), key(one.problem)});
  }
  const auto kinds = static_cast<std::int64_t>(model.convolutions.size());
  table.add_row({"all of " + model.name, fmt::format("{}", runs), fmt::format("{:.3g}", all),
                 share_cell(all, all), counted(kinds, "problem", "problems")},
                Tone::strong);
  return table.render(style);
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
  const Scale time = scale_of_us(lines.back().peer_us);
  Table table({{"where the time goes"},
               {"runs", Align::right, 4},
               {"share", Align::right},
               {std::string("best peer ") + time.unit, Align::right},
               {std::string("convtune ") + time.unit, Align::right},
               {"speed-up", Align::right, 3},
               {std::string("gain ") + time.unit, Align::right},
               {"algorithm", Align::left, 2},
               {"problem", Align::left, 1}});
  for (const Line& line : lines) {
    const ConvProblem& problem = line.row->comparison.problem;
    table.add_row({layer_cell(problem, line.row->layers), fmt::format("{}", line.row->count),
                   share_cell(line.peer_us, all.best_peer_us), line.has_peer ? time(line.peer_us) : "-",
                   time(line.us), line.has_peer ? fmt::format("{:.2f}x", line.peer_us / line.us) : "-",
                   time(line.peer_us - line.us), line.row->comparison.plan.algorithm, key(problem)});
  }
  table.add_row(
      {"all convolutions", fmt::format("{}", runs), share_cell(1, 1), time(all.best_peer_us), time(all.us),
       fmt::format("{:.2f}x", all.best_peer_us / all.us), time(all.best_peer_us - all.us), "", ""},
      Tone::strong);
  std::string text = table.render(style);
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
  const Scale time = scale_of_us(least_us);
  Table table({{"layer"},
               {"runs", Align::right},
               {"GFLOP", Align::right, 3},
               {fmt::format("{} {}", time_name, time.unit), Align::right},
               {"share", Align::right},
               {"algorithm"},
               {"source", Align::left, 2},
               {"problem", Align::left, 1}});
  for (const PlannedRow& row : rows)
    table.add_row({layer_cell(row.convolution->problem, row.convolution->layers),
                   fmt::format("{}", row.convolution->count), fmt::format("{:.3g}", work(row)),
                   row.us > 0 ? time(count(row) * row.us) : "-",
                   row.us > 0 ? share_cell(count(row) * row.us, us) : "-", row.algorithm, row.source,
                   key(row.convolution->problem)});
  table.add_row({"all convolutions", fmt::format("{}", runs), fmt::format("{:.3g}", all_work),
                 us > 0 ? time(us) : "-", us > 0 ? share_cell(1, 1) : "-", "", "", ""},
                Tone::strong);
  std::string text = table.render(style);
  if (without > 0)
    text += fmt::format("{} no {} time, and {} no part of the sum\n",
                        counted(without, "kind has", "kinds have"), time_name, without == 1 ? "is" : "are");
  return text;
}

}  // namespace convtune::cli
