// Tensor maps: how TMA is told of a tensor (ptx/sm90.cuh).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/fork_gate.h"
#include "cuda/launch/launch_plan.h"

namespace convtune::cuda {

struct alignas(64) TensorMap {
  std::array<std::uint64_t, 16> opaque;
};

// Describes the elements at `data`, a multiple of 16 bytes. False where the driver makes no tensor maps.
// Throws Error where it refuses this one.
bool make_tensor_map(int device, const void* data, const TensorMapLayout& layout, TensorMap& map);

// The maps of the groups of one plan, by where their tensors began in the last runs: the driver is asked only
// where a tensor has moved. A map is no more than its layout and that address.
class MadeTensorMaps {
 public:
  using Make = std::function<bool(const void* data, const TensorMapLayout& layout, TensorMap& map)>;
  explicit MadeTensorMaps(Make make) : make_(std::move(make)) {}

  // Writes the maps of a group, which is the same object in every call, at `to`. From any thread. False, and
  // nothing is kept, where `make` says so; throws what it throws.
  bool write(const TensorMapGroup& group, const void* data, TensorMap* to);

  static constexpr std::size_t kMost = 32;  // some four tensors, each at some eight places in turn

 private:
  struct Entry {
    const TensorMapGroup* group = nullptr;
    const void* data = nullptr;
    std::vector<TensorMap> maps;
  };
  const Make make_;
  Mutex mutex_;
  std::array<Entry, kMost> entries_;
  std::size_t oldest_ = 0;
};

}  // namespace convtune::cuda
