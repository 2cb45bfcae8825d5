// A Triton source with one autotuned kernel: its list of configs, and the same file with another list. A
// value that points into the text it was read from.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "micro_tuning.h"
#include "python_text.h"

namespace convtune {

struct TritonConfig {
  std::vector<std::pair<std::string, std::string>> meta;   // "BLOCK_M" "32": as the file has them
  std::vector<std::pair<std::string, std::string>> extra;  // arguments beside the two: "num_ctas" "1"
  std::int64_t num_warps = 4, num_stages = 3;              // Triton's own defaults
  int line = 0;

  StageConfig stage() const { return {num_warps, num_stages}; }
  bool same_blocks(const TritonConfig& other) const { return meta == other.meta && extra == other.extra; }
};
std::string to_string(const TritonConfig& config);  // "BLOCK_M=32 BLOCK_N=64 num_warps=4 num_stages=2"

class TritonSource {
 public:
  // Throws Error{invalid_argument}, "line 3: ...", for what is no Python, has no autotuned kernel or several,
  // or a list of configs that is not literal.
  explicit TritonSource(std::string_view source);

  const std::string& kernel() const { return kernel_; }
  const std::vector<TritonConfig>& configs() const { return configs_; }
  const std::vector<PythonStatement>& statements() const { return statements_; }
  const std::vector<PythonToken>& tokens() const { return *tokens_; }
  // Whether the kernel's loops are all unrolled before Triton pipelines them, so that num_stages does
  // nothing.
  bool only_static_loops() const { return only_static_loops_; }

  // The file with another list: imports, constants, kernels, other functions, classes, in this order, each
  // text as it was. Left out: what only tests. `notes` gets a line for everything left out or moved.
  struct Listed {
    const TritonConfig* config;
    StageConfig stage;
    std::string comment;
  };
  std::string with_configs(const std::vector<Listed>& list, std::vector<std::string>& notes) const;
  // The same with the list that it has.
  std::string in_order(std::vector<std::string>& notes) const;

 private:
  void find_kernel();
  void read_list(PythonTokens decorator);
  std::string with_list(std::string_view text, std::vector<std::string>& notes) const;

  std::string_view source_;
  std::shared_ptr<const std::vector<PythonToken>> tokens_;
  std::vector<PythonStatement> statements_;
  std::string kernel_;
  std::vector<TritonConfig> configs_;
  std::size_t list_begin_ = 0, list_end_ = 0;  // bytes, with the brackets
  bool only_static_loops_ = false;
};

}  // namespace convtune
