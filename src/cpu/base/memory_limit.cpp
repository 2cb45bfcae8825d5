// See memory_limit.h.
#include "cpu/base/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace convtune::cpu {

std::optional<std::int64_t> memory_limit(const std::filesystem::path& groups,
                                         const std::filesystem::path& own) {
  std::optional<std::int64_t> least;
  std::ifstream file(own);
  // "0::/path" of version 2, "4:memory:/path" of version 1.
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(",memory,") == controllers.npos) continue;
    const std::filesystem::path root = version_2 ? groups : groups / "memory";
    // A limit holds for all groups below. Inside a container the path may be the host's, and not be there.
    std::filesystem::path below = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (bool more = true; more; below = below.parent_path()) {
      more = !below.empty();
      std::ifstream limit(root / below / (version_2 ? "memory.max" : "memory.limit_in_bytes"));
      if (std::int64_t bytes = 0; limit >> bytes)
        least = std::min(bytes, least.value_or(bytes));  // not "max"
    }
  }
  return least;
}

}  // namespace convtune::cpu
