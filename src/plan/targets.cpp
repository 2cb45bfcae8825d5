// find_target(): a built-in target, a target file, or a GPU of this machine.
#include <fmt/format.h>

#include "base/named_file.h"
#include "base/quoted.h"
#include "convtune/error.h"
#include "convtune/spelling.h"
#include "cuda/backend/cuda.h"
#include "model/target_of.h"

namespace convtune {

Target find_target(const std::string& name) {
  if (const auto target = known_target(name)) return *target;
  if (name.ends_with(".json")) {
    const std::string text = read_named_file(name);
    try {
      return parse_target(text);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", convtune::quoted(name, 200), error.what()));
    }
  }
  if (name.starts_with("cuda")) return cuda::device_target(device_info(parse_device(name)).device);
  std::vector<std::string> names;
  for (const Target& target : known_targets()) names.push_back(target.name);
  const std::string meant = did_you_mean(name, names);
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("there is no target {}{}{}; there are {}, cuda:N of this machine, and files that end in "
                  ".json (`convtune devices --target rtx4090 --json -` writes one)",
                  convtune::quoted(name), meant.empty() ? "" : "; ", meant, fmt::join(names, ", ")));
}

}  // namespace convtune
