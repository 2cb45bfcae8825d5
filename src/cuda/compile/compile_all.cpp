// See compile_all.h.
#include "cuda/compile/compile_all.h"

#include <algorithm>
#include <utility>

#include "base/compiling_children.h"

namespace convtune::cuda {
namespace {

CompileResult read_module(CompilingChildren::Result result) {
  if (!result.answer) return {{}, std::move(result.failure)};
  std::optional<CompiledModule> module = parse_module(*result.answer);
  return {module, module ? "" : "the compiling process gave an answer that cannot be read"};
}

}  // namespace

std::vector<CompileResult> compile_all(const std::vector<CompileJob>& jobs, int processes,
                                       double seconds_each) {
  std::vector<CompileResult> results(jobs.size());
  CompilingChildren children;
  for (std::size_t next = 0; next < jobs.size() || children.count() > 0;) {
    if (next < jobs.size() && children.count() < static_cast<std::size_t>(std::max(processes, 1))) {
      results[next].module = find_compiled(jobs[next]);
      if (!results[next].module)
        children.begin(
            next, [&job = jobs[next]] { return to_text(compile(job, false)); }, seconds_each);
      ++next;
    } else {
      children.wait([&](std::size_t job, CompilingChildren::Result result) {
        results[job] = read_module(std::move(result));
        if (results[job].module) keep_compiled(jobs[job], *results[job].module);
      });
    }
  }
  return results;
}

}  // namespace convtune::cuda
