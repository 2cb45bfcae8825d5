// How much memory this process may use: in a container less than the machine has, and who takes more is
// killed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace convtune::cpu {

// The least limit of the process's control groups, of either version; nothing where there is none.
// `groups` is where they are mounted, `own` the file that says which are this process's.
std::optional<std::int64_t> memory_limit(const std::filesystem::path& groups = "/sys/fs/cgroup",
                                         const std::filesystem::path& own = "/proc/self/cgroup");

}  // namespace convtune::cpu
