// From a profile to a decision: what a profiler measured of a kernel, what follows from it on a target, and
// a Triton source whose autotune list is renewed by the rules of the last tuning stage.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convtune/problem.h"
#include "convtune/target.h"

namespace convtune {

// One kernel's metrics by the names that Nsight Compute gives them, "launch__grid_size".
struct KernelMetrics {
  std::string kernel;
  std::vector<std::pair<std::string, double>> values;  // as the file has them

  std::optional<double> find(std::string_view metric) const;
};

// {"kernel": {"metric": number, ...}, ...}. Throws Error{invalid_argument} that names the kernel and the
// metric, or the byte where the text stops to be JSON.
std::vector<KernelMetrics> parse_metrics(std::string_view json);
std::vector<KernelMetrics> load_metrics(const std::string& path);  // Error{io} too; messages name the file

// Their text, every number as it reads back. Throws Error{invalid_argument} for what parse_metrics() refuses.
std::string to_json(const std::vector<KernelMetrics>& kernels);

// The text of a source file. Throws Error{io}, or Error{invalid_argument} for more than 4 MiB.
std::string load_source(const std::string& path);

// What analyze() says: "occupancy", "15.9 of 48 warps were active ...".
struct Finding {
  std::string what, text;
};

struct AnalyzeOptions {
  std::optional<Conv2dProblem> problem;  // what the kernel computed
  std::string source;                    // the text of the Triton file that was profiled; empty: not known
};

// Bound, occupancy and its limiter, tail, cache, sectors, bank conflicts, the config that was profiled, and
// what follows for num_warps and num_stages. What the metrics do not hold is said to be missing.
std::vector<Finding> analyze(const KernelMetrics& metrics, const Target& target,
                             const AnalyzeOptions& options = {});

struct RefineOptions {
  std::optional<Conv2dProblem> problem;  // what was profiled; none: guessed from the built-in cases
  // The original config, as in "BLOCK_M=32 num_stages=2": enough of it to tell it from the others. Empty: the
  // one whose grid was profiled.
  std::string original;
};

// A config of the new list, as it ran.
struct MeasuredConfig {
  std::string config, reason;
  double time_us = 0, mad_us = 0;  // median and deviation of its samples, in turns with the others'
  std::int64_t n = 0;              // samples; 0: not measured
  std::string output;              // how its outputs compare with the original's: "the same bit for bit"
  std::string failure;             // not empty: it crashed, was late or wrong, and is in no list
};

struct Refined {
  std::string source;                 // the file with its new list; empty if the stage has none to offer
  std::vector<std::string> notes;     // how the original was found, what was left out of the file
  std::vector<std::string> verdicts;  // of the rules, in order
  std::vector<std::string> configs;   // of the new list, the original first

  // Of refine_measured() alone:
  std::vector<MeasuredConfig> measured;  // the original first
  std::string place;                     // where it ran: GPU, PyTorch, Triton
  bool changed = false;      // a neighbour is proven faster; if not, `source` has the list that it had
  bool interrupted = false;  // by `cancel`: there is no source
};

// The metrics must hold the autotuned kernel's. Throws Error{invalid_argument} with the line for source that
// is malformed, has no literal autotune list or several, and where the original cannot be found.
Refined refine(std::string_view source, const std::vector<KernelMetrics>& metrics, const Target& target,
               const RefineOptions& options = {});

struct RefineMeasureOptions {
  std::string python = "python3";  // with PyTorch and Triton
  double min_gain = 0.02;          // 0.01 at least
  double seconds = 300;            // for a process to compile its config, and for any answer of it
  std::function<void(const std::string&)> progress;  // "measuring 3 configs"
  const std::atomic<bool>* cancel = nullptr;
};

// refine(), and then rule R6: each config of the list runs in Python processes of its own, is compared with
// the original's outputs, and the fastest has to beat the original in two contests (src/stage_contest.h),
// each with fresh processes, and then what Triton's autotuner picks of the old list here, where that is
// another config. Throws Error{no_device} where PyTorch sees no GPU and Error{unsupported} where there is no
// PyTorch or Triton.
Refined refine_measured(const std::string& file, const std::vector<KernelMetrics>& metrics,
                        const Target& target, const RefineOptions& options,
                        const RefineMeasureOptions& measuring);

}  // namespace convtune
