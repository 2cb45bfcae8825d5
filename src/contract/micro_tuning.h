// The last stage of a search as rules: from the measured winner, which few configs beside it are worth
// measuring. Pure: the same list for the same question, and nothing is run.
//
//   R1  the warps change only where occupancy suggests it
//   R2  the stages change by one at most
//   R3  grid and block sizes never change (a config here has no other parameters)
//   R4  three to six configs, or none at all
//   R5  the original is among them, first
//   R6  the original stays unless a gain is measured, large enough and stable (contest.h decides that)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convtune/target.h"

namespace convtune {

struct StageConfig {
  std::int64_t warps = 0, stages = 0;
  bool operator==(const StageConfig&) const = default;
};

// R1's answer: the warps to try beside the original's, the best first, and why or why not.
struct WarpsAnswer {
  std::vector<std::int64_t> warps;
  std::string why;
};

// The two parameters, by the names that they have where the list goes, and the only values that the stage may
// propose; the original's own may lie outside.
struct StageParameters {
  std::string warps_name = "num_warps", stages_name = "num_stages";
  std::vector<std::int64_t> warps = {2, 4, 8, 16};
  std::vector<std::int64_t> stages = {2, 3, 4};
  std::int64_t most_steps = 1;       // R2: the stages change by so much at most
  std::size_t fewest = 3, most = 6;  // R4

  // Further rules, as a stage's text may have them: warps that it asks for itself, in place of what occupancy
  // suggests; a config that is always in the list, whatever R1 and R2 say; why a config is forbidden, or
  // nothing.
  std::optional<WarpsAnswer> asked_warps = std::nullopt;
  std::optional<StageConfig> baseline = std::nullopt;
  std::function<std::string(const StageConfig&)> forbidden = nullptr;
};
std::string to_string(const StageConfig& config,
                      const StageParameters& names = {});  // "num_warps=4 num_stages=2"

// Describes the original's occupancy, by a profiler or by the compiler.
struct OccupancyEvidence {
  std::optional<double> achieved;          // share of a multiprocessor's warps, measured
  std::optional<int> registers;            // a thread
  std::optional<std::int64_t> smem_bytes;  // a block
  // Blocks on a multiprocessor that each would allow, where a profiler says so itself.
  std::optional<int> by_registers, by_smem;
  std::optional<std::int64_t> grid;  // blocks of the launch: fewer than the multiprocessors leave some idle
};

struct StageList {
  struct Entry {
    StageConfig config;
    std::string reason;  // "one stage more"
  };
  std::vector<Entry> configs;         // empty: see `none`
  std::string none;                   // why the original alone stays
  bool warps_suggested = false;       // R1's answer
  std::vector<std::string> verdicts;  // "R1: ...", one a rule, in order
};

// R1's answer by the occupancy of a GPU. Where nothing says what limits it, achieved occupancy below a half
// and fewer blocks than warps and slots allow are taken for it; `why` says that this is inferred.
WarpsAnswer suggested_warps(std::int64_t warps, const OccupancyEvidence& evidence, const Target& target,
                            const StageParameters& parameters);

// Describes one compiled config: registers, spills, shared memory.
struct CompiledConfig {
  int registers = 0;            // a thread
  std::int64_t smem_bytes = 0;  // a block
  std::int64_t spilled_bytes = 0;
  std::string code;     // equal where the machine code is
  std::string failure;  // not empty: it does not compile, and nothing else is known
};
// By what the compiler made of the original and of the stage's other values.
WarpsAnswer compiled_warps(const StageConfig& original, const OccupancyEvidence& evidence,
                           const Target& target, const StageParameters& parameters,
                           const std::function<CompiledConfig(const StageConfig&)>& compiled);

// `refusal`: why a config cannot be had, or nothing; asked before R4 counts, of one config after the other.
StageList micro_tuning(const StageConfig& original, const WarpsAnswer& warps,
                       const StageParameters& parameters,
                       const std::function<std::string(const StageConfig&)>& refusal);

// On a GPU, by metrics alone. `same_code`: why the stages change nothing, or empty.
StageList micro_tuning(const StageConfig& original, const OccupancyEvidence& evidence, const Target& target,
                       const StageParameters& parameters = {}, const std::string& same_code = {});

// On a GPU, by what the compiler makes of each config: none that is the machine code of another, none that
// spills where the original does not.
StageList micro_tuning(const StageConfig& original, const OccupancyEvidence& evidence, const Target& target,
                       const StageParameters& parameters,
                       const std::function<CompiledConfig(const StageConfig&)>& compiled);

// Every config that the compiled form of micro_tuning() may ask for, so that they can be compiled at once.
std::vector<StageConfig> stage_candidates(const StageConfig& original, const Target& target,
                                          const StageParameters& parameters);

// Names the limiter of the original's occupancy, as far as the evidence goes: an upper bound where part of it
// is missing. `certain` is false where what is missing could limit more than what is known.
struct KnownOccupancy {
  Occupancy bound;
  bool certain = false;
};
KnownOccupancy known_occupancy(std::int64_t warps, const OccupancyEvidence& evidence, const Target& target);

}  // namespace convtune
