// See launch_plan.h.
#include "cuda/launch/launch_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "convtune/error.h"

namespace convtune::cuda {

std::string_view to_string(Operand operand) {
  constexpr std::array<std::string_view, kOperands> kNames = {"x",          "w",
                                                              "bias",       "packed",
                                                              "y",          "residual",
                                                              "dy",         "dx",
                                                              "dw",         "dbias",
                                                              "cache",      "x_nhwc",
                                                              "cache_nhwc", "residual_nhwc",
                                                              "y_nhwc",     "partial_sums",
                                                              "w_gathered", "bias_gathered"};
  return kNames[static_cast<std::size_t>(operand)];
}

const KernelLaunch& LaunchPlan::kernel_launch() const {
  for (const Step& step : run)
    if (const auto* launch = std::get_if<KernelLaunch>(&step); launch && launch->kernel == kRun)
      return *launch;
  throw Error(ErrorKind::internal, name + " launches no kernel");
}

std::size_t LaunchPlan::packed_bytes() const {
  return static_cast<std::size_t>(std::max(packed.words(), 1LL)) * sizeof(float);
}

namespace {

std::size_t bytes_of(const std::vector<WorkspacePart>& parts) {
  std::size_t bytes = 0;
  for (const WorkspacePart& part : parts) bytes += in_lines(part.bytes);
  return bytes;
}

}  // namespace

std::size_t LaunchPlan::all_packed_bytes() const {
  std::size_t bytes = packed_bytes(), end = weights_lie ? 0 : in_lines(bytes);
  for (const LaunchPlan& part : more) {
    bytes = std::max(bytes, end + part.packed_bytes());
    if (!weights_lie) end += in_lines(part.packed_bytes());
  }
  return bytes;
}

std::size_t LaunchPlan::workspace_bytes() const {
  std::size_t bytes = bytes_of(workspace);
  for (const LaunchPlan& part : more) bytes = std::max(bytes, part.workspace_bytes());
  return bytes;
}
std::size_t LaunchPlan::pack_workspace_bytes() const {
  return bytes_of(pack_workspace);
}

bool LaunchPlan::adds_up() const {
  return std::any_of(workspace.begin(), workspace.end(),
                     [](const WorkspacePart& part) { return part.operand == Operand::partial_sums; });
}

bool LaunchPlan::can_lay_dw_last() const {
  const auto is_told = [](const Step& step) {
    const auto* const launch = std::get_if<KernelLaunch>(&step);
    return launch && std::ranges::any_of(launch->arguments, [](const Argument& argument) {
             return std::holds_alternative<DwLast>(argument);
           });
  };
  return std::ranges::any_of(run, is_told);
}

std::string kernel_file(const std::string& name) {
  return fmt::format("cuda/algorithms/{0}/{0}.cuh", name);
}

CompileJob compile_job(const LaunchPlan& plan, const std::string& config) {
  const auto kernel = [&](std::string_view prefix) {
    return fmt::format("convtune::{0}::{1}{0}<{2}>", plan.name, prefix, config);
  };
  CompileJob job = kernel_job(kernel_file(plan.name), kernel(""), plan.arch);
  if (plan.product_columns > 0)
    job.options.push_back(fmt::format("--define-macro=CONVTUNE_COLUMNS={}", plan.product_columns));
  if (plan.gathers) {
    const std::string file = "cuda/launch/gather_and_pack.cuh";
    job.source += fmt::format("#include \"{}\"\n", file);
    for (KernelSource& source : kernel_sources(file))
      if (std::ranges::find(job.headers, source.name, &KernelSource::name) == job.headers.end())
        job.headers.push_back(std::move(source));
    job.kernels.push_back(fmt::format("convtune::gather_and_pack<{}, {}, {}>", config, plan.gathers->axes,
                                      plan.gathers->flags));
  } else if (!plan.weights_lie) {
    job.kernels.push_back(kernel("pack_"));
  }
  if (plan.adds_up()) job.kernels.push_back(kernel("add_up_"));
  return job;
}

CompiledPlan compile(const LaunchPlan& plan, bool cached) {
  std::optional<CompiledPlan> best;
  const auto spills = [](const CompiledPlan& one) {
    return one.module.kernels[LaunchPlan::kRun].spill_bytes;
  };
  for (const std::string& config : plan.configs) {
    CompileJob job = compile_job(plan, config);
    CompiledModule module = compile(job, cached);
    CompiledPlan made{std::move(job), std::move(module)};
    if (!best || spills(made) < spills(*best)) best = std::move(made);
    if (spills(*best) == 0) break;
  }
  return *std::move(best);
}

}  // namespace convtune::cuda
