// See control_groups.h.
#include "cpu/base/control_groups.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

namespace convtune::cpu {

void for_each_group(const char* controller, const std::filesystem::path& groups,
                    const std::filesystem::path& own,
                    const std::function<void(const std::filesystem::path& folder, int version)>& visit) {
  std::ifstream file(own);
  // "0::/path" of version 2, "4:memory:/path" of version 1.
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const int version = controllers == ",," ? 2 : 1;
    if (version == 1 && controllers.find(fmt::format(",{},", controller)) == controllers.npos) continue;
    const std::filesystem::path root = version == 2 ? groups : groups / controller;
    std::filesystem::path below = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (bool more = true; more; below = below.parent_path()) {
      more = !below.empty();
      visit(root / below, version);
    }
  }
}

}  // namespace convtune::cpu
