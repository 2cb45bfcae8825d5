// The field kMostImages of a config, for kernel_algorithm.h.
#include "contract/most_images.h"

#include "cuda/launch/kernel_algorithm.h"

namespace convtune::cuda {
namespace {

constexpr std::int64_t kMostPlannedImages = 1 << 20;

}  // namespace

int most_images(const Config& config) {
  for (const auto& [name, value] : config.values)
    if (name == kMostImages && value > 0 && value <= kMostPlannedImages) return static_cast<int>(value);
  return 0;
}

Config without_most_images(Config config) {
  if (most_images(config) > 0)
    std::erase_if(config.values, [](const auto& field) { return field.first == kMostImages; });
  return config;
}

}  // namespace convtune::cuda
