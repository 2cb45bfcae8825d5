// The twin of src/cuda/ptx/shared.cuh.
#pragma once

namespace convtune::ptx {

inline unsigned shared_address(const void* pointer) {
  const auto offset = static_cast<const unsigned char*>(pointer) - host_gpu_window;
  if (offset < 0 || offset >= 16 * static_cast<long>(host_gpu::kWindow))
    host_gpu::fail("%p is no address of shared memory", pointer);
  return static_cast<unsigned>(offset);
}

inline unsigned ld_shared(unsigned from) {
  return host_gpu::load<unsigned>(from);
}
inline unsigned ld_shared_u16(unsigned from) {
  return host_gpu::load<unsigned short>(from);
}
inline void ld_shared(float& to, unsigned from) {
  to = host_gpu::load<float>(from);
}
inline void ld_shared_v2(float& a, float& b, unsigned from) {
  const auto v = host_gpu::load<float2>(from);
  a = v.x, b = v.y;
}
inline void ld_shared_v2(int& a, int& b, unsigned from) {
  const auto v = host_gpu::load<int2>(from);
  a = v.x, b = v.y;
}
inline void ld_shared_v2(unsigned& a, unsigned& b, unsigned from) {
  const auto v = host_gpu::load<uint2>(from);
  a = v.x, b = v.y;
}
inline void ld_shared_v4(float& a, float& b, float& c, float& d, unsigned from) {
  const auto v = host_gpu::load<float4>(from);
  a = v.x, b = v.y, c = v.z, d = v.w;
}
inline void ld_shared_v4(unsigned (&to)[4], unsigned from) {
  const auto v = host_gpu::load_operand<uint4>(from);
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
inline unsigned ld_shared_if(unsigned from, bool loads) {
  return loads ? host_gpu::load_operand<unsigned>(from) : 0;
}
inline void ld_shared_v4_if(unsigned* to, unsigned from, bool loads) {
  const auto v = loads ? host_gpu::load<uint4>(from) : uint4{};
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

inline void st_shared(unsigned to, unsigned value) {
  host_gpu::store(to, value);
}
inline void st_shared_u16(unsigned to, unsigned value) {
  host_gpu::store(to, static_cast<unsigned short>(value));
}
inline void st_shared(unsigned to, float value) {
  host_gpu::store(to, value);
}
inline void st_shared_if(unsigned to, unsigned value, bool stores) {
  if (stores) host_gpu::store(to, value);
}
inline void st_shared_v2(unsigned to, float a, float b) {
  host_gpu::store(to, float2{a, b});
}
inline void st_shared_v4(unsigned to, const float (&values)[4]) {
  host_gpu::store(to, float4{values[0], values[1], values[2], values[3]});
}
inline void st_shared_v4(unsigned to, const unsigned (&values)[4]) {
  host_gpu::store(to, uint4{values[0], values[1], values[2], values[3]});
}

inline void red_shared_min(unsigned to, int value) {
  host_gpu::atomic_min(to, value);
}
inline void red_shared_max(unsigned to, int value) {
  host_gpu::atomic_max(to, value);
}

}  // namespace convtune::ptx
