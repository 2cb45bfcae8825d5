// See refine_compiled.h.
#include "triton/refine_compiled.h"

#include <fmt/format.h>

#include <algorithm>

namespace convtune {
namespace {

constexpr std::size_t kMostCompiled = 16;   // configs that fit one profile
constexpr std::int64_t kDriversOwn = 1024;  // bytes of a block's shared memory, which some metrics count

bool is_smem(const KnownMetrics& known, const CompiledConfig& made) {
  const auto profiled = known.smem_bytes.value_or(made.smem_bytes);
  return profiled == made.smem_bytes || profiled == made.smem_bytes + kDriversOwn;
}

// True where a profile can be of this config, or where it does not compile and nothing is known.
bool can_be(const TritonConfig& config, const KnownMetrics& known, const CompiledConfig& made,
            const Target& target) {
  return !made.failure.empty() || (known.registers.value_or(made.registers) == made.registers &&
                                   is_smem(known, made) && can_be_active(config, known, made, target));
}

// The larger needs of two ways to compile a config; no other config is the same machine code but both ways.
CompiledConfig larger(const CompiledConfig& a, const CompiledConfig& b) {
  if (!a.failure.empty() || !b.failure.empty()) return a.failure.empty() ? b : a;
  return {std::max(a.registers, b.registers),
          std::max(a.smem_bytes, b.smem_bytes),
          std::max(a.spilled_bytes, b.spilled_bytes),
          a.code + b.code,
          {}};
}

// Facts for all ways at once: a config needs the larger of its needs.
std::vector<CompiledConfig> both_ways(const std::vector<CompiledVariant>& variants,
                                      std::vector<std::string>& notes) {
  std::vector<CompiledConfig> facts = variants[0].configs;
  std::string ways = variants[0].given;
  for (std::size_t way = 1; way < variants.size(); ++way) {
    ways += fmt::format(" and {}", variants[way].given);
    for (std::size_t i = 0; i < facts.size(); ++i) facts[i] = larger(facts[i], variants[way].configs[i]);
  }
  if (!ways.empty())
    notes.push_back(fmt::format("compiled with {}, which the source does not tell{}", ways,
                                variants.size() > 1 ? ": the larger needs count" : ", as was profiled"));
  return facts;
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
  const auto variants =
      by->compile(file_, kernel, target_, {original.problem, options_.let}, original.fitting, why);
  if (variants.empty()) {
    original.notes.push_back(fmt::format("Triton {} does not tell them apart: {}", by->version(), why));
    return;
  }
  std::vector<std::size_t> same;
  for (std::size_t i = 0; i < original.fitting.size(); ++i)
    if (std::any_of(variants.begin(), variants.end(), [&](const CompiledVariant& variant) {
          return can_be(original.fitting[i], known, variant.configs[i], target_);
        }))
      same.push_back(i);
  const bool is_known = same.size() == 1 && variants[0].configs[same[0]].failure.empty();
  if (!is_known) {
    original.notes.push_back(fmt::format("compiled by Triton {}, {} of {} configs can be what was profiled",
                                         by->version(), same.size(), original.fitting.size()));
    std::vector<TritonConfig> left;
    for (const std::size_t i : same) left.push_back(original.fitting[i]);
    if (!left.empty()) original.fitting = std::move(left);
    return;
  }
  const CompiledConfig& made = variants[0].configs[same[0]];
  original.config = original.fitting[same[0]];
  original.notes.push_back(
      fmt::format("the original is the config of line {}: {}, and of those that fit it alone compiles to "
                  "what was profiled: {} "
                  "registers, {} bytes of shared memory",
                  original.config.line, original.why, made.registers, made.smem_bytes));
  original.why.clear(), original.fitting.clear();
}

std::vector<CompiledVariant> RefineCompiler::compiled(const TritonKernel& kernel,
                                                      const std::optional<ConvProblem>& problem,
                                                      const std::vector<TritonConfig>& configs,
                                                      std::vector<std::string>& notes) {
  if (!options_.compile) return {};
  if (!options_.trust && file_.has_triton()) {
    notes.emplace_back(
        "the file was read, and neither compiled nor imported: occupancy is inferred; --trust lets Triton "
        "compile the "
        "kernel, and import the file, which runs it");
    return {};
  }
  TritonCompiler* const by = compiler();
  if (!by) {
    notes.push_back(compiler_
                        ? fmt::format("Triton does not start: {}", compiler_->why_not())
                        : fmt::format("{} has no Triton: occupancy is inferred, and nothing is compiled",
                                      options_.python));
    return {};
  }
  say(fmt::format("compiling {} configs of {}", configs.size(), kernel.name));
  std::string why;
  auto variants = by->compile(file_, kernel, target_, {problem, options_.let}, configs, why);
  notes.push_back(variants.empty() ? fmt::format("Triton {} does not compile it: {}", by->version(), why)
                                   : fmt::format("compiled by Triton {} for compute capability {}, for {}",
                                                 by->version(), to_string(target_.capability), why));
  return variants;
}

std::vector<CompiledConfig> RefineCompiler::tiles(const TritonKernel& kernel,
                                                  const std::vector<TritonConfig>& tiles,
                                                  std::vector<std::string>& notes) {
  const auto variants = compiled(kernel, options_.problem, tiles, notes);
  return variants.empty() ? std::vector<CompiledConfig>() : both_ways(variants, notes);
}

RefineCompiler::Stages RefineCompiler::stages(const TritonKernel& kernel, const KnownMetrics& known,
                                              const Original& original,
                                              const std::vector<StageConfig>& stages,
                                              std::vector<std::string>& notes) {
  Stages made;
  std::vector<TritonConfig> configs;
  for (const StageConfig& stage : stages) configs.push_back(with_stage(original.config, stage));
  auto variants = compiled(kernel, original.problem, configs, notes);
  if (variants.empty()) return made;
  // A truth value that the source does not tell is as profiled, or both ways count.
  const auto others = [&](const CompiledVariant& variant) {
    return !can_be(original.config, known, variant.configs[0], target_);
  };
  if (!std::all_of(variants.begin(), variants.end(), others)) std::erase_if(variants, others);
  const std::vector<CompiledConfig> facts = both_ways(variants, notes);
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
  return made;
}

}  // namespace convtune
