// What the kernels of our algorithms do, counted: for the model that estimates times (time_model.h).
#pragma once

#include <optional>
#include <string_view>

#include "convtune/convolution.h"
#include "cuda/kernels/direct_depthwise_sm80.h"
#include "cuda/kernels/direct_stem_sm80.h"
#include "time_model.h"

namespace convtune::cuda {

// For a config that the algorithm accepts; nothing for an algorithm that is not counted.
std::optional<TileWork> tile_work(std::string_view algorithm, const Conv2dProblem& problem,
                                  const Config& config);

// The same for those that rank their candidates by the model; `wavefronts` as direct_stem_sm80_wavefronts()
// counts.
TileWork tile_work(const DirectDepthwiseSm80& kernel);
TileWork tile_work(const DirectStemSm80& kernel, double wavefronts);

}  // namespace convtune::cuda
