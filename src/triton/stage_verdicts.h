// Verdicts for stages that change no list: on the grid, from the profile; on block sizes, from what the
// compiler makes of them. They are estimates, say so, and are never written into a file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profile/known_metrics.h"
#include "triton/refine_compiled.h"

namespace convtune {

// A sentence that says if the grid leaves multiprocessors idle, by the blocks that run at once. `warps` of a
// block, where they are known.
std::string grid_verdict(const KnownMetrics& known, std::optional<std::int64_t> warps, const Target& target);

// Tiles to rank: those of the list, or round its only one those with one side doubled or halved.
std::vector<TritonConfig> tiles_to_rank(const TritonKernel& kernel);

// A tile with its facts, as far as they are known.
struct TileFacts {
  TritonConfig config;
  std::optional<CompiledConfig> made;
  std::optional<TritonGrid> grid;  // for its launch
};
// A sentence on how they are ranked and a line for each, the best first.
std::vector<std::string> tile_verdicts(std::vector<TileFacts> tiles, const Target& target);

}  // namespace convtune
