// What of a layer stays in a CPU's caches, where the layer before left it and the next one finds it
// (docs/decisions/0083). Plain arithmetic: what measures and what estimates must agree.
#pragma once

#include <algorithm>

#include "convtune/device.h"
#include "convtune/problem.h"

namespace convtune::cpu {

// Whether tensors of so many bytes stay: in half of the last cache, and in 16 MiB at most, since a virtual
// machine reports the cache of a whole server.
inline bool caches_keep(double bytes, const DeviceInfo& info) {
  constexpr double kMost = 16.0 * 1024 * 1024;
  const double last = static_cast<double>(std::max(info.l3_bytes, info.l2_bytes * info.units));
  return bytes <= std::min(last / 2, kMost);
}

// The same of a problem's inputs and outputs. Weights are a layer's own.
inline bool caches_keep(const ConvProblem& a, const DeviceInfo& info) {
  const double outputs = static_cast<double>(size_of(a.dtype.y)) * static_cast<double>(a.output_elements());
  const double inputs = static_cast<double>(size_of(a.dtype.x)) * static_cast<double>(a.input_elements());
  return caches_keep(inputs + (a.residual ? 2 : 1) * outputs, info);
}

}  // namespace convtune::cpu
