// refine(): a Triton source and its profile -> the same source with the list that the last stage's rules
// allow. Which config of it wins is Triton's autotuner's to find, on the target; refine_measured() asks first
// whether any is worth having.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "analysis.h"
#include "convtune/convolution.h"
#include "convtune/error.h"
#include "named_file.h"
#include "quoted.h"
#include "refine_contest.h"
#include "triton_grid.h"

namespace convtune {
namespace {

Error bad(const std::string& message) {
  return Error(ErrorKind::invalid_argument, message);
}

const KernelMetrics& metrics_of(const std::string& kernel, const std::vector<KernelMetrics>& all) {
  std::string names;
  for (const KernelMetrics& metrics : all) {
    if (metrics.kernel == kernel) return metrics;
    names += (names.empty() ? "" : ", ") + convtune::quoted(metrics.kernel);
  }
  throw bad(fmt::format("the metrics hold nothing of the autotuned kernel {}; they are of {}",
                        convtune::quoted(kernel), names));
}

std::string listing(const std::vector<const TritonConfig*>& configs) {
  std::string text;
  for (const TritonConfig* config : configs)
    text += fmt::format("\n  line {}: {}", config->line, to_string(*config));
  return text;
}

// The words of --original that a config must have: "BLOCK_M=32 num_stages=2".
bool matches(const TritonConfig& config, const Config& wanted) {
  return std::all_of(wanted.values.begin(), wanted.values.end(), [&](const auto& field) {
    const std::string& name = field.first;
    const std::int64_t value = field.second;
    if (name == "num_warps") return config.num_warps == value;
    if (name == "num_stages") return config.num_stages == value;
    const std::string text = fmt::format("{}", value);
    const auto is = [&](const auto& parameter) {
      return parameter.first == name && parameter.second == text;
    };
    return std::any_of(config.meta.begin(), config.meta.end(), is) ||
           std::any_of(config.extra.begin(), config.extra.end(), is);
  });
}

class Refining {
 public:
  Refining(std::string_view source, const std::vector<KernelMetrics>& metrics, const Target& target,
           const RefineOptions& options)
      : source_(source),
        metrics_(known_metrics(metrics_of(source_.kernel(), metrics))),
        target_(target),
        options_(options) {}

  Refined run() {
    make_list();
    if (!list_.configs.empty()) {
      write_list(list_.configs);
      add_configs();
    }
    return std::move(result_);
  }

  Refined run_measured(const std::string& file, const RefineMeasureOptions& measuring) {
    make_list();
    if (list_.configs.empty()) return std::move(result_);
    add_configs();
    TritonRunSpec spec;
    spec.file = file, spec.kernel = source_.kernel();
    spec.listed = source_.configs().size();
    spec.config = static_cast<std::size_t>(original_ - source_.configs().data());
    spec.problem = fed_;
    RefineContest contest = refine_contest(spec, list_.configs, source_.configs(), measuring);
    result_.interrupted = contest.interrupted;
    if (contest.interrupted) return std::move(result_);
    result_.place = contest.place, result_.changed = contest.accepted;
    if (const auto of_target = to_string(target_.capability); of_target != contest.capability)
      result_.notes.push_back(
          fmt::format("measured on a GPU of compute capability {}, where the target {} has {}: its own may "
                      "decide otherwise",
                      contest.capability, target_.name, of_target));
    if (!contest.note.empty()) result_.notes.push_back(contest.note);
    std::vector<StageList::Entry> right;
    for (std::size_t i = 0; i < list_.configs.size(); ++i) {
      StageList::Entry entry = list_.configs[i];
      if (i == contest.best && contest.accepted) entry.reason += ", measured faster than the original";
      if (contest.measured[i].failure.empty()) right.push_back(entry);
    }
    result_.measured = std::move(contest.measured);
    result_.verdicts.back() = contest.best == 0
                                  ? "R6: " + contest.verdict
                                  : fmt::format("R6: {} ({}) against the original: {}",
                                                to_string(list_.configs[contest.best].config),
                                                list_.configs[contest.best].reason, contest.verdict);
    if (contest.accepted)
      write_list(right);
    else
      result_.source = source_.in_order(result_.notes);
    return std::move(result_);
  }

 private:
  void make_list() {
    original_ = options_.original.empty() ? &from_grid() : &named_original();
    std::vector<StageConfig> listed;
    for (const TritonConfig& config : source_.configs())
      if (config.same_blocks(*original_)) listed.push_back(config.stage());
    list_ = micro_tuning(original_->stage(), evidence_of(metrics_), target_, listed);
    result_.verdicts = list_.verdicts;
    if (source_.only_static_loops())
      result_.notes.emplace_back(
          "every loop of the kernel is a tl.static_range, which Triton unrolls before it "
          "pipelines: num_stages may change nothing");
  }

  void write_list(const std::vector<StageList::Entry>& list) {
    std::vector<TritonSource::Listed> entries;
    for (const StageList::Entry& entry : list) entries.push_back({original_, entry.config, entry.reason});
    result_.source = source_.with_configs(entries, result_.notes);
  }

  void add_configs() {
    for (const StageList::Entry& entry : list_.configs) {
      TritonConfig config = *original_;
      config.num_warps = entry.config.warps, config.num_stages = entry.config.stages;
      result_.configs.push_back(
          fmt::format("{}: {}{}", to_string(config), entry.reason,
                      entry.listed && &entry != list_.configs.data() ? ", in the list already" : ""));
    }
  }

  const TritonConfig& named_original() {
    const Config wanted = parse_config(options_.original);
    std::vector<const TritonConfig*> found;
    for (const TritonConfig& config : source_.configs())
      if (matches(config, wanted)) found.push_back(&config);
    if (found.size() != 1)
      throw bad(fmt::format("--original {} fits {} configs of the list{}",
                            convtune::quoted(options_.original, 200), found.size(), listing(found)));
    check_grid(*found[0]);
    result_.notes.push_back(
        fmt::format("the original is the config of line {}, as --original says", found[0]->line));
    return *found[0];
  }

  std::vector<Conv2dProblem> problems() const {
    return options_.problem ? std::vector<Conv2dProblem>{*options_.problem} : cases_of(source_);
  }

  // The metrics decide R1, and must be the original's own.
  void check_grid(const TritonConfig& original) {
    const std::vector<Conv2dProblem> known = problems();
    if (!known.empty()) fed_ = known[0];
    if (!metrics_.grid) return;
    const Profiled found = profiled_configs(source_, *metrics_.grid, known);
    if (!found.configs.empty()) fed_ = found.problem;
    if (!found.configs.empty() &&
        std::find(found.configs.begin(), found.configs.end(), &original) == found.configs.end())
      throw bad(fmt::format("--original is not what was profiled: a grid of {} is that of{}", *metrics_.grid,
                            listing(found.configs)));
  }

  const TritonConfig& from_grid() {
    if (!metrics_.grid)
      throw bad(
          "which config was profiled is not known: the metrics have no launch__grid_size; name it with "
          "--original");
    const Profiled found = profiled_configs(source_, *metrics_.grid, problems());
    if (found.configs.empty()) throw bad("which config was profiled is not known: " + found.why_none);
    fed_ = found.problem;
    std::vector<const TritonConfig*> left = found.configs;
    std::string why = fmt::format("its grid of {} was profiled ({})", *metrics_.grid,
                                  found.problem.name.empty() ? to_string(found.problem) : found.problem.name);
    const auto keep = [&](const std::string& because, auto test) {
      std::vector<const TritonConfig*> kept;
      std::copy_if(left.begin(), left.end(), std::back_inserter(kept), test);
      if (kept.empty() || kept.size() == left.size()) return;
      left = kept;
      why += ", " + because;
    };
    if (metrics_.block)
      keep(fmt::format("{} threads a block", *metrics_.block), [&](const TritonConfig* config) {
        return config->num_warps * target_.warp_size == *metrics_.block;
      });
    const StageParameters stage;
    keep("and num_warps and num_stages are values of the stage", [&](const TritonConfig* config) {
      return std::count(stage.warps.begin(), stage.warps.end(), config->num_warps) > 0 &&
             std::count(stage.stages.begin(), stage.stages.end(), config->num_stages) > 0;
    });
    if (left.size() != 1)
      throw bad(fmt::format("a grid of {} fits {} configs; name one with --original{}", *metrics_.grid,
                            left.size(), listing(left)));
    result_.notes.push_back(fmt::format("the original is the config of line {}: {}", left[0]->line, why));
    return *left[0];
  }

  const TritonSource source_;
  const KnownMetrics metrics_;
  const Target& target_;
  const RefineOptions& options_;
  const TritonConfig* original_ = nullptr;
  std::optional<Conv2dProblem> fed_;  // what was profiled, as far as it is known
  StageList list_;
  Refined result_;
};

}  // namespace

std::string load_source(const std::string& path) {
  std::string text = read_named_file(path);
  if (text.size() > kMaxPythonBytes)
    throw bad(fmt::format("{} has {} bytes; at most {} are read", convtune::quoted(path, 200), text.size(),
                          kMaxPythonBytes));
  return text;
}

Refined refine(std::string_view source, const std::vector<KernelMetrics>& metrics, const Target& target,
               const RefineOptions& options) {
  return Refining(source, metrics, target, options).run();
}

Refined refine_measured(const std::string& file, const std::vector<KernelMetrics>& metrics,
                        const Target& target, const RefineOptions& options,
                        const RefineMeasureOptions& measuring) {
  const std::string source = load_source(file);
  return Refining(source, metrics, target, options).run_measured(file, measuring);
}

}  // namespace convtune
