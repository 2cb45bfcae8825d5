// See tensor_map.h. Enums as in NVIDIA's cuda.h, of which a build has no need.
#include "cuda/launch/tensor_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "cuda/device/driver.h"

namespace convtune::cuda {
namespace {

constexpr int kNone = 0;  // interleave, promotion in L2; zeros outside

int data_type_of(ElementType type) {
  switch (type) {  // CU_TENSOR_MAP_DATA_TYPE_*
    case ElementType::f32:
      return 7;
    case ElementType::f16:
      return 6;
    case ElementType::bf16:
      break;
  }
  return 9;
}
int swizzle_of(Swizzle swizzle) {
  return static_cast<int>(swizzle);  // CU_TENSOR_MAP_SWIZZLE_* have the same order
}

}  // namespace

bool make_tensor_map(int device, const void* data, const TensorMapLayout& layout, TensorMap& map) {
  const Driver& api = driver();
  if (layout.walk ? !api.cuTensorMapEncodeIm2col : !api.cuTensorMapEncodeTiled) return false;
  const DeviceScope scope(device);
  const auto rank = static_cast<std::uint32_t>(layout.extents.size());
  const int type = data_type_of(layout.type), swizzle = swizzle_of(layout.swizzle);
  void* const address = const_cast<void*>(data);
  std::vector<std::uint32_t> every = layout.steps;
  every.resize(layout.extents.size(), 1);
  if (layout.walk) std::copy(layout.walk->strides.begin(), layout.walk->strides.end(), every.begin() + 1);
  const CUresult result =
      layout.walk ? api.cuTensorMapEncodeIm2col(map.opaque.data(), type, rank, address, layout.extents.data(),
                                                layout.strides.data(), layout.walk->first_corner.data(),
                                                layout.walk->last_corner.data(), layout.box[0], layout.box[1],
                                                every.data(), kNone, swizzle, kNone, kNone)
                  : api.cuTensorMapEncodeTiled(map.opaque.data(), type, rank, address, layout.extents.data(),
                                               layout.strides.data(), layout.box.data(), every.data(), kNone,
                                               swizzle, kNone, kNone);
  check(result, "describing a tensor of {} elements, the innermost extent first, for {} of {}",
        fmt::join(layout.extents, "x"), layout.walk ? "walks" : "boxes", fmt::join(layout.box, "x"));
  return true;
}

bool MadeTensorMaps::write(const TensorMapGroup& group, const void* data, TensorMap* to) {
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_)
      if (entry.data == data && entry.group == &group) {
        std::copy(entry.maps.begin(), entry.maps.end(), to);
        return true;
      }
  }
  Entry made{&group, data, std::vector<TensorMap>(group.maps.size())};
  for (std::size_t i = 0; i < group.maps.size(); ++i)
    if (!make_(data, group.maps[i], made.maps[i])) return false;
  std::copy(made.maps.begin(), made.maps.end(), to);
  const std::lock_guard lock(mutex_);
  entries_[oldest_] = std::move(made);
  oldest_ = (oldest_ + 1) % kMost;
  return true;
}

}  // namespace convtune::cuda
