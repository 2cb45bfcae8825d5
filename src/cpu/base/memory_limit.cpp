// See memory_limit.h.
#include "cpu/base/memory_limit.h"

#include <algorithm>
#include <fstream>

#include "cpu/base/control_groups.h"

namespace convtune::cpu {

std::optional<std::int64_t> memory_limit(const std::filesystem::path& groups,
                                         const std::filesystem::path& own) {
  std::optional<std::int64_t> least;
  for_each_group("memory", groups, own, [&](const std::filesystem::path& folder, int version) {
    std::ifstream limit(folder / (version == 2 ? "memory.max" : "memory.limit_in_bytes"));
    if (std::int64_t bytes = 0; limit >> bytes) least = std::min(bytes, least.value_or(bytes));  // not "max"
  });
  return least;
}

}  // namespace convtune::cpu
