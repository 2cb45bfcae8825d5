// The first form of every candidate is compiled at once with the others'; one that spills has more forms,
// which are compiled where it is looked at.
#include "cuda/launch/dry_run.h"

#include "cuda/compile/compile_all.h"
#include "cuda/launch/kernel_algorithm.h"

namespace convtune::cuda {

Launch launch_of(const LaunchPlan& plan, const CompiledModule& module) {
  const KernelResources& resources = module.kernels[LaunchPlan::kRun];
  const KernelLaunch& launch = plan.kernel_launch();
  return {{resources.registers,
           static_cast<int>(launch.block.x * launch.block.y * launch.block.z),
           resources.spill_bytes,
           resources.static_smem_bytes + static_cast<std::int64_t>(launch.dynamic_smem_bytes),
           std::int64_t{launch.grid.x} * launch.grid.y * launch.grid.z,
           {}},
          resources.kernel};
}

std::vector<DryRun> dry_run(const ConvProblem& problem, const DeviceInfo& device,
                            const std::vector<Candidate>& candidates, int processes, double seconds_each) {
  std::vector<DryRun> results(candidates.size());
  std::vector<LaunchPlan> plans(candidates.size());
  std::vector<CompileJob> jobs;
  std::vector<std::size_t> of_candidate;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    try {
      const KernelAlgorithm* const algorithm = kernel_algorithm(*candidates[i].algorithm);
      if (!algorithm) throw Error(ErrorKind::unsupported, "it compiles nothing of its own");
      plans[i] = algorithm->plan(problem, device, candidates[i].config);
      jobs.push_back(compile_job(plans[i], plans[i].configs.front()));
      of_candidate.push_back(i);
    } catch (const Error& error) {
      results[i].failure = error.what();
    }
  }
  const std::vector<CompileResult> compiled = compile_all(jobs, processes, seconds_each);
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    DryRun& result = results[of_candidate[j]];
    const LaunchPlan& plan = plans[of_candidate[j]];
    if (!compiled[j].module) {
      result.failure = compiled[j].failure;
      continue;
    }
    try {
      const bool spills = compiled[j].module->kernels[LaunchPlan::kRun].spill_bytes > 0;
      result.launch = launch_of(plan, spills ? compile(plan).module : *compiled[j].module);
    } catch (const Error& error) {
      result.failure = error.what();
    }
  }
  return results;
}

}  // namespace convtune::cuda
