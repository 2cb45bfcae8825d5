// See whole_answer.h.
#include "whole_answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "convtune/error.h"
#include "convtune/export.h"
#include "convtune/units.h"
#include "options.h"
#include "output.h"
#include "table.h"

namespace convtune::cli {
namespace {

constexpr std::string_view kGeneral =
    "general";  // how the names of algorithms begin that run everything, slowly

std::optional<DocumentModule> module_of(const WholeAnswer& of, const RefineDocument& asked) {
  DocumentModuleOptions options;
  if (!of.class_file.empty()) options.class_source = load_source(of.class_file);
  if (!of.problem.empty()) options.problem = one_problem(of.problem);
  options.python = of.python;
  return find_module(asked, options);
}

std::string layers_of(const ExportModule& module) {
  std::vector<std::string> texts;
  for (const std::size_t at : module.chain) texts.push_back(label(module.layers[at].problem));
  return fmt::format("{}", fmt::join(texts, ", then "));
}

// The time of all profiled kernels together; 0 where one has none.
double profiled_us(const RefineDocument& asked) {
  double us = 0;
  for (const KernelMetrics& kernel : asked.metrics) {
    const auto ns = kernel.find("gpu__time_duration.sum");
    if (!ns) return 0;
    us += *ns / 1e3;
  }
  return us;
}

std::string time_text(double us) {
  const Scale time = scale_of_us(us);
  return fmt::format("{} {}", time(us), time.unit);
}

}  // namespace

std::string WholeAnswer::line(const RefineDocument& asked) const {
  try {
    const auto found = module_of(*this, asked);
    if (!found) return {};
    const CudaExport exported = export_cuda(found->module, asked.target);
    double us = 0;
    std::vector<std::string> algorithms;
    for (const auto& [plan, estimated_us] : exported.kernels) {
      us += estimated_us.value_or(0);
      algorithms.push_back(plan.algorithm);
    }
    const double profiled = profiled_us(asked);
    const bool slow = std::any_of(algorithms.begin(), algorithms.end(),
                                  [](const std::string& name) { return name.starts_with(kGeneral); });
    return fmt::format("{} for {} ({}): {}, {} by the model on {}{}",
                       slow ? "no fast kernel of ours" : "a whole kernel of ours", layers_of(found->module),
                       found->note, fmt::join(algorithms, ", then "), time_text(us), asked.target.product,
                       profiled > 0 ? fmt::format(", where {} was profiled", time_text(profiled)) : "") +
           (whole || slow ? "" : "; " + command());
  } catch (const Error& error) {
    return fmt::format("no whole kernel of ours: {}{}", error.what(), hint(error));
  }
}

std::string WholeAnswer::command() const {
  std::string words = "convtune refine --document " + document;
  if (!target.empty()) words += " --target " + target;
  if (!class_file.empty()) words += " --class " + class_file;
  if (!problem.empty()) words += fmt::format(" --problem '{}'", problem);
  return fmt::format(
      "`{} --whole --format cuda -o new.py` writes it; without --format, one in Triton, in the document's "
      "order, "
      "which has no estimate",
      words);
}

std::string WholeAnswer::file(const RefineDocument& asked, const std::string& format) const {
  try {
    const auto found = module_of(*this, asked);
    if (!found) throw bad("its ModelNew has no nn.Conv layer");
    return format == "triton" ? export_triton(found->module) : export_cuda(found->module, asked.target).text;
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}{}", printable(document), error.what(), hint(error)));
  }
}

std::string WholeAnswer::hint(const Error& error) const {
  if (error.kind() != ErrorKind::invalid_argument || !class_file.empty() || !problem.empty()) return {};
  return "; --class FILE or --problem PROBLEM can say more";
}

}  // namespace convtune::cli
