// rehearse(): first only the jobs of all candidates, then all of them compiled at once, then each built and
// run as far as its launches.
#include "cuda/rehearsal.h"

#include <utility>

#include "cuda/argument_text.h"
#include "cuda/compile_all.h"

namespace convtune::cuda {
namespace {

thread_local Rehearsal* rehearsing = nullptr;

}  // namespace

Rehearsal::Rehearsal(const CompiledModule* module) : module_(module) {
  rehearsing = this;
}

Rehearsal::Rehearsal(Compiling) : compiling_(true) {
  rehearsing = this;
}

Rehearsal::~Rehearsal() {
  rehearsing = nullptr;
}

Rehearsal* Rehearsal::current() {
  return rehearsing;
}

std::optional<CompiledModule> Rehearsal::compiled(const CompileJob& asked) {
  if (compiling_ || std::exchange(job, asked)) return std::nullopt;
  if (!module_) throw StoppedAtCompile();
  return *module_;
}

std::vector<Rehearsed> rehearse(const Conv2dProblem& problem, const DeviceInfo& device,
                                const std::vector<Candidate>& candidates, int processes,
                                double seconds_each) {
  std::vector<Rehearsed> results(candidates.size());
  std::vector<CompileJob> jobs;
  std::vector<std::size_t> of_candidate;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    Rehearsal rehearsal(nullptr);
    try {
      candidates[i].algorithm->build(problem, device, candidates[i].config);
      results[i].failure = "it compiles nothing of its own";
    } catch (const Rehearsal::StoppedAtCompile&) {
      jobs.push_back(*rehearsal.job);
      of_candidate.push_back(i);
    } catch (const Error& error) {
      results[i].failure = error.what();
    }
  }
  const std::vector<CompileResult> compiled = compile_all(jobs, processes, seconds_each);
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const auto& [algorithm, config] = candidates[of_candidate[j]];
    Rehearsed& result = results[of_candidate[j]];
    if (!compiled[j].module) {
      result.failure = compiled[j].failure;
      continue;
    }
    Rehearsal rehearsal(&*compiled[j].module);
    try {
      algorithm->build(problem, device, config)
          ->run(rehearsed_address(Operand::x), rehearsed_address(Operand::packed),
                rehearsed_address(Operand::y), nullptr);
      result.launches = rehearsal.launches;
    } catch (const Error& error) {
      result.failure = error.what();
    }
  }
  return results;
}

}  // namespace convtune::cuda
