// See tensor_map.h. Enums as in NVIDIA's cuda.h, of which a build has no need.
#include "cuda/tensor_map.h"

#include "cuda/driver.h"
#include "cuda/rehearsal.h"

namespace convtune::cuda {
namespace {

constexpr int kFloat32 = 7;  // CU_TENSOR_MAP_DATA_TYPE_FLOAT32
constexpr int kNone = 0;     // interleave, swizzle, promotion in L2; zeros outside

}  // namespace

std::optional<TensorMap> tensor_map(int device, const void* data, const std::array<std::uint64_t, 3>& extents,
                                    const std::array<std::uint64_t, 2>& strides,
                                    const std::array<std::uint32_t, 3>& box) {
  TensorMap map;
  if (Rehearsal::current()) return map;
  const auto encode = driver().cuTensorMapEncodeTiled;
  if (!encode) return std::nullopt;
  const DeviceScope scope(device);
  const std::array<std::uint32_t, 3> every{1, 1, 1};
  check(encode(map.opaque.data(), kFloat32, 3, const_cast<void*>(data), extents.data(), strides.data(),
               box.data(), every.data(), kNone, kNone, kNone, kNone),
        "describing a tensor of {}x{}x{} floats for boxes of {}x{}x{}", extents[2], extents[1], extents[0],
        box[2], box[1], box[0]);
  return map;
}

}  // namespace convtune::cuda
