// Triton's compiler as refine() asks it: which config a profile can be of, and what the stage's configs come
// to.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "triton/refine_original.h"
#include "triton/triton_compiler.h"

namespace convtune {

class RefineCompiler {
 public:
  // All outlive it.
  RefineCompiler(TritonFile& file, const Target& target, const RefineOptions& options)
      : file_(file), target_(target), options_(options) {}

  // The compiler, started where it is wanted and there; else null.
  TritonCompiler* compiler();

  // Decides among the configs that fit a profile, where one alone compiles to what was profiled: registers,
  // shared memory, and a number of active warps that its blocks can reach.
  void tell_apart(const TritonKernel& kernel, const KnownMetrics& known, Original& original);

  using Stages =
      std::map<std::pair<std::int64_t, std::int64_t>, CompiledConfig>;  // by num_warps and num_stages
  // Facts of the original with each of the stages; empty where the compiler cannot be asked, with a note that
  // says why.
  Stages stages(const TritonKernel& kernel, const KnownMetrics& known, const Original& original,
                const std::vector<StageConfig>& stages, std::vector<std::string>& notes);

  // Facts of tiles as they stand; empty where the compiler cannot be asked, with a note that says why.
  std::vector<CompiledConfig> tiles(const TritonKernel& kernel, const std::vector<TritonConfig>& tiles,
                                    std::vector<std::string>& notes);

 private:
  // The ways in which configs compile; empty, with a note.
  std::vector<CompiledVariant> compiled(const TritonKernel& kernel, const std::optional<ConvProblem>& problem,
                                        const std::vector<TritonConfig>& configs,
                                        std::vector<std::string>& notes);

  void say(const std::string& text) const {
    if (options_.progress) options_.progress(text);
  }

  TritonFile& file_;
  const Target& target_;
  const RefineOptions& options_;
  std::optional<TritonCompiler> compiler_;
};

}  // namespace convtune
