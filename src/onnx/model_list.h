// A model's list of convolutions as JSON, which comes from a file of the user's or from the process that read
// one: either is foreign.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "convtune/model.h"

namespace convtune {

// Convolutions and skipped layers of an object. With `skip_refused`, a problem that no convolution here is
// becomes a skipped layer with the reason; else it throws, as everything else that is wrong: Error
// {invalid_argument}.
Model model_of(const nlohmann::json& list, bool skip_refused);

}  // namespace convtune
