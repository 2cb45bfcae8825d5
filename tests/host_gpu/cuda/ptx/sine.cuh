// The twin of src/cuda/ptx/sine.cuh.
#pragma once

#include <cmath>

namespace convtune::ptx {

inline float sin_approx(float angle) {
  return std::sin(angle);
}

}  // namespace convtune::ptx
