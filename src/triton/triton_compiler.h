// Asks Triton's own compiler, in a Python process (src/triton/runner/triton_compiler.py), about a
// kernel's configs for a target that need not be here; and what importing a file says of its list.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "contract/micro_tuning.h"
#include "triton/triton_file.h"

namespace convtune {

// Facts of configs with truth values that the source does not tell.
struct CompiledVariant {
  std::string given;  // "HAS_BIAS=True"; empty: all are known
  std::vector<CompiledConfig> configs;
};

class TritonCompiler {
 public:
  // Starts; `seconds` for a config. Where Triton turns out not to be there, version() is empty.
  TritonCompiler(const std::string& python, double seconds, std::function<bool()> cancelled = {});

  const std::string& version() const { return version_; }
  const std::string& why_not() const { return why_not_; }

  // The configs' facts, in order, for each way in which truth values that are not known may stand; empty,
  // with `why`, where the kernel's arguments are not known well enough. Else `why` says what was assumed of
  // them.
  std::vector<CompiledVariant> compile(const TritonFile& file, const TritonKernel& kernel,
                                       const Target& target, const TritonGiven& given,
                                       const std::vector<TritonConfig>& configs, std::string& why);
  // The list that the kernel's autotuner has once the file is imported; empty, with `why`.
  std::vector<TritonConfig> imported_list(const TritonFile& file, const TritonKernel& kernel,
                                          std::string& why);
  // Why this text in the file's place cannot be imported, or nothing.
  std::string import_failure(const std::string& source, const std::string& path);

 private:
  nlohmann::json ask(nlohmann::json request, std::string& why);

  std::unique_ptr<PythonChild> child_;
  double seconds_;
  std::string version_, why_not_;
};

}  // namespace convtune
