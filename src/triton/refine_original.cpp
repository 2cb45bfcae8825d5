// See refine_original.h.
#include "triton/refine_original.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quoted.h"
#include "convtune/convolution.h"
#include "convtune/error.h"

namespace convtune {
namespace {

constexpr std::size_t kShownConfigs = 12;  // configs of a message
constexpr const char* kNameSizes =
    ", or what the grid is made of with --let (M=4096, \"x=[16, 3, 224, 224]\") or --problem";

std::string listing(const std::vector<const TritonConfig*>& configs) {
  std::string text;
  for (std::size_t i = 0; i < std::min(configs.size(), kShownConfigs); ++i)
    text += fmt::format("\n  line {}: {}", configs[i]->line, to_string(*configs[i]));
  if (configs.size() > kShownConfigs) text += fmt::format("\n  and {} more", configs.size() - kShownConfigs);
  return text;
}

std::string name_of(const ConvProblem& problem) {
  return problem.name.empty() ? to_string(problem) : problem.name;
}

// "'fast'" and "fast" are the same value.
std::string_view bare(std::string_view text) {
  if (text.size() > 1 && (text.front() == '\'' || text.front() == '"') && text.front() == text.back())
    return text.substr(1, text.size() - 2);
  return text;
}

bool says_nothing(const std::string& name, const std::string& value) {  // Triton prints these always
  return (name == "num_ctas" && value == "1") || value == "None";
}

std::optional<std::int64_t> whole(const std::string& text) {
  if (text.empty() || text.size() > 6 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  return std::stoll(text);
}

// A config whose list is not known, as --original has the whole of it.
TritonConfig named_whole(const std::vector<std::pair<std::string, std::string>>& words) {
  TritonConfig config;
  for (const auto& [name, value] : words) {
    const auto number = whole(value);
    if (name == "num_warps" || name == "num_stages") {
      if (!number)
        throw bad_input(
            fmt::format("--original's {} is {}, and must be a whole number", name, convtune::quoted(value)));
      (name == "num_warps" ? config.stage.warps : config.stage.stages) = *number;
    } else if (name == "num_ctas" || name == "maxnreg") {
      if (!says_nothing(name, value)) config.others.emplace_back(name, value);
    } else if (name == "pre_hook" || name == "ir_override") {
      if (value != "None") config.others.emplace_back(name, value);
    } else {
      const bool word = std::all_of(value.begin(), value.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
      });
      const bool is_text = word && !number && value != "True" && value != "False" && value != "None" &&
                           !(value[0] >= '0' && value[0] <= '9');
      config.meta.emplace_back(name, is_text ? fmt::format("'{}'", value) : value);
    }
  }
  return config;
}

// The configs that launch as many blocks as the profiled grid has.
struct GridFit {
  std::vector<TritonConfig> configs;
  std::optional<ConvProblem> problem;  // for which they are
  bool none_fits = false;              // the launches are known, and none has as many blocks as the grid
  bool is_whole = false;               // every launch is known; else only a factor of its blocks is, of some
  std::string why;                     // there are none, or the grid tells them apart no further
};

GridFit fit_grid(TritonFile& file, const TritonKernel& kernel, std::int64_t grid,
                 const std::vector<ConvProblem>& problems,
                 const std::vector<std::pair<std::string, std::string>>& let) {
  GridFit fit;
  std::vector<std::optional<ConvProblem>> asked(problems.begin(), problems.end());
  if (asked.empty()) asked.emplace_back();  // the config that is launched may not depend on it
  for (const auto& one : asked) {
    std::string why_none;
    const std::vector<std::vector<TritonGrid>> launches = file.grids(kernel, {one, let}, why_none);
    if (launches.empty()) {
      fit = {};
      fit.why = "the grid cannot be worked out from the file: " + why_none;
      if (!one && let.empty()) fit.why += ", and what it computed is not known";
      return fit;
    }
    bool is_whole = true;
    std::vector<TritonConfig> fitting;
    std::string launched;
    for (std::size_t i = 0; i < kernel.configs.size(); ++i) {
      if (std::any_of(launches.begin(), launches.end(),
                      [&](const auto& grids) { return grids[i].fits(grid); }))
        fitting.push_back(kernel.configs[i]);
      for (const std::vector<TritonGrid>& grids : launches) {
        is_whole &= grids[i].is_whole;
        const std::string text =
            fmt::format("{}{}", grids[i].is_whole ? "" : "a multiple of ", grids[i].blocks);
        if (launched.find(text) == launched.npos && launched.size() < 100)
          launched += (launched.empty() ? "" : ", ") + text;
      }
    }
    if (fitting.empty()) {
      if (fit.configs.empty()) {
        fit.why = fmt::format("no config launches {} blocks{}; they launch {}", grid,
                              one ? " for " + name_of(*one) : "", launched);
        fit.none_fits = true;
      }
    } else if (fit.configs.empty()) {
      fit = {fitting, one, false, is_whole, {}};
    } else if (fit.configs != fitting) {
      const std::string why =
          fmt::format("a grid of {} fits other configs for {} than for {}: say which with --problem", grid,
                      fit.problem ? name_of(*fit.problem) : "", one ? name_of(*one) : "");
      fit = {};
      fit.why = why;
      return fit;
    }
  }
  return fit;
}

class Finder {
 public:
  explicit Finder(const OriginalQuestion& question) : q_(question) {
    if (q_.options.problem)
      problems_ = {*q_.options.problem};
    else
      problems_ = q_.file.cases();
    if (!problems_.empty()) result_.problem = problems_[0];
  }

  Original run() {
    if (q_.configs.empty() && q_.why.empty())
      throw at_kernel("its list of configs is empty: there is nothing to refine");
    if (!q_.options.original.empty() && q_.options.original != "first") return named();
    if (q_.configs.empty() && q_.kernel.stages && q_.metrics.block.value_or(1) % q_.target.warp_size == 0)
      return by_threads();
    if (q_.configs.empty())
      throw at_kernel(
          q_.kernel.listed
              ? fmt::format(
                    "its list of configs is not known: {}; name the whole config that was profiled, as in "
                    "--original \"BLOCK_M: 64, num_warps: 4, num_stages: 3\"",
                    q_.why)
              : fmt::format("{}; name what was profiled, as in --original \"num_warps=4 num_stages=2\"",
                            q_.why));
    return from_metrics();
  }

 private:
  Error at_kernel(const std::string& why) const {
    return bad_input(fmt::format("line {}: {}: {}", q_.kernel.line, convtune::quoted(q_.kernel.name), why));
  }

  Original named() {
    const auto words = parse_config_words(q_.options.original);
    if (q_.configs.empty()) {
      if (q_.kernel.listed && !q_.kernel.hooks.empty())
        throw at_kernel(
            fmt::format("its list of configs is not known ({}), and its configs have a {}, which "
                        "--original cannot say",
                        q_.why, q_.kernel.hooks[0]));
      result_.notes.push_back(fmt::format(
          "the original is what --original says; the list that it stood in is not known: {}", q_.why));
      result_.config = named_whole(words);
      if (!q_.kernel.listed) result_.config.meta.clear(), result_.config.others.clear();
      return std::move(result_);
    }
    std::vector<const TritonConfig*> found;
    for (const TritonConfig& config : q_.configs)
      if (is_config(config, words)) found.push_back(&config);
    drop_equal(found);
    if (found.size() != 1)
      throw bad_input(fmt::format("--original {} fits {} configs of the list of {}{}",
                                  convtune::quoted(q_.options.original, 200), found.size(), q_.kernel.name,
                                  found.empty() ? listing(all()) : listing(found)));
    check_grid(*found[0]);
    result_.notes.push_back(
        fmt::format("the original is the config of line {}, as --original says", found[0]->line));
    return taken(*found[0]);
  }

  std::vector<const TritonConfig*> all() const {
    std::vector<const TritonConfig*> every;
    for (const TritonConfig& config : q_.configs) every.push_back(&config);
    return every;
  }

  Original taken(const TritonConfig& config) {
    if (!config.hidden.empty())
      throw bad_input(
          fmt::format("line {}: this config cannot be written again: {}", config.line, config.hidden));
    result_.config = config;
    return std::move(result_);
  }

  // A config that stands twice is one config.
  void drop_equal(std::vector<const TritonConfig*>& configs) {
    if (configs.size() < 2 || configs.size() > 512) return;
    std::vector<const TritonConfig*> kept;
    for (const TritonConfig* config : configs)
      if (std::none_of(kept.begin(), kept.end(), [&](const TritonConfig* other) {
            return other->same_blocks(*config) && other->stage == config->stage;
          }))
        kept.push_back(config);
    if (kept.size() < configs.size())
      result_.notes.push_back(
          fmt::format("the config of line {} stands in its list more than once", configs[0]->line));
    configs = kept;
  }

  // The metrics decide R1, and must be the original's own.
  void check_grid(const TritonConfig& original) {
    if (!q_.metrics.grid || q_.configs != q_.kernel.configs) return;
    std::string why;
    const std::vector<TritonConfig> found = profiled_configs(q_.file, q_.kernel, *q_.metrics.grid, problems_,
                                                             q_.options.let, result_.problem, why);
    if (found.empty()) return;
    std::vector<const TritonConfig*> fitting;
    for (const TritonConfig& config : found) fitting.push_back(&config);
    if (std::none_of(found.begin(), found.end(), [&](const TritonConfig& config) {
          return config.same_blocks(original) && config.stage == original.stage;
        }))
      throw bad_input(fmt::format("--original is not what was profiled: a grid of {} is that of{}",
                                  *q_.metrics.grid, listing(fitting)));
  }

  // A launch that works its num_warps out: the block that was profiled has them.
  Original by_threads() {
    result_.config.stage = {*q_.metrics.block / q_.target.warp_size, *q_.kernel.stages};
    result_.notes.push_back(fmt::format("the original has {} warps, as {} threads a block were profiled: {}",
                                        result_.config.stage.warps, *q_.metrics.block, q_.why));
    return std::move(result_);
  }

  Original from_metrics() {
    std::vector<const TritonConfig*> left = all();
    drop_equal(left);
    if (left.size() == 1) {
      result_.notes.push_back(
          q_.kernel.listed ? fmt::format("the original is its list's only config, line {}", left[0]->line)
                           : fmt::format("the original is what line {} launches it with", left[0]->line));
      return taken(*left[0]);
    }
    GridFit fit;
    std::string because;
    if (!q_.metrics.grid)
      fit.why = "the metrics have no launch__grid_size";
    else if (q_.configs != q_.kernel.configs)
      fit.why = "the list is known by importing the file alone";
    else
      fit = fit_grid(q_.file, q_.kernel, *q_.metrics.grid, problems_, q_.options.let);
    if (!fit.configs.empty()) {
      result_.problem = fit.problem;
      left.clear();
      for (const TritonConfig& config : fit.configs) left.push_back(&config);
      drop_equal(left);
      because = fmt::format("its grid of {} was profiled{}", *q_.metrics.grid,
                            fit.problem ? fmt::format(" ({})", name_of(*fit.problem)) : "");
      if (!fit.is_whole) because += ", of which a factor is known";
    }
    result_.grid_is_open = q_.metrics.grid && !fit.is_whole, result_.none_fits = fit.none_fits;
    const auto keep = [&](const std::string& reason, auto test) {
      std::vector<const TritonConfig*> kept;
      std::copy_if(left.begin(), left.end(), std::back_inserter(kept), test);
      if (kept.empty() || kept.size() == left.size()) return;
      left = kept;
      because += (because.empty() ? "" : ", ") + reason;
    };
    if (q_.metrics.block && !fit.none_fits)
      keep(fmt::format("{} threads a block", *q_.metrics.block), [&](const TritonConfig* config) {
        return config->stage.warps * q_.target.warp_size == *q_.metrics.block;
      });
    if (q_.metrics.achieved_occupancy && !fit.none_fits)
      keep(fmt::format("{:.4g} % of the warps were active", 100 * *q_.metrics.achieved_occupancy),
           [&](const TritonConfig* config) { return can_be_active(*config, q_.metrics, {}, q_.target); });
    // For configs of one tile: a profile of another stage's values would not ask for this stage. Tiles are
    // not told apart so.
    if (!fit.none_fits && std::all_of(left.begin(), left.end(), [&](const TritonConfig* config) {
          return config->same_blocks(*left[0]);
        }))
      keep("and num_warps and num_stages are values of the stage", [&](const TritonConfig* config) {
        const auto &warps = q_.parameters.warps, &stages = q_.parameters.stages;
        return std::count(warps.begin(), warps.end(), config->stage.warps) > 0 &&
               std::count(stages.begin(), stages.end(), config->stage.stages) > 0;
      });
    using Several = RefineOptions::Several;
    if (left.size() != 1 && q_.options.several == Several::keep) {
      for (const TritonConfig* config : left) result_.fitting.push_back(*config);
      result_.why = because.empty() ? fit.why : fit.why.empty() ? because : fit.why + "; " + because;
      return std::move(result_);
    }
    if (left.size() != 1 && q_.options.several == Several::refuse)
      throw bad_input(fmt::format(
          "which config of {} was profiled is not known: {}; name it with --original{}{}",
          convtune::quoted(q_.kernel.name),
          fit.configs.empty() ? fit.why
                              : fmt::format("a grid of {} fits {} configs", *q_.metrics.grid, left.size()),
          result_.grid_is_open ? kNameSizes : "", listing(left)));
    if (left.size() != 1)
      result_.notes.push_back(
          fmt::format("which of {} configs was profiled is not known{}: the first is taken, line {}; "
                      "--original names another",
                      left.size(), fit.why.empty() ? "" : " (" + fit.why + ")", left[0]->line));
    else
      result_.notes.push_back(
          fmt::format("the original is the config of line {}: {}", left[0]->line, because));
    return taken(*left[0]);
  }

  const OriginalQuestion& q_;
  std::vector<ConvProblem> problems_;
  Original result_;
};

}  // namespace

std::string unknown_original(const TritonKernel& kernel, const Original& original) {
  std::vector<const TritonConfig*> fitting;
  for (const TritonConfig& config : original.fitting) fitting.push_back(&config);
  return fmt::format(
      "keep: which config of {} was profiled is not known ({}); name one with --original{}; these fit:{}",
      convtune::quoted(kernel.name), original.why, original.grid_is_open ? kNameSizes : "", listing(fitting));
}

Original find_original(const OriginalQuestion& question) {
  return Finder(question).run();
}

bool can_be_active(const TritonConfig& config, const KnownMetrics& profiled, const CompiledConfig& made,
                   const Target& target) {
  constexpr double kRounding = 0.005;  // per metric and of an average over time
  if (!profiled.achieved_occupancy || config.stage.warps < 1) return true;
  OccupancyEvidence evidence;
  evidence.registers = made.registers > 0 ? std::optional(made.registers) : profiled.registers;
  evidence.smem_bytes = made.registers > 0 ? std::optional(made.smem_bytes) : profiled.smem_bytes;
  std::int64_t blocks = known_occupancy(config.stage.warps, evidence, target).bound.blocks;
  if (profiled.grid)
    blocks = std::min<std::int64_t>(blocks, (*profiled.grid - 1) / target.multiprocessors + 1);
  const double most = static_cast<double>(blocks * config.stage.warps) / target.warps_per_multiprocessor;
  return *profiled.achieved_occupancy <= most + kRounding;
}

std::vector<TritonConfig> profiled_configs(TritonFile& file, const TritonKernel& kernel, std::int64_t grid,
                                           const std::vector<ConvProblem>& problems,
                                           const std::vector<std::pair<std::string, std::string>>& let,
                                           std::optional<ConvProblem>& problem, std::string& why) {
  GridFit fit = fit_grid(file, kernel, grid, problems, let);
  problem = fit.problem, why = fit.why;
  if (!fit.is_whole && fit.configs.size() < kernel.configs.size() && why.empty())
    why = "the grid cannot be worked out from the file";
  return fit.is_whole ? fit.configs : std::vector<TritonConfig>();
}

bool is_config(const TritonConfig& config, const std::vector<std::pair<std::string, std::string>>& words) {
  return std::all_of(words.begin(), words.end(), [&](const auto& word) {
    const auto& [name, value] = word;
    if (name == "num_warps" && fmt::format("{}", config.stage.warps) == value) return true;
    if (name == "num_stages" && fmt::format("{}", config.stage.stages) == value) return true;
    for (const auto* fields : {&config.meta, &config.others})
      for (const auto& [own, text] : *fields)
        if (own == name) return bare(text) == bare(value);
    return name != "num_warps" && name != "num_stages" && says_nothing(name, value);
  });
}

bool is_kernel_name(std::string_view profiled, std::string_view kernel) {
  if (profiled == kernel) return true;
  if (!profiled.starts_with(kernel) || profiled.size() < kernel.size() + 2 || profiled[kernel.size()] != '_')
    return false;
  const std::string_view rest = profiled.substr(kernel.size() + 1);
  return rest[0] >= '0' && rest[0] <= '9' && std::all_of(rest.begin(), rest.end(), [](char c) {
           return (c >= '0' && c <= '9') || c == 'd' || c == 'e' || c == 'c';
         });
}

}  // namespace convtune
