// See tensor_map.h. Enums as in NVIDIA's cuda.h, of which a build has no need.
#include "cuda/launch/tensor_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "cuda/device/driver.h"

namespace convtune::cuda {
namespace {

constexpr int kFloat32 = 7;  // CU_TENSOR_MAP_DATA_TYPE_FLOAT32
constexpr int kNone = 0;     // interleave, swizzle, promotion in L2; zeros outside
constexpr int kSwizzle128Bytes = 3;

}  // namespace

bool make_tensor_map(int device, const void* data, const TensorMapLayout& layout, TensorMap& map) {
  const auto encode = driver().cuTensorMapEncodeTiled;
  if (!encode) return false;
  const DeviceScope scope(device);
  const std::vector<std::uint32_t> every(layout.extents.size(), 1);
  check(encode(map.opaque.data(), kFloat32, static_cast<std::uint32_t>(layout.extents.size()),
               const_cast<void*>(data), layout.extents.data(), layout.strides.data(), layout.box.data(),
               every.data(), kNone, layout.swizzle == Swizzle::none ? kNone : kSwizzle128Bytes, kNone, kNone),
        "describing a tensor of {} floats, the innermost extent first, for boxes of {}",
        fmt::join(layout.extents, "x"), fmt::join(layout.box, "x"));
  return true;
}

}  // namespace convtune::cuda
