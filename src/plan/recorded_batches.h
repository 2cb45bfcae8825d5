// At which batch sizes a folder has records of a layer: by the names of its files, without opening any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convtune/database.h"

namespace convtune {

// Other batch sizes of this layer at which the folder has a file for this device, nearest first. What is in
// a file is for its reader to judge, and it may be gone by then.
std::vector<std::int64_t> recorded_batches(const Database& database, const ConvProblem& problem,
                                           const std::string& device);

}  // namespace convtune
