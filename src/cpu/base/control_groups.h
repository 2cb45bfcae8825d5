// The control groups that this process is in, of either version: they limit its memory and its processors.
#pragma once

#include <filesystem>
#include <functional>

namespace convtune::cpu {

// Calls visit(folder, version) for each group of the process that has the controller ("memory"), the groups
// above it included: their limits hold as well. `groups` is where they are mounted, `own` the file that says
// which are this process's. A folder need not be there: inside a container the path may be the host's.
void for_each_group(const char* controller, const std::filesystem::path& groups,
                    const std::filesystem::path& own,
                    const std::function<void(const std::filesystem::path& folder, int version)>& visit);

}  // namespace convtune::cpu
