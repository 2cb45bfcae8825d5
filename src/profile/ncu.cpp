// See ncu.h.
#include "profile/ncu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/process.h"
#include "base/quoted.h"
#include "convtune/error.h"
#include "profile/readers.h"

namespace convtune {
namespace {

constexpr const char* kTime = "gpu__time_duration.sum";
}  // namespace

std::string find_ncu() {
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* const folder = std::getenv(variable); folder && *folder)
      folders.push_back(std::string(folder) + "/bin");
  folders.emplace_back("/usr/local/cuda/bin");
  std::string file = find_program("ncu", folders);
  if (file.empty())
    throw Error(
        ErrorKind::unsupported,
        "Nsight Compute's ncu is not on PATH, in $CUDA_HOME/bin or in /usr/local/cuda/bin; it comes with "
        "NVIDIA's CUDA toolkit (without it, analyze and refine take metrics that were measured elsewhere)");
  return file;
}

std::vector<std::string> ncu_command(const std::string& ncu, const std::vector<std::string>& command) {
  // The clocks are left as they are: times are those of ordinary runs, and nothing has to be set back.
  std::vector<std::string> words = {
      ncu,        "--csv",           "--page", "raw",      "--print-units", "base", "--print-kernel-base",
      "function", "--clock-control", "none",   "--metrics"};
  std::string metrics;
  for (const Metric& metric : metric_table())
    if (metric.asked) metrics += fmt::format("{}{}", metrics.empty() ? "" : ",", metric.name);
  words.push_back(metrics);
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

NcuAnswer parse_ncu(std::string_view output) {
  NcuOutput read = read_table(output);
  return {read.profile.read(), std::move(read.messages), std::move(read.others),
          output.find("ERR_NVGPUCTRPERM") != output.npos};
}

const KernelMetrics& launch_of(const std::string& algorithm, const std::vector<KernelMetrics>& launches,
                               std::string& note) {
  const auto time = [](const KernelMetrics& launch) { return launch.find(kTime).value_or(0); };
  std::vector<const KernelMetrics*> own;
  const auto choose = [&](const std::string& kernel) {
    for (const KernelMetrics& launch : launches)
      if (launch.kernel == kernel) own.push_back(&launch);
  };
  choose(algorithm);
  if (own.empty()) {
    const KernelMetrics* longest = nullptr;
    for (const KernelMetrics& launch : launches)
      if (launch.kernel.find("pack") == launch.kernel.npos && (!longest || time(launch) > time(*longest)))
        longest = &launch;
    if (!longest) throw Error(ErrorKind::invalid_argument, "ncu measured no kernel of " + algorithm);
    choose(longest->kernel);
    note = fmt::format("{} has no kernel of its own name: of {} launches the longest is that of {}",
                       algorithm, launches.size(), convtune::quoted(longest->kernel, 200));
  }
  std::sort(own.begin(), own.end(),
            [&](const KernelMetrics* a, const KernelMetrics* b) { return time(*a) < time(*b); });
  return *own[own.size() / 2];
}

}  // namespace convtune
