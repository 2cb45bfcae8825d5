// Tells what of a layer stays in a CPU's caches, where the layer before left it and the next one finds it
// (docs/decisions/0083). Plain arithmetic: what measures and what estimates must agree.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convtune/device.h"
#include "convtune/problem.h"

namespace convtune::cpu {

constexpr std::int64_t kCacheLineBytes = 64;  // line of every cache

// A core's first and second cache; what most have, where the system does not say.
constexpr std::int64_t kDefaultL1Bytes = 32 * 1024;
inline std::int64_t l1_bytes_of(const DeviceInfo& info) {
  return info.l1_bytes > 0 ? info.l1_bytes : kDefaultL1Bytes;
}
inline std::int64_t l2_bytes_of(const DeviceInfo& info) {
  return info.l2_bytes > 0 ? info.l2_bytes : 512 * 1024;
}

// True where tensors of `bytes` bytes stay cached: in half of the last cache, and in 16 MiB at most, since a
// virtual machine reports the cache of a whole server.
inline bool caches_keep(double bytes, const DeviceInfo& info) {
  constexpr double kMost = 16.0 * 1024 * 1024;
  const double last = static_cast<double>(std::max(info.l3_bytes, l2_bytes_of(info) * info.units));
  return bytes <= std::min(last / 2, kMost);
}

// True where a problem's inputs and outputs stay cached. Weights are a layer's own.
inline bool caches_keep(const ConvProblem& a, const DeviceInfo& info) {
  const double outputs = static_cast<double>(size_of(a.dtype.y)) * static_cast<double>(a.output_elements());
  const double inputs = static_cast<double>(size_of(a.dtype.x)) * static_cast<double>(a.input_elements());
  const double residual =
      a.residual ? static_cast<double>(size_of(a.result_type())) * static_cast<double>(a.result_elements())
                 : 0;
  return caches_keep(inputs + outputs + residual, info);
}

// Tells whether planes of f32 that are read where they lie, a line of each channel in turn, meet: a multiple
// of a page apart they have those lines in one set of the first cache and in few of the second.
inline bool planes_meet(const ConvProblem& a) {
  constexpr std::int64_t kWayBytes = 4096, kManyChannels = 64;
  return 4 * a.h * a.w % kWayBytes == 0 && a.c / a.groups > kManyChannels;
}

}  // namespace convtune::cpu
