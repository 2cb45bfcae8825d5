// tune() searches, proves and records; compare() measures what is planned beside the vendor.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convtune/ceilings.h"
#include "convtune/contest.h"
#include "convtune/convolution.h"
#include "convtune/target.h"

namespace convtune {

// One measured way of answering the problem.
struct ProviderResult {
  std::string name;  // "convtune", or the vendor's variant: "onednn blocked=0"
  std::string algorithm;
  Config config;
  double time_us = 0;            // median
  double mad_us = 0;             // median absolute deviation
  std::int64_t n = 0;            // samples behind the median
  double roofline_fraction = 0;  // above 1 where no roof holds: see roofline()
  double max_error = 0;          // largest |y - oracle| over the root mean square of the oracle, sampled
  std::string failure;           // not empty: could not run, or was wrong; the numbers above mean nothing
  std::int64_t interrupted = 0;  // of the n samples, by other work on a CPU
};

// The check of each way before it was timed: `samples` of the `elements` of its result against the oracle.
// In compare(): the seconds that its tensors and the oracle took, and then building, running and checking
// each way once.
struct Check {
  std::int64_t samples = 0, elements = 0;  // 0: nothing was checked, as where a record answers
  double oracle_seconds = 0, ways_seconds = 0;
};

// One line of every table: convtune's answer beside the vendor's, in one run.
struct Comparison {
  ConvProblem problem;
  DeviceInfo device;
  Roofline roofline;
  Plan plan;                              // the plan that convtune runs
  std::vector<ProviderResult> providers;  // convtune first, then the vendor's variants
  std::string incumbent;                  // the vendor's library, "oneDNN 3.2.0"; empty where there is none
  std::string best_peer;                  // name of the fastest provider but convtune; empty if there is none
  double speedup = 0;                     // best peer's time over convtune's; 0 without a peer
  std::string decision;                   // one sentence: what was chosen, by which margin, why
  std::optional<Resources> resources;     // of convtune's kernel, where it runs one of its own on a GPU
  Load load;                              // of the machine, when it was measured
  Check check;
};

// True where other work interrupted a quarter of the samples or more, of convtune's way or of the best
// peer's: their times say then how long they waited, too.
bool machine_is_busy(const Comparison&);
// "check: 2048 of 24330240 elements of each result against the oracle"; empty where nothing was checked.
std::string check_text(const Comparison&);
// "load 12.1 on 2 processors; 0 of 41 samples of convtune and 38 of 40 of onednn blocked=0 were interrupted";
// empty where nobody looked.
std::string interruptions(const Comparison&);

// Called between steps; `best` are the best config and time so far.
struct Progress {
  std::string stage;  // "vendor", "screen", "final", "last stage", "contest", "measure"
  std::int64_t done = 0, total = 0;
  double best_us = 0;
  std::string best;
  double eta_seconds = 0;
};

struct TuneOptions {
  // The whole of it: the vendor's ways, compiling, the search, the last stage, the contest. A search takes
  // longer only to finish what it began; a few of the vendor's ways, a first batch of candidates and the
  // contest are never left out. What was skipped for it is in the report.
  double budget_seconds = 60;
  std::int64_t budget_trials = 0;  // 0: no limit
  double min_gain = 0.02;          // a challenger must be faster than the incumbent by this much, proven
  bool retune = false;             // search from the beginning even if a record answers; no quarantine counts
  bool save = true;                // write the record and the trials
  std::function<void(const Progress&)> progress;
  const std::atomic<bool>* cancel = nullptr;  // set it (from a signal handler, say) to stop cleanly
};

// Holds the outcome of the last stage of a search: the fastest config of our own beside three
// to five neighbours, of which two parameters differ.
struct MicroTuning {
  struct Tried {
    Config config;
    std::string reason;  // "stages=4: one stage more"
    double time_us = 0;  // a median; 0: not measured
    std::string failure;
  };
  std::string original, kept;         // algorithm and config, before and after
  bool changed = false;               // a neighbour is proven better
  std::vector<Tried> tried;           // the original first; empty where the rules leave no list
  std::vector<std::string> verdicts;  // "R1: ...", one a rule; or the one reason why there is no list
  std::vector<HeldContest> contests;  // rule R6's, in order
};

// One config that a search tried.
struct SearchStep {
  std::string algorithm;
  Config config;
  bool vendor = false, resumed = false;  // one of the vendor's ways; known from an earlier search
  double time_us = 0;                    // by few samples
  std::string failure;                   // not empty: it has no time
};

// The course of a search: what it tried, what it found, and why it ended.
struct TuningSummary {
  bool from_record = false;     // answered without measuring
  bool interrupted = false;     // stopped by `cancel`: trials are kept, no record was written
  std::int64_t candidates = 0;  // configs that there were to try; 0 where nothing was measured
  std::int64_t trials = 0;      // configs tried in this call
  std::int64_t resumed = 0;     // configs taken from an earlier, interrupted search
  std::int64_t pruned = 0;      // configs whose bound was worse than the best time
  std::int64_t wrong = 0;       // configs that failed the check (quarantined)
  std::string record = {};      // the file of the record, from or into; empty if there is none
  std::vector<std::string> warnings = {};
  std::optional<MicroTuning> last_stage = {};  // nothing where no config of our own was fit for it
  bool proven = true;                          // what the record is to say: see Record::proven
  std::string not_recorded = {};  // why the record could not be written; empty where it was, or was not to be
  std::optional<HeldContest> contest = {};  // with the vendor; nothing where there was none
  std::vector<SearchStep> steps = {};       // in the order in which they were tried
  // If there was no time to try all: configs tried on small_batch images, of which the best were tried whole.
  std::int64_t small_batch = 0, small_trials = 0;
};

struct TuningReport : TuningSummary {
  Comparison comparison;
};

// Searches for the fastest config of every algorithm, checks each against the oracle before timing
// it, and lets the best challenge the vendor in interleaved rounds. Records the winner. Where a record
// answers, it measures nothing; where that is without proof, it holds the contest again.
TuningReport tune(const ConvProblem& problem, Device device = best_device(), const TuneOptions& options = {});

struct CompareOptions {
  double seconds_per_case = 3;  // shared by the providers of a case
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(const Progress&)> progress;  // "measure", between steps
};

// Times what plan() answers beside every vendor variant, interleaved. Stopped by `cancel`, it answers with
// the few samples that it has.
Comparison compare(const ConvProblem& problem, Device device = best_device(),
                   const CompareOptions& options = {});

}  // namespace convtune
