// A field that the config of a GPU's kernel may have behind its own: compiled for that batch, it runs every
// smaller one, too. Not all kernels can.
#pragma once

#include <string_view>

namespace convtune {

inline constexpr std::string_view kMostImages = "most_images";

}  // namespace convtune
