// Which config of a Triton list was profiled, or which tile, as far as the grid says: in words.
#pragma once

#include <cstdint>
#include <string>

#include "convtune/refine.h"
#include "profile/known_metrics.h"
#include "triton/triton_file.h"

namespace convtune {

struct ProfiledTile {
  std::string text;        // empty: the grid is not known
  std::int64_t warps = 0;  // of a block; 0: not known; -1: the configs that fit differ in it
  TritonKernel::Loops loops = TritonKernel::Loops::any;
};

// `file`: null for none.
ProfiledTile profiled_tile(const std::string& kernel, const KnownMetrics& metrics,
                           const AnalyzeOptions& options, TritonFile* file);

}  // namespace convtune
