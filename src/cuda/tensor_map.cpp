// See tensor_map.h. Enums as in NVIDIA's cuda.h, of which a build has no need.
#include "cuda/tensor_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cuda/argument_text.h"
#include "cuda/driver.h"
#include "cuda/rehearsal.h"

namespace convtune::cuda {
namespace {

constexpr int kFloat32 = 7;  // CU_TENSOR_MAP_DATA_TYPE_FLOAT32
constexpr int kNone = 0;     // interleave, swizzle, promotion in L2; zeros outside
constexpr int kSwizzle128Bytes = 3;

}  // namespace

std::string to_cuda(const TensorMap& map) {
  if (map.opaque[0] == 0) return "convtune::ptx::TensorMap{}";
  return Rehearsal::current()->tensor_maps.at(map.opaque[0] - 1);
}

std::optional<TensorMap> tensor_map(int device, const void* data, const std::vector<std::uint64_t>& extents,
                                    const std::vector<std::uint64_t>& strides,
                                    const std::vector<std::uint32_t>& box, Swizzle swizzle) {
  TensorMap map;
  if (Rehearsal* const rehearsal = Rehearsal::current()) {
    rehearsal->tensor_maps.push_back(fmt::format(
        "tensor_map({}, {{{}}}, {{{}}}, {{{}}}{})", argument_text(static_cast<const float*>(data)),
        fmt::join(extents, ", "), fmt::join(strides, ", "), fmt::join(box, ", "),
        swizzle == Swizzle::none ? "" : ", CU_TENSOR_MAP_SWIZZLE_128B"));
    map.opaque[0] = rehearsal->tensor_maps.size();
    return map;
  }
  const auto encode = driver().cuTensorMapEncodeTiled;
  if (!encode) return std::nullopt;
  const DeviceScope scope(device);
  const std::vector<std::uint32_t> every(extents.size(), 1);
  check(encode(map.opaque.data(), kFloat32, static_cast<std::uint32_t>(extents.size()),
               const_cast<void*>(data), extents.data(), strides.data(), box.data(), every.data(), kNone,
               swizzle == Swizzle::none ? kNone : kSwizzle128Bytes, kNone, kNone),
        "describing a tensor of {} floats, the innermost extent first, for boxes of {}",
        fmt::join(extents, "x"), fmt::join(box, "x"));
  return map;
}

}  // namespace convtune::cuda
