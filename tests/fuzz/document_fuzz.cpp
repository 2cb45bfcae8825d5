// A document, whatever it holds: a target, a stage and a source that are fit to use, or
// Error{invalid_argument}.
#include <cstdlib>

#include "convtune/error.h"
#include "convtune/refine.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    const convtune::RefineDocument document =
        convtune::parse_document({reinterpret_cast<const char*>(data), size});
    const convtune::RefineStage& stage = document.stage;
    const bool changes =
        stage.kind == convtune::RefineStage::Kind::last || stage.kind == convtune::RefineStage::Kind::memory;
    if (document.source.empty() || changes == (stage.warps.empty() && stage.stages.empty())) std::abort();
    if (stage.fewest < 1 || stage.most < stage.fewest || stage.min_gain < 0.01) std::abort();
    if (document.target.multiprocessors < 1 || document.target.warps_per_multiprocessor < 1) std::abort();
  } catch (const convtune::Error& error) {
    if (error.kind() != convtune::ErrorKind::invalid_argument) std::abort();
  }
  return 0;
}
