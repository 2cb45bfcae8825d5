// Reports, as the command and the faces for other languages write them: JSON (schema 1), which reads back as
// the same report; CSV; and a page for people. Everything but environment_of() and load_report() is a pure
// function.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "convtune/device.h"
#include "convtune/refine.h"
#include "convtune/tuner.h"
#include "convtune/units.h"
#include "convtune/verify.h"

namespace convtune {

// One case of a report. `failure`: why there are no measurements. A case of a model also has how often
// it runs in one pass, and the names of its layers.
struct ReportRow {
  Comparison comparison;
  std::optional<TuningSummary> tuning;
  std::string failure;
  std::int64_t count = 1;
  std::vector<std::string> layers = {};
};
ReportRow report_row(TuningReport report);

// Describes the place and time of the measurement.
struct ReportEnvironment {
  DeviceInfo device;
  int threads = 1;
  std::vector<std::pair<std::string, std::string>> versions;  // "convtune" "0.1.0", ...
  std::string date;                                           // ISO 8601, UTC
  std::string command = {};                                   // that wrote the report; empty: none did
};
// As it is now.
ReportEnvironment environment_of(const DeviceInfo& device);
// Describes the plan for a GPU that may be elsewhere.
ReportEnvironment environment_of(const Target& target);

// A speed-up within this share of 1 is a tie.
constexpr double kTieShare = 0.02;

// Over the rows with a peer. A row whose own answer failed is a loss and no part of the mean.
struct ReportSummary {
  double geomean_speedup = 0;  // 0 where no row has a peer
  int compared = 0;            // rows behind the mean
  int wins = 0, ties = 0, losses = 0;
};
ReportSummary summarize(const std::vector<ReportRow>& rows);

// convtune's own result; null where the row failed.
const ProviderResult* own_result(const ReportRow& row);
// The best peer's; null where there is none.
const ProviderResult* best_peer(const Comparison& comparison);
// Who won, and by how much, in one sentence without its full stop.
std::string verdict(const Comparison& comparison, Letters letters = Letters::ascii);

// One pass through a model's convolutions: each row's time as often as it runs.
struct ModelTimes {
  double us = 0;             // convtune's
  double best_peer_us = 0;   // convtune's own where no peer ran
  std::int64_t without = 0;  // rows that failed, and are no part of either
};
ModelTimes model_times(const std::vector<ReportRow>& rows);

// Names without what all of them begin and end with, so that they can be told apart where there is little
// room.
struct ShortNames {
  std::vector<std::string> names;
  std::string left_out;  // in a sentence; empty where nothing was
};
ShortNames short_names(const std::vector<std::string>& names);

// A convolution of a PyTorch model, in the modules `names`; times in microseconds of one call.
struct ModelLayer {
  std::vector<std::string> names;
  std::string problem;  // its text; empty where it is none of ours
  std::int64_t calls = 0;
  double pytorch_us = 0, convtune_us = 0, gain = 0;  // gain: 0.10 takes 10 % less time
  double low = 0, high = 0;                          // the interval that holds it; equal: not known
  std::string algorithm, config, layout;
  bool swapped = false;
  std::string decision;
};

// Holds the result of Python's convtune.optimize: its layers, and the whole forward before and after.
struct ModelReport {
  bool training = false;
  std::string mode;  // the mode of torch.compile; empty: eager
  std::vector<ModelLayer> layers;
  double before_us = 0, after_us = 0;  // 0: nothing was there to be swapped
  double gain = 0, low = 0, high = 0;  // and its interval
  bool kept = false;                   // whether the swaps stayed
  std::vector<std::string> notes;
};

// Findings of analyze() for the kernels of a profile.
struct Analyzed {
  struct Kernel {
    KernelMetrics metrics;
    std::vector<Finding> findings;
  };
  std::vector<Kernel> kernels;
};

// Content of a report: one of the five kinds, of tune and bench, verify, refine, optimize, or analyze.
struct Report {
  ReportEnvironment environment;
  std::variant<std::vector<ReportRow>, VerifyReport, Refined, ModelReport, Analyzed> content;
  bool interrupted = false;
};

// One row of the report, on one line.
std::string to_json(const ReportRow& row);
std::string to_json(const ReportEnvironment& environment);
// All of it but what refine() wrote, which is a file of its own.
std::string report_json(const Report& report);
// Both ways: report_json(parse_report(json)) is the same JSON. What an older version did not write is left at
// its default. Throws Error{invalid_argument} that names the place and what must be there.
Report parse_report(std::string_view json);
Report load_report(const std::string& path);  // Error{io} too; messages name the file
// A self-contained page of HTML: charts with their numbers beside them, tables, decisions in words.
std::string report_page(const std::vector<Report>& reports);
// A table in Markdown, for an issue: the verdict, a line a case, or of a PyTorch model a line a layer, and
// where it was measured. Throws Error{invalid_argument} for a report of verify, refine or analyze, which have
// none.
std::string report_markdown(const Report& report);
// One line a provider of tune's and bench's rows; quoted as RFC 4180 says. Throws as report_markdown() does.
std::string report_csv(const Report& report);

// A format that reports are written in, as each option of the command that names a file.
struct ReportFormat {
  const char *name, *in_words;  // "json"; "as JSON"
  bool of_every_report;         // false: `write` throws Error{invalid_argument} for reports that lack it
  bool is_data;                 // for programs, and so written anew after each case; else for people
  bool joins_reports;           // several are one text of it; else `write` takes one
  std::string (*write)(const std::vector<Report>& reports);
};
std::span<const ReportFormat> report_formats();

}  // namespace convtune
