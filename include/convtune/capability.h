// A GPU's compute capability: the number by which NVIDIA says what its multiprocessors have and can do.
#pragma once

#include <compare>
#include <string>

#include "convtune/language.h"

namespace convtune {

struct ComputeCapability {
  int major = 0, minor = 0;
  auto operator<=>(const ComputeCapability&) const = default;
};
std::string to_string(ComputeCapability capability);  // "9.0"

}  // namespace convtune
