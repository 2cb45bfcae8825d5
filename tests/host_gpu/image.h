// Machine code of the stand-ins for NVRTC and the driver: a shared object behind 16 bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace host_gpu {

inline constexpr std::string_view kImageMark = "hostcode";

inline std::string image_of(std::string_view object) {
  const std::uint64_t bytes = object.size();
  std::string image(kImageMark);
  image.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(object);
  return image;
}
// Nothing where it is not one.
inline std::string_view object_of(const void* image) {
  const char* const begin = static_cast<const char*>(image);
  if (std::memcmp(begin, kImageMark.data(), kImageMark.size()) != 0) return {};
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, begin + kImageMark.size(), sizeof bytes);
  return {begin + kImageMark.size() + sizeof bytes, bytes};
}

}  // namespace host_gpu
