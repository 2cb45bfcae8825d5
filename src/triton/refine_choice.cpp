#include "triton/refine_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/quoted.h"
#include "convtune/error.h"
#include "triton/refine_original.h"

namespace convtune {
namespace {

constexpr std::size_t kShownKernels = 12;  // names of a message

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::invalid_argument, message);
}

// Names a kernel with its line, which tells it from others of its name.
std::string place_of(const TritonKernel& kernel) {
  return fmt::format("{}:{}", kernel.name, kernel.line);
}

std::string names_of(const TritonFile& file) {
  std::string names;
  std::size_t shown = 0;
  for (const TritonKernel& kernel : file.kernels())
    if (++shown <= kShownKernels)
      names += (names.empty() ? "" : ", ") + convtune::quoted(place_of(kernel), 200);
  return shown > kShownKernels ? names + fmt::format(" and {} more", shown - kShownKernels) : names;
}

bool same_name(const std::vector<const TritonKernel*>& kernels) {
  for (const TritonKernel* a : kernels)
    for (const TritonKernel* b : kernels)
      if (a < b && a->name == b->name) return true;
  return false;
}

}  // namespace

const KernelMetrics* metrics_of(const TritonKernel& kernel, const std::vector<KernelMetrics>& metrics) {
  for (const KernelMetrics& one : metrics)
    if (is_kernel_name(one.kernel, kernel.name)) return &one;
  return nullptr;
}

std::vector<const TritonKernel*> chosen_kernels(const TritonFile& file,
                                                const std::vector<KernelMetrics>& metrics,
                                                const RefineOptions& options) {
  const std::string& asked = options.kernel;
  if (file.kernels().empty())
    refuse(
        fmt::format("line 1: the file has no kernel with an @triton.autotune list, and none that it launches "
                    "by its name{}{}",
                    file.other().empty() ? "" : "; it has kernels in ", file.other()));
  std::vector<const TritonKernel*> found;
  for (const TritonKernel& kernel : file.kernels())
    if (!asked.empty() ? asked == kernel.name || asked == place_of(kernel)
                       : metrics.empty() || metrics_of(kernel, metrics))
      found.push_back(&kernel);
  const std::string names = names_of(file);
  if (!asked.empty() && found.empty())
    refuse(fmt::format("--kernel {} is none of the file's: {}", convtune::quoted(asked, 200), names));
  if (found.empty()) {
    std::string of;
    for (const KernelMetrics& one : metrics) of += (of.empty() ? "" : ", ") + convtune::quoted(one.kernel);
    refuse(fmt::format("the metrics hold nothing of the file's kernels {}; they are of {}", names, of));
  }
  // Without a list only where nothing with one is meant.
  if (asked.empty() && metrics.empty() &&
      std::any_of(found.begin(), found.end(), [](const TritonKernel* kernel) { return kernel->listed; }))
    std::erase_if(found, [](const TritonKernel* kernel) { return !kernel->listed; });
  using Kind = RefineStage::Kind;  // rules of which change no list
  if (options.stage.kind == Kind::grid || options.stage.kind == Kind::tiles) return found;
  if (found.size() > 1 && (metrics.empty() || same_name(found) ||
                           (!options.original.empty() && options.several != RefineOptions::Several::first)))
    refuse(fmt::format("{} kernels are meant: name one with --kernel, as in --kernel {}; there are {}",
                       found.size(), place_of(*found[0]), names));
  return found;
}

}  // namespace convtune
