// The loop over cases behind tune and bench.
#include "report_cases.h"

#include <fmt/format.h>

#include <chrono>
#include <new>

#include "exit_code.h"
#include "interrupt.h"
#include "model_table.h"
#include "options.h"
#include "output.h"

namespace convtune::cli {

double CasePlace::seconds_behind(double budget) const {
  return (mean_seconds > 0 ? mean_seconds : budget) * static_cast<double>(behind);
}

int report_cases(const Asked& asked, const DeviceInfo& device, const ReportOptions& options,
                 const MeasureCase& measure) {
  const std::vector<ConvProblem>& problems = asked.problems;
  const ReportFiles files(options);
  std::FILE* const stream = files.table_stream();
  const Style style = style_of(stream);
  ProgressLine progress(stderr, style_of(stderr));
  std::vector<ReportRow> rows;
  std::string kept;
  int code = kOk;
  bool lost = false;
  const ReportEnvironment environment = files.wanted() ? environment_of(device) : ReportEnvironment{};
  const auto start = std::chrono::steady_clock::now();
  std::size_t skipped = 0, at = 0;  // `at`: the case that is measured

  const auto add = [&](ReportRow row) {
    if (asked.model) {
      row.count = asked.model->convolutions[at].count;
      row.layers = asked.model->convolutions[at].layers;
    }
    rows.push_back(std::move(row));
    if (at + 1 < problems.size()) files.write_so_far({environment, rows, true});
  };
  const auto fail = [&](const ConvProblem& problem, ErrorKind kind, const std::string& why) {
    progress.clear();
    print_error(problems.size() == 1 ? why : fmt::format("{}: {}", label(problem), why));
    if (code == kOk) code = exit_code(kind);
    ReportRow row;
    row.comparison.problem = problem;
    row.comparison.device = device;
    row.failure = why;
    add(std::move(row));
  };

  for (; at < problems.size() && !interrupted() && !lost; ++at) {
    const ConvProblem& problem = problems[at];
    const std::string position = problems.size() == 1 ? "" : fmt::format("[{}/{}] ", at + 1, problems.size());
    const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - start;
    const CasePlace place{position + label(problem), problems.size() - at - 1,
                          at > 0 ? gone.count() / static_cast<double>(at) : 0};
    try {
      const auto [row, stopped] = measure(problem, place, progress);
      progress.clear();
      kept = stopped;
      if (!row) break;
      put(stream, fmt::format("{}{}{}", rows.empty() ? "" : "\n",
                              render_comparison(row->comparison, style, options.detail),
                              row->tuning ? render_tuning(*row->tuning, style, options.detail) : ""));
      add(*row);
      if (!own_result(*row) && code == kOk) code = kMismatch;
      if (row->tuning && !row->tuning->not_recorded.empty()) {
        print_error(fmt::format("the result is not recorded: {}", row->tuning->not_recorded));
        if (code == kOk) code = exit_code(ErrorKind::io);
      }
    } catch (const Error& error) {
      if (asked.model && error.kind() == ErrorKind::unsupported) {  // the rest of the model can do without it
        progress.clear();
        std::string_view why = error.what();
        why = why.substr(0, why.find('\n'));
        if (why.ends_with(':')) why.remove_suffix(1);
        print_warning(fmt::format("skipped {}: {}", label(problem), why));
        ++skipped;
        continue;
      }
      fail(problem, error.kind(), error.what());
      lost = error.kind() == ErrorKind::device_lost;  // every other case would fail of it, too
    } catch (const std::bad_alloc&) {
      fail(problem, ErrorKind::unsupported,
           fmt::format("not enough memory for tensors of {:.3g} GB; try a smaller --batch",
                       problem.bytes() / 1e9));
    }
    print_library_warnings();
  }

  if (asked.model && !rows.empty()) put(stream, '\n' + render_model(rows, style));
  if (skipped > 0 && !interrupted()) {
    if (rows.empty()) {
      print_error(fmt::format("none of the convolutions of {} can be measured here", asked.model->name));
      return exit_code(ErrorKind::unsupported);
    }
    put(stream, fmt::format("{} skipped, as said above, and no part of this\n",
                            counted(static_cast<std::int64_t>(skipped), "kind is", "kinds are")));
  }
  if (rows.size() > 1) put(stream, '\n' + render_summary(rows, style));
  // An interrupted run with nothing measured has nothing to say in a file.
  const std::size_t done = rows.size();
  if (files.wanted() && (done > 0 || !interrupted()))
    files.write({environment, std::move(rows), interrupted()});
  if (!interrupted()) return code;
  put(stderr, fmt::format("convtune: interrupted: {} of {} done{}{}\n", done,
                          counted(static_cast<std::int64_t>(problems.size()), "case", "cases"),
                          kept.empty() ? "" : "; ", kept));
  return kInterrupted;
}

}  // namespace convtune::cli
