// See meeting_stores.h; the kernel taken apart of docs/decisions/0084.
#include "cpu/model/meeting_stores.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/fork_gate.h"
#include "cpu/base/caches.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"

namespace convtune::cpu {
namespace {

constexpr int kTaps = 27, kPlanes = 6, kVectors = 2;
constexpr std::int64_t kLineFloats = kCacheLineBytes / static_cast<std::int64_t>(sizeof(float)),
                       kPageFloats = 1024;
constexpr std::int64_t kTiles = 256;                       // tiles, of one row of each plane
constexpr std::int64_t kPlane = 4 * kPageFloats;           // floats, of the tiles' lines
constexpr std::int64_t kApart = kPlane + 8 * kLineFloats;  // lines of all planes at other places

struct Aligned {
  alignas(4096) std::array<float, kPlanes * kApart> y;
  alignas(4096) std::array<float, 2 * kPageFloats> window, weights;
};

// Microseconds of a row of register tiles whose planes are `plane` floats apart.
double row_us(const DirectKernels& kernels, TileKernel kernel, std::int64_t plane, Aligned& memory) {
  std::array<std::int32_t, kTaps> taps;
  for (std::int32_t t = 0; t < kTaps; ++t) taps[static_cast<std::size_t>(t)] = 16 * t;
  const auto begun = std::chrono::steady_clock::now();
  for (std::int64_t tile = 0; tile < kTiles; ++tile)
    kernel({.window = memory.window.data() + tile % 64 * kLineFloats,
            .taps = taps.data(),
            .tap_count = kTaps,
            .weights = memory.weights.data(),
            .acc = nullptr,
            .acc_stride = 0,
            .y = memory.y.data() + tile * kLineFloats,
            .y_stride = plane,
            .y_channels = kPlanes,
            .count = kLineFloats,
            .bias = memory.weights.data(),
            .stream = true});
  kernels.fence();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count();
}

bool measure() {
  constexpr int kBits = 256;  // two vectors are a line
  const bool runs_here = std::ranges::any_of(instruction_sets(), [](const InstructionSet& set) {
    return set.compiled && set.vector_bits == kBits && set.runs_here();
  });
  const DirectKernels* const kernels = runs_here ? direct_kernels(kBits) : nullptr;
  const TileShape* const tile = kernels ? find_tile(kernels->tiles, kPlanes, kVectors) : nullptr;
  if (tile == nullptr) return false;
  const auto memory = std::make_unique<Aligned>();
  // Lines that meet take 1.37 times as long on a Zen 3, and no longer on an Emerald Rapids and a Zen 5.
  constexpr double kLonger = 1.15;
  constexpr int kRepeats = 25;
  double together = 1e9, apart = 1e9;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    apart = std::min(apart, row_us(*kernels, tile->kernels[kVectors - 1], kApart, *memory));
    together = std::min(together, row_us(*kernels, tile->kernels[kVectors - 1], kPlane, *memory));
  }
  return together > kLonger * apart;
}

}  // namespace

bool meeting_stores_wait() {
  return once([] { return measure(); });
}

}  // namespace convtune::cpu
