// Many kernels compiled at once, each within a time limit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cuda/compile/compiler.h"

namespace convtune::cuda {

struct CompileResult {
  std::optional<CompiledModule> module;
  std::string failure;  // why there is none
};

// `processes` jobs at a time, each for at most `seconds_each`; results in the jobs' order. NVRTC cannot be
// stopped while ptxas runs, so each job that the cache does not answer is compiled by a child of this
// process, which is killed when its time is up; a compiler that crashes takes its child down alone. What
// was compiled is kept in the cache. Throws Error{unsupported} where there is no NVRTC.
std::vector<CompileResult> compile_all(const std::vector<CompileJob>& jobs, int processes,
                                       double seconds_each);

}  // namespace convtune::cuda
