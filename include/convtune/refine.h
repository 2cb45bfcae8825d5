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

#include "convtune/contest.h"
#include "convtune/metrics.h"
#include "convtune/problem.h"
#include "convtune/target.h"

namespace convtune {

// The text of a source file. Throws Error{io}, or Error{invalid_argument} for more than 4 MiB.
std::string load_source(const std::string& path);

// Holds one finding of analyze(): "occupancy", "15.9 of 48 warps were active ...".
struct Finding {
  std::string what, text;
};

struct AnalyzeOptions {
  std::optional<ConvProblem> problem;  // the problem that the kernel computed
  std::string source;                  // the text of the Triton file that was profiled; empty: not known
  std::string path;                    // where it lies, for what it imports
  std::string python = "python3";      // that reads it
};

// Readings that cannot be, bound and what is left to gain, stalls, spills, occupancy and its limiter, tail,
// cache, sectors, bank conflicts and the config that was profiled, by what they may cost; then what follows
// for num_warps and num_stages; last, in one finding, what the metrics do not hold.
std::vector<Finding> analyze(const KernelMetrics& metrics, const Target& target,
                             const AnalyzeOptions& options = {});

// A sentence of a stage's text, and the rule that it was read as; an empty rule: it is not taken into
// account.
struct StageSentence {
  std::string text, rule;
};

// A stage's wish under a condition: "IF register pressure HIGH (regs > 128): Use num_warps=4". Every
// part of the condition that is set must hold, but for `limited_by_registers`, which is enough by itself
// beside `registers_above`.
struct StageCondition {
  std::string text;
  std::optional<double> registers_above, registers_below;  // per thread
  bool limited_by_registers = false;                       // registers allow fewer blocks than anything else
  bool without_spills = false, compute_bound = false;
  std::optional<double> least_loads;          // distinct pointers that the kernel loads from
  std::optional<std::int64_t> warps, stages;  // what is asked for
  bool required = false;                      // nothing else beside the original; false: it is worth a try
};

// One tuning stage: what it may propose, and when it reverts.
struct RefineStage {
  enum class Kind {
    grid,    // a verdict on the launch's grid; nothing changes
    tiles,   // a verdict on the blocks' sizes; nothing changes
    memory,  // num_stages alone
    last,    // num_warps and num_stages
  };
  Kind kind = Kind::last;
  std::vector<std::int64_t> warps = {2, 4, 8, 16}, stages = {2, 3, 4};  // empty: the stage does not name it
  std::int64_t most_steps = 1;                                          // of num_stages
  std::int64_t fewest = 3, most = 6;                                    // configs of a list
  double min_gain = 0.02;
  std::optional<std::int64_t> baseline_warps, baseline_stages;  // per config that is always in the list
  std::optional<double>
      raise_above_stalls;  // num_stages rises where memory stalls are a larger share than this
  std::optional<double> raise_below_registers;  // and where a thread has no more registers
  std::vector<StageCondition> conditions;
  std::vector<StageSentence> sentences;  // for its text, in order; none where no text was read
};

struct RefineOptions {
  std::optional<ConvProblem> problem;  // the problem that was profiled; none: guessed from the built-in cases
  // Values of names in the wrapper or of the model's parameters, for the grid, as Python writes them: "M"
  // "4096", "x" "[16, 3, 224, 224]" for a tensor by its shape, "kernel_size" "(3, 5)", "bias" "True".
  std::vector<std::pair<std::string, std::string>> let;
  // The original config, as in "BLOCK_M=32 num_stages=2" or as Triton prints it: enough of it to tell it from
  // the others; all of it where the list cannot be worked out. Empty: the one whose grid was profiled.
  std::string original;
  std::string kernel;  // which one, "name" or "name:line"; empty: those that the metrics name
  std::string path;    // where the source lies, for what it imports
  RefineStage stage;
  bool in_order = false;       // write imports, constants, kernels, other functions, classes, and no tests
  bool keep_list = false;      // add to the list that there is
  bool only_original = false;  // where the stage keeps the original, leave it alone in the list
  // The answer where several configs fit what was profiled: the first is taken, and that is said; the list
  // is left alone, with the reason; or Error{invalid_argument} lists them.
  enum class Several { first, keep, refuse };
  Several several = Several::refuse;
  // The file is trusted: with Triton's own compiler, where that Python has one, its configs are compiled, and
  // it is imported, which runs it, in a child process, where its list cannot be worked out and to check what
  // is written. Else it is read alone. refine_measured() runs it in any case.
  bool trust = false;
  bool compile = true, import_file = true;  // everything that is trusted
  std::string python = "python3";
  double seconds = 120;  // at most this much processor time for one compile, by the clock for one import
  std::function<void(const std::string&)> progress;  // "compiling 12 configs"
  const std::atomic<bool>* cancel = nullptr;
};

// A config of the new list, as it ran.
struct MeasuredConfig {
  std::string config, reason;
  double time_us = 0, mad_us = 0;  // median and deviation of its samples, in turns with the others'
  std::int64_t n = 0;              // samples; 0: not measured
  std::string output;              // how its outputs compare with the original's: "the same bit for bit"
  std::string failure;             // not empty: it crashed, was late or wrong, and is in no list
};

struct RefinedKernel {
  std::string kernel;
  int line = 0;
  std::string original;
  std::string unknown;  // not empty: which config was profiled is not known, and its list stays as it was
  std::vector<Finding> findings;      // for its metrics, as analyze() has them
  std::vector<std::string> notes;     // how the original was found, what else is worth knowing
  std::vector<std::string> verdicts;  // of the rules, in order
  std::vector<std::string>
      configs;  // for the new list, the original first; empty: the stage keeps the original

  // Only refine_measured() fills these:
  std::vector<MeasuredConfig> measured;  // the original first
  std::string place;                     // where it ran: GPU, PyTorch, Triton
  bool changed = false;                  // a neighbour is proven faster; if not, the list is as it was
  std::vector<HeldContest> contests;     // in order
};

struct Refined {
  std::string source;              // the file with its new lists
  std::vector<std::string> notes;  // about the file
  std::vector<RefinedKernel> kernels;
  bool interrupted = false;  // by `cancel`: there is no source
};

// `metrics` may be empty: then the kernel is named, or the file's only one, and nothing is known of what it
// achieved. Throws Error{invalid_argument} with the line for source that is malformed, and where kernel or
// original cannot be found; Error{unsupported} where there is no Python to read it with.
Refined refine(const std::string& source, const std::vector<KernelMetrics>& metrics, const Target& target,
               const RefineOptions& options = {});

struct RefineMeasureOptions {
  // The code to run: a call, "matmul(a, b)", of the file's names and torch's, or a .py file whose
  // prepare(module) returns a function. Empty: the file's ModelNew, fed its get_inputs() or the problem's
  // input.
  std::string call;
  double seconds = 300;  // for a process to compile its config, and for any answer of it
};

// refine(), and then rule R6: each config of the list runs in Python processes of its own, is compared with
// the original's outputs, and the fastest has to beat the original in two contests (src/stage_contest.h),
// each with fresh processes, and then what Triton's autotuner picks of the old list here, where that is
// another config. Throws Error{no_device} where PyTorch sees no GPU and Error{unsupported} where there is no
// PyTorch or Triton.
Refined refine_measured(const std::string& source, const std::vector<KernelMetrics>& metrics,
                        const Target& target, const RefineOptions& options,
                        const RefineMeasureOptions& measuring);

// A text that asks for a tuning stage: a sheet of the GPU, the stage with its parameters and rules, the code,
// the profiler's metrics, and how the answer is to be ordered.
struct RefineDocument {
  Target target;
  RefineStage stage;
  std::string source;
  std::vector<KernelMetrics> metrics;  // empty: it has none
  bool in_order = false;
  std::vector<std::string> notes;  // facts taken from where
};
// Throws Error{invalid_argument} for a text without a sheet, a stage or code.
RefineDocument parse_document(std::string_view text);
RefineDocument load_document(const std::string& path);

}  // namespace convtune
