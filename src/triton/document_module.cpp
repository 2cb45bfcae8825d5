// find_module(): the layers of a document's code as problems, with the profiled grid as a check.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "convtune/error.h"
#include "convtune/export.h"
#include "convtune/refine.h"
#include "triton/refine_choice.h"
#include "triton/triton_file.h"

namespace convtune {
namespace {

enum class GridSays { nothing, fits, differs };

// Asks whether a config of each profiled kernel launches its grid for the problem.
GridSays ask_grids(TritonFile& file, const std::vector<KernelMetrics>& metrics, const ConvProblem& problem) {
  GridSays says = GridSays::nothing;
  for (const TritonKernel& kernel : file.kernels()) {
    const KernelMetrics* const measured = metrics_of(kernel, metrics);
    const auto profiled = measured ? measured->find("launch__grid_size") : std::nullopt;
    if (!profiled) continue;
    std::string why;
    bool any = false, is_whole = true, fits = false;
    for (const std::vector<TritonGrid>& launch : file.grids(kernel, {problem, {}}, why))
      for (const TritonGrid& grid : launch)
        any = true, is_whole &= grid.is_whole, fits |= grid.fits(static_cast<std::int64_t>(*profiled));
    if (!any || !why.empty() || (fits && !is_whole)) continue;
    if (!fits) return GridSays::differs;
    says = GridSays::fits;
  }
  return says;
}

std::string_view in_words(GridSays says) {
  return says == GridSays::fits      ? "the profiled grid is one that its configs launch for it"
         : says == GridSays::differs ? "but none of its configs launches the profiled grid for it"
                                     : "its grid could not be worked out as a check";
}

}  // namespace

std::optional<DocumentModule> find_module(const RefineDocument& document,
                                          const DocumentModuleOptions& options) {
  const bool has_class = options.class_source.has_value();
  ReadModuleOptions reading{has_class ? "Model" : "ModelNew", !has_class, options.problem, options.python};
  const std::string& source = has_class ? *options.class_source : document.source;
  TritonFile file(document.source, {}, document.target, options.python);

  // Sizes that nobody gave: of the one built-in case with such a layer whose grid was profiled.
  std::vector<std::pair<ConvProblem, GridSays>> cases;
  if (!has_class && !options.problem)
    for (const ConvProblem& known : file.cases())
      if (const GridSays says = ask_grids(file, document.metrics, known); says != GridSays::differs)
        cases.emplace_back(known, says);
  if (cases.size() == 1) reading.problem = cases[0].first;
  if (!has_class && !options.problem && cases.empty() && !file.cases().empty())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("the code is not {}: none of its configs launches the grid that was profiled",
                            file.cases()[0].name));

  auto module = read_module(source, reading);
  if (!module) return std::nullopt;
  DocumentModule found{*std::move(module), {}};
  const std::string taken = has_class         ? "as the class file has it"
                            : options.problem ? "as the given problem has it"
                            : reading.problem ? "as the case " + cases[0].first.name
                                              : "as its get_inputs() has it";
  GridSays says = GridSays::nothing;
  if (found.module.layers.size() == 1)
    says = ask_grids(file, document.metrics, found.module.layers[0].problem);
  found.note = fmt::format("{}; {}", taken, in_words(says));
  return found;
}

}  // namespace convtune
