// See version.h.
#include "version.h"

#include <fmt/format.h>

#include "convtune/device.h"

namespace convtune::cli {

std::string version_line() {
  const std::string commit = kCommit;
  return fmt::format("convtune {}{}", CONVTUNE_VERSION, commit.empty() ? "" : " (commit " + commit + ")");
}

std::string version_text() {
  std::string text = fmt::format("{}\ncompiler: {}", version_line(), CONVTUNE_COMPILER);
  for (const Probe& probe : probe_environment())
    for (const char* library : {"oneDNN", "NVIDIA driver", "NVRTC", "cuDNN"})
      if (probe.found && probe.what == library)
        text += fmt::format("\n{}: {}", library, probe.detail.substr(0, probe.detail.find(';')));
  return text;
}

}  // namespace convtune::cli
