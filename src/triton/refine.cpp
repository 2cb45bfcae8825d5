// refine(): a Triton source and its profile -> the same source with the lists that the last stage's rules
// allow. Which config of a list wins is Triton's autotuner's to find, on the target; refine_measured() asks
// first whether any is worth having.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/named_file.h"
#include "base/quoted.h"
#include "convtune/convolution.h"
#include "convtune/error.h"
#include "triton/analysis.h"
#include "triton/refine_choice.h"
#include "triton/refine_compiled.h"
#include "triton/refine_contest.h"
#include "triton/refine_original.h"
#include "triton/stage_rules.h"
#include "triton/stage_verdicts.h"
#include "triton/triton_file.h"

namespace convtune {
namespace {

// One kernel of the file on its way to a list.
struct Work {
  const TritonKernel* kernel = nullptr;
  std::vector<TritonConfig> configs;  // for its list, as far as it is known
  KnownMetrics known;                 // what was profiled of it
  Original original;
  StageParameters parameters;  // for the stage, as it applies to this kernel
  StageList list;
  RefinedKernel result;
};

class Refining {
 public:
  Refining(const std::string& source, const std::vector<KernelMetrics>& metrics, const Target& target,
           const RefineOptions& options)
      : file_(source, options.path, target, options.python),
        metrics_(metrics),
        target_(target),
        options_(options),
        compiler_(file_, target_, options_) {}

  // `measuring`: null where nothing is measured.
  Refined run(const RefineMeasureOptions* measuring) {
    for (const auto& [name, value] : options_.let) {
      check_let(name, value);
      if (file_.source().find(name) == std::string::npos)
        result_.notes.push_back(
            fmt::format("--let {}: the file has no such name, and nothing follows from it", name));
    }
    for (const TritonKernel* kernel : chosen_kernels(file_, metrics_, options_))
      works_.push_back(begun(*kernel));
    for (Work& work : works_) {
      make_list(work);
      if (!measuring || work.list.configs.empty()) continue;
      measure(work, *measuring);
      if (result_.interrupted) return std::move(result_);
    }
    write();
    return std::move(result_);
  }

 private:
  void say(const std::string& text) const {
    if (options_.progress) options_.progress(text);
  }

  Work begun(const TritonKernel& kernel) {
    Work work;
    work.kernel = &kernel, work.configs = kernel.configs;
    work.result.kernel = kernel.name, work.result.line = kernel.line;
    std::vector<std::string>& notes = work.result.notes;
    std::string why = kernel.why;
    if (!why.empty() && kernel.listed && file_.has_triton() && !options_.trust)
      why += "; with --trust importing the file, which runs it, may give it";
    if (!why.empty() && kernel.listed && options_.import_file && compiler_.compiler()) {
      say("importing the file");
      std::string failed;
      work.configs = compiler_.compiler()->imported_list(file_, kernel, failed);
      if (!work.configs.empty()) {
        notes.push_back(fmt::format("its list of {} configs is what importing the file gives: {}",
                                    work.configs.size(), why));
        why.clear();
      } else {
        why += fmt::format("; importing the file does not give it either: {}", failed);
      }
    } else if (why.empty() && kernel.listed && !kernel.literal) {
      notes.push_back(fmt::format("its list of {} configs was worked out, for a GPU of compute capability {}",
                                  work.configs.size(), to_string(target_.capability)));
    }
    const KernelMetrics* measured = metrics_of(kernel, metrics_);
    if (!measured && metrics_.size() == 1 && !options_.kernel.empty()) measured = &metrics_[0];
    if (measured) {
      work.known = known_metrics(*measured);
      AnalyzeOptions analysis;
      analysis.problem = options_.problem;
      work.result.findings = analyze(*measured, target_, analysis, file_);
    }
    if (!measured) notes.emplace_back("the metrics hold nothing of it: what it achieved is not known");
    if (!changes_configs() || !kernel.fixed.empty()) return work;
    const StageParameters values = apply_stage(options_.stage, {}, {}).parameters;
    work.original = find_original({file_, kernel, work.configs, why, work.known, target_, options_, values});
    if (!work.original.why.empty()) compiler_.tell_apart(kernel, work.known, work.original);
    for (const std::string& note : work.original.notes) notes.push_back(note);
    if (work.original.why.empty())
      work.result.original = to_string(work.original.config);
    else
      work.result.unknown = unknown_original(kernel, work.original);
    return work;
  }

  // True where the stage is about configs at all.
  bool changes_configs() const {
    return options_.stage.kind == RefineStage::Kind::last || options_.stage.kind == RefineStage::Kind::memory;
  }

  void make_list(Work& work) {
    const TritonKernel& kernel = *work.kernel;
    std::vector<std::string>& notes = work.result.notes;
    if (!changes_configs()) {
      const bool of_grid = options_.stage.kind == RefineStage::Kind::grid;
      work.list.none = of_grid ? "the stage is about the grid, which stands in the code round the list"
                               : "the stage is about block sizes, which only measuring decides";
      work.result.verdicts =
          of_grid ? std::vector{grid_verdict(work.known, warps_of(kernel), target_)} : tiles(work);
      work.result.verdicts.push_back("keep: " + work.list.none);
      return;
    }
    if (!kernel.fixed.empty()) {
      work.list.none = kernel.fixed;
      work.result.verdicts = {"R4: keep: " + kernel.fixed};
      return;
    }
    if (!work.original.why.empty()) {
      work.list.none = "which config was profiled is not known";
      work.result.verdicts = {"R4: keep: " + work.list.none, "R5: every config of its list stays"};
      return;
    }
    const OccupancyEvidence evidence = evidence_of(work.known);
    const StageConfig original = work.original.config.stage;
    StageFacts facts = facts_of(work.known);
    if (kernel.loads) facts.loads = static_cast<double>(*kernel.loads);
    work.parameters = apply_stage(options_.stage, original, facts).parameters;
    StageParameters all = work.parameters;  // conditions may hold by what is compiled
    all.warps = options_.stage.warps, all.stages = options_.stage.stages;
    const auto made =
        compiler_.stages(kernel, work.known, work.original, stage_candidates(original, target_, all), notes);
    if (const auto own = made.find({original.warps, original.stages}); own != made.end()) {
      if (!facts.registers) facts.registers = own->second.registers;
      if (!facts.spills) facts.spills = own->second.spilled_bytes > 0;
    }
    AppliedStage applied = apply_stage(options_.stage, original, facts);
    work.parameters = std::move(applied.parameters);
    for (std::string& note : applied.notes) notes.push_back(std::move(note));
    const std::string same_code = kernel.loops == TritonKernel::Loops::any
                                      ? std::string()
                                      : std::string("changes nothing: ") + loops_in_words(kernel);
    if (!made.empty()) {
      work.list = micro_tuning(original, evidence, target_, work.parameters, [&](const StageConfig& config) {
        return made.at({config.warps, config.stages});
      });
    } else {
      work.list = micro_tuning(original, evidence, target_, work.parameters, same_code);
      if (!same_code.empty()) notes.push_back(loops_in_words(kernel));
    }
    if (!work.list.configs.empty() && work.configs.size() == 1 && kernel.listed && !kernel.in_place.empty() &&
        !kernel.is_protected && kernel.hooks.empty())
      keep_for_safety(work);
    if (kernel.pruned)
      notes.emplace_back(
          "its prune_configs_by stays, and decides at each launch which of the list are tried");
    if (const auto count = static_cast<std::int64_t>(work.list.configs.size());
        count > 0 && count < options_.stage.fewest)
      work.list.verdicts[3] += fmt::format(", where the stage wants {} to {}: the rules leave no more",
                                           options_.stage.fewest, options_.stage.most);
    work.result.verdicts = work.list.verdicts;
    for (const StageList::Entry& entry : work.list.configs)
      work.result.configs.push_back(
          fmt::format("{}: {}", to_string(with_stage(work, entry.config)), entry.reason));
  }

  // The warps of every config, where they agree.
  static std::optional<std::int64_t> warps_of(const TritonKernel& kernel) {
    std::optional<std::int64_t> warps;
    for (const TritonConfig& config : kernel.configs) {
      if (warps.value_or(config.stage.warps) != config.stage.warps) return std::nullopt;
      warps = config.stage.warps;
    }
    return warps;
  }

  std::vector<std::string> tiles(Work& work) {
    const TritonKernel& kernel = *work.kernel;
    const std::vector<TritonConfig> configs = tiles_to_rank(kernel);
    if (configs.empty()) return {"verdict on the tiles: their sizes are not known"};
    std::vector<TileFacts> facts;
    for (const TritonConfig& config : configs) facts.push_back({config, {}, {}});
    std::string why;
    if (kernel.listed)
      for (const auto& launch : file_.grids(kernel, {options_.problem, options_.let}, configs, why))
        for (std::size_t i = 0; i < facts.size(); ++i)
          if (!facts[i].grid || launch[i].blocks > facts[i].grid->blocks) facts[i].grid = launch[i];
    const auto made = compiler_.tiles(kernel, configs, work.result.notes);
    for (std::size_t i = 0; i < made.size(); ++i) facts[i].made = made[i];
    return tile_verdicts(std::move(facts), target_);
  }

  static std::string loops_in_words(const TritonKernel& kernel) {
    return kernel.loops == TritonKernel::Loops::none
               ? "the kernel has no loop, and num_stages is about pipelining one"
               : "every loop of the kernel is a tl.static_range, which Triton unrolls before it pipelines";
  }

  // A list of one config is never tried out; one of several runs the kernel again and again on the same data.
  static void keep_for_safety(Work& work) {
    std::string names;
    for (const std::string& name : work.kernel->in_place) names += (names.empty() ? "" : ", ") + name;
    work.list.none = fmt::format(
        "its list had one config, which Triton does not try out; trying several would run the kernel more "
        "than once on {}, which it changes in place: give its autotuner restore_value or reset_to_zero first",
        names);
    work.list.configs.clear();
    work.list.verdicts[3] = "R4: keep: " + work.list.none;
  }

  static TritonConfig with_stage(const Work& work, const StageConfig& stage) {
    TritonConfig config = work.original.config;
    config.stage = stage;
    return config;
  }

  void measure(Work& work, const RefineMeasureOptions& measuring) {
    TritonRunSpec spec;
    spec.python = options_.python, spec.path = options_.path, spec.kernel = work.kernel->name;
    spec.call = measuring.call, spec.problem = work.original.problem, spec.seconds = measuring.seconds;
    const auto source_of = [&](const TritonConfig& config) {
      std::vector<std::string> none;
      return file_.edited({{work.kernel->at, {{config, ""}}, false}}, false, none);
    };
    RefineContest contest =
        refine_contest({spec, file_.source(), work.list.configs, work.original.config,
                        work.kernel->listed ? work.configs : std::vector<TritonConfig>(), work.kernel->listed,
                        source_of, options_.stage.min_gain, options_.progress, options_.cancel,
                        std::min(work.list.configs.size(), static_cast<std::size_t>(options_.stage.fewest))});
    result_.interrupted = contest.interrupted;
    if (contest.interrupted) return;
    RefinedKernel& result = work.result;
    result.place = contest.place, result.changed = contest.accepted;
    if (const auto of_target = to_string(target_.capability); of_target != contest.capability)
      result.notes.push_back(
          fmt::format("measured on a GPU of compute capability {}, where the target {} has {}: its own may "
                      "decide otherwise",
                      contest.capability, target_.name, of_target));
    if (!contest.note.empty()) result.notes.push_back(contest.note);
    result.verdicts.back() = contest.best == 0
                                 ? "R6: " + contest.verdict
                                 : fmt::format("R6: {} ({}) against the original: {}",
                                               to_string(work.list.configs[contest.best].config),
                                               work.list.configs[contest.best].reason, contest.verdict);
    std::vector<StageList::Entry> right;
    for (std::size_t i = 0; i < work.list.configs.size(); ++i) {
      StageList::Entry entry = work.list.configs[i];
      if (i == contest.best && contest.accepted) entry.reason += ", measured faster than the original";
      if (contest.measured[i].failure.empty()) right.push_back(entry);
    }
    result.measured = std::move(contest.measured), result.contests = std::move(contest.contests);
    if (contest.accepted)
      work.list.configs = right;
    else
      reverted_.push_back(work.kernel->at);
  }

  void write() {
    std::vector<TritonFile::List> lists;
    for (Work& work : works_) {
      if (std::count(reverted_.begin(), reverted_.end(), work.kernel->at) > 0) continue;
      TritonFile::List list{work.kernel->at, {}, options_.keep_list};
      for (const StageList::Entry& entry : work.list.configs) {
        const TritonConfig config = with_stage(work, entry.config);
        const bool there = std::any_of(
            work.configs.begin(), work.configs.end(),
            [&](const TritonConfig& one) { return one.same_blocks(config) && one.stage == config.stage; });
        if (!options_.keep_list || !there) list.configs.push_back({config, entry.reason});
      }
      if (work.list.configs.empty() && options_.only_original && work.kernel->listed &&
          !work.result.original.empty()) {
        list.configs.push_back({work.original.config, "the original, which the stage keeps"});
        list.keep = false;
      }
      if (!list.configs.empty()) lists.push_back(std::move(list));
    }
    for (Work& work : works_) result_.kernels.push_back(std::move(work.result));
    result_.source = lists.empty() && !options_.in_order
                         ? file_.source()
                         : file_.edited(lists, options_.in_order, result_.notes);
    for (const RefinedKernel& kernel : result_.kernels)
      if (!kernel.unknown.empty()) result_.source = commented(kernel.unknown, result_.source);
    if (result_.source != file_.source()) check_import();
  }

  // The sentence as a comment at the head of the file, behind a line for the system's loader.
  static std::string commented(const std::string& sentence, std::string source) {
    std::string comment = "# " + sentence;
    for (std::size_t at = comment.find('\n'); at != comment.npos; at = comment.find('\n', at + 1))
      comment.insert(at + 1, "# ");
    const std::size_t at = source.starts_with("#!") ? std::min(source.find('\n'), source.size() - 1) + 1 : 0;
    return source.insert(at, comment + "\n");
  }

  // A file that could be imported must still be importable.
  void check_import() {
    if (!options_.import_file || !compiler_.compiler()) return;
    say("importing the new file");
    const std::string now = compiler_.compiler()->import_failure(result_.source, options_.path);
    if (now.empty()) {
      result_.notes.emplace_back("the new file was imported in a process of its own");
      return;
    }
    const std::string before = compiler_.compiler()->import_failure(file_.source(), options_.path);
    if (before.empty()) throw bad_input("the new file could not be imported, where the old one can: " + now);
    result_.notes.push_back("neither file can be imported here: " + before);
  }

  TritonFile file_;
  const std::vector<KernelMetrics>& metrics_;
  const Target& target_;
  const RefineOptions& options_;
  RefineCompiler compiler_;
  std::vector<Work> works_;
  std::vector<int> reverted_;  // TritonKernel::at of what measuring did not accept
  Refined result_;
};

Refined run(const std::string& source, const std::vector<KernelMetrics>& metrics, const Target& target,
            const RefineOptions& options, const RefineMeasureOptions* measuring) {
  try {
    return Refining(source, metrics, target, options).run(measuring);
  } catch (const RunCancelled&) {
    Refined result;
    result.interrupted = true;
    return result;
  }
}

}  // namespace

std::string load_source(const std::string& path) {
  std::string text = read_named_file(path);
  if (text.size() > kMaxPythonBytes)
    throw bad_input(fmt::format("{} has {} bytes; at most {} are read", convtune::quoted(path, 200),
                                text.size(), kMaxPythonBytes));
  return text;
}

Refined refine(const std::string& source, const std::vector<KernelMetrics>& metrics, const Target& target,
               const RefineOptions& options) {
  return run(source, metrics, target, options, nullptr);
}

Refined refine_measured(const std::string& source, const std::vector<KernelMetrics>& metrics,
                        const Target& target, const RefineOptions& options,
                        const RefineMeasureOptions& measuring) {
  RefineOptions trusting = options;
  trusting.trust = true;  // the contest runs the file
  return run(source, metrics, target, trusting, &measuring);
}

}  // namespace convtune
