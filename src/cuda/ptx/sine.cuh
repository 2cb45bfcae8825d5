// The sine of small angles.
#pragma once

namespace convtune::ptx {

// To 2^-20 between -pi and pi; beyond, its error grows with the angle.
__device__ inline float sin_approx(float angle) {
  float sine;
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(sine) : "f"(angle));
  return sine;
}

}  // namespace convtune::ptx
