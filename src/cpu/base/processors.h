// How many processors this process may really use: fewer than the machine has, in a container.
#pragma once

#include <filesystem>
#include <optional>

namespace convtune::cpu {

// That this process's threads may run on (taskset, a container's set), and no more than the processor time
// that its control groups grant a second, rounded up (`docker run --cpus`).
int usable_processors();

// The least quota of the process's control groups, of either version, in processors; nothing where there is
// none. Arguments as of memory_limit().
std::optional<double> processor_quota(const std::filesystem::path& groups = "/sys/fs/cgroup",
                                      const std::filesystem::path& own = "/proc/self/cgroup");

}  // namespace convtune::cpu
