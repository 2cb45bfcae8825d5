// The twin of src/cuda/ptx/sine.cuh.
#pragma once

namespace convtune::ptx {

inline float sin_approx(float angle) {
  return sinf(angle);
}

}  // namespace convtune::ptx
