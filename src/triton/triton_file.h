// A Triton file: its autotuned kernels with their lists of configs, the grids that those launch, and the same
// file with other lists. Read and edited by src/triton/runner/triton_reader.py; nothing of the file is run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/micro_tuning.h"
#include "convtune/error.h"
#include "convtune/problem.h"
#include "convtune/target.h"
#include "python/python_child.h"
#include "triton/triton_given.h"

namespace convtune {

constexpr std::size_t kMaxPythonBytes = std::size_t{4} << 20;

struct TritonConfig {
  std::vector<std::pair<std::string, std::string>> meta;    // "BLOCK_M" "32": as Python would write it
  std::vector<std::pair<std::string, std::string>> others;  // arguments beside the two: "num_ctas" "1"
  StageConfig stage = {4, 3};                               // Triton's own defaults
  int line = 0;
  std::string hidden;  // not empty: why it cannot be written again

  bool same_blocks(const TritonConfig& other) const { return meta == other.meta && others == other.others; }
  bool operator==(const TritonConfig&) const = default;
};
std::string to_string(const TritonConfig& config);  // "BLOCK_M=32 BLOCK_N=64 num_warps=4 num_stages=2"

// The fields of "BLOCK_M=32 num_stages=2", or of Triton's own "BLOCK_M: 32, num_warps: 4". Throws
// Error{invalid_argument}.
std::vector<std::pair<std::string, std::string>> parse_config_words(std::string_view text);

struct TritonKernel {
  enum class Loops { none, unrolled, any };

  int at = 0;  // in the reader's own count
  std::string name;
  int line = 0;
  bool listed = true;  // false: no list; num_warps and num_stages stand at its launch
  bool literal = false;
  std::vector<TritonConfig> configs;
  std::string why;                                          // not empty: its list is not known
  std::vector<std::pair<std::string, std::string>> blocks;  // without a list: its sizes, as launched
  std::optional<std::int64_t> stages;  // without a list whose num_warps is worked out: its num_stages
  std::string maker;                   // how the file calls triton.Config; empty: it cannot
  Loops loops = Loops::any;
  std::optional<std::int64_t> loads;  // distinct parameters that it loads from
  std::string fixed;                  // not empty: why its warps and stages are no autotuner's to choose
  std::vector<std::string> hooks;     // arguments of its configs that are functions
  std::vector<std::string> in_place;  // pointers that a second run with the same arguments finds changed
  bool is_protected = false;          // by reset_to_zero, restore_value or a hook
  bool pruned = false;                // by prune_configs_by
};

// Blocks of a launch by one of its kernel's configs: all of them, or a number that they are a multiple of.
struct TritonGrid {
  std::int64_t blocks = 1;
  bool is_whole = false;
  std::int64_t lanes = 1;  // elements of a block, by the sizes that the grid is made of

  bool fits(std::int64_t launched) const {
    return is_whole ? blocks == launched : launched >= blocks && launched % blocks == 0;
  }
};

class TritonFile {
 public:
  // `path`: where it lies, for what it imports; may be empty. Throws Error{invalid_argument} for what is no
  // Python, "line 3: ...", and Error{unsupported} where there is no Python to read it with.
  TritonFile(std::string source, std::string path, const Target& target, const std::string& python);

  const std::string& source() const { return source_; }
  const std::string& path() const { return path_; }
  const std::vector<TritonKernel>& kernels() const { return kernels_; }
  // The language of its other kernels, "TileLang, ... (line 3)"; empty: none is found.
  const std::string& other() const { return other_; }
  bool has_triton() const { return has_triton_; }  // true if that Python could import it

  // The built-in cases whose convolution is a literal nn.Conv2d of the file.
  const std::vector<ConvProblem>& cases() const { return cases_; }

  // Each config's grid of every launch of the kernel; empty, with `why`, where nothing of them can be worked
  // out.
  std::vector<std::vector<TritonGrid>> grids(const TritonKernel& kernel, const TritonGiven& given,
                                             std::string& why) {
    return grids(kernel, given, kernel.configs, why);
  }
  // Grids of other configs of the kernel.
  std::vector<std::vector<TritonGrid>> grids(const TritonKernel& kernel, const TritonGiven& given,
                                             const std::vector<TritonConfig>& configs, std::string& why);

  struct Entry {
    TritonConfig config;
    std::string comment;
  };
  struct List {
    int kernel = 0;  // TritonKernel::at
    std::vector<Entry> configs;
    bool keep = false;  // added to the list that there is
  };
  // The file with other lists. `in_order`: imports, constants, kernels, other functions, classes, without
  // what only tests; else every other byte as it was.
  std::string edited(const std::vector<List>& lists, bool in_order, std::vector<std::string>& notes);

 private:
  nlohmann::json ask(const nlohmann::json& request);

  std::string source_, path_, other_;
  std::unique_ptr<PythonChild> reader_;
  std::vector<TritonKernel> kernels_;
  std::vector<ConvProblem> cases_;
  bool has_triton_ = false;
};

// A file, a list or a kernel that the message refuses.
Error bad_input(const std::string& message);

nlohmann::json to_json(const TritonConfig& config);
TritonConfig config_from_json(const nlohmann::json& object);  // throws RunFailure

}  // namespace convtune
