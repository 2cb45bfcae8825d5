// See refine_compiled.h.
#include "triton/refine_compiled.h"

#include <fmt/format.h>

namespace convtune {
namespace {

constexpr std::size_t kMostCompiled = 16;   // configs that fit one profile
constexpr std::int64_t kDriversOwn = 1024;  // bytes of a block's shared memory, which some metrics count

bool is_smem(const KnownMetrics& known, const CompiledConfig& made) {
  const auto profiled = known.smem_bytes.value_or(made.smem_bytes);
  return profiled == made.smem_bytes || profiled == made.smem_bytes + kDriversOwn;
}

TritonConfig with_stage(TritonConfig config, const StageConfig& stage) {
  config.stage = stage;
  return config;
}

}  // namespace

TritonCompiler* RefineCompiler::compiler() {
  if (!options_.trust || !file_.has_triton() || (!options_.compile && !options_.import_file)) return nullptr;
  if (!compiler_) {
    say("starting Triton");
    compiler_.emplace(options_.python, options_.seconds,
                      [this] { return options_.cancel && options_.cancel->load(); });
  }
  return compiler_->version().empty() ? nullptr : &*compiler_;
}

void RefineCompiler::tell_apart(const TritonKernel& kernel, const KnownMetrics& known, Original& original) {
  if (!options_.compile || original.none_fits || original.fitting.size() > kMostCompiled ||
      (!known.registers && !known.smem_bytes && !known.achieved_occupancy))
    return;
  TritonCompiler* const by = compiler();
  if (!by) return;
  say(fmt::format("compiling {} configs of {}", original.fitting.size(), kernel.name));
  std::string why;
  const auto facts =
      by->compile(file_, kernel, target_, {original.problem, options_.let}, original.fitting, why);
  std::vector<std::size_t> same;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const CompiledConfig& made = facts[i];
    if (!made.failure.empty() ||
        (known.registers.value_or(made.registers) == made.registers && is_smem(known, made) &&
         can_be_active(original.fitting[i], known, made, target_)))
      same.push_back(i);
  }
  if (same.size() != 1 || !facts[same[0]].failure.empty()) return;
  const CompiledConfig& made = facts[same[0]];
  original.config = original.fitting[same[0]];
  original.notes.push_back(
      fmt::format("the original is the config of line {}: {}, and of those that fit it alone compiles to "
                  "what was profiled: {} "
                  "registers, {} bytes of shared memory",
                  original.config.line, original.why, made.registers, made.smem_bytes));
  original.why.clear(), original.fitting.clear();
}

RefineCompiler::Stages RefineCompiler::stages(const TritonKernel& kernel, const KnownMetrics& known,
                                              const Original& original,
                                              const std::vector<StageConfig>& stages,
                                              std::vector<std::string>& notes) {
  Stages made;
  if (!options_.compile) return made;
  if (!options_.trust && file_.has_triton()) {
    notes.emplace_back(
        "the file was read, and neither compiled nor imported: occupancy is inferred; --trust lets Triton "
        "compile the "
        "kernel, and import the file, which runs it");
    return made;
  }
  TritonCompiler* const by = compiler();
  if (!by) {
    notes.push_back(compiler_
                        ? fmt::format("Triton does not start: {}", compiler_->why_not())
                        : fmt::format("{} has no Triton: occupancy is inferred, and nothing is compiled",
                                      options_.python));
    return made;
  }
  std::vector<TritonConfig> configs;
  for (const StageConfig& stage : stages) configs.push_back(with_stage(original.config, stage));
  say(fmt::format("compiling {} configs of {}", configs.size(), kernel.name));
  std::string why;
  const auto facts = by->compile(file_, kernel, target_, {original.problem, options_.let}, configs, why);
  if (facts.empty()) {
    notes.push_back(fmt::format("Triton {} does not compile it: {}", by->version(), why));
    return made;
  }
  // The compiler was told what the source shows of the launch. Where it was another, as shared memory shows,
  // what it says of pipelining need not hold.
  const bool as_profiled = is_smem(known, facts[0]);
  if (!as_profiled)
    notes.push_back(fmt::format(
        "compiled, a block has {} bytes of shared memory, and {} were profiled: its arguments are others "
        "than the "
        "source shows, or its Triton is; so no config is taken for the same machine code as another",
        facts[0].smem_bytes, *known.smem_bytes));
  for (std::size_t i = 0; i < facts.size(); ++i) {
    CompiledConfig& fact = made[{configs[i].stage.warps, configs[i].stage.stages}] = facts[i];
    if (!as_profiled) fact.code = to_string(configs[i].stage);  // none is taken for another's
  }
  notes.push_back(fmt::format("compiled by Triton {} for compute capability {}, for {}", by->version(),
                              to_string(target_.capability), why));
  return made;
}

}  // namespace convtune
