// The twin of src/cuda/ptx/global.cuh.
#pragma once

#include "cuda/ptx/shared.cuh"

namespace convtune::ptx {

// Plain loads of aligned elements, for the sake of `watch`.
template <class Element, int kCount>
inline void ld_global_elements_if(Element (&to)[kCount], const void* from, long long bytes, unsigned wanted) {
  for (Element& element : to) element = 0;
  if (!wanted) return;
  const auto* const at =
      reinterpret_cast<const Element*>(host_gpu::aligned(static_cast<const char*>(from) + bytes, sizeof(to)));
  for (int i = 0; i < kCount; ++i) to[i] = at[i];
}

template <long long kBytes = 0>
inline void ld_global_u16_if(unsigned& to, const void* from, unsigned wanted) {
  unsigned short half[1];
  ld_global_elements_if(half, from, kBytes, wanted);
  to = half[0];
}
template <long long kBytes = 0>
inline void ld_global_if(unsigned& to, const void* from, unsigned wanted) {
  unsigned word[1];
  ld_global_elements_if(word, from, kBytes, wanted);
  to = word[0];
}
template <long long kBytes = 0>
inline void ld_global_v2_if(unsigned (&to)[2], const void* from, unsigned wanted) {
  ld_global_elements_if(to, from, kBytes, wanted);
}
template <long long kBytes = 0>
inline void ld_global_v4_if(unsigned (&to)[4], const void* from, unsigned wanted) {
  ld_global_elements_if(to, from, kBytes, wanted);
}

}  // namespace convtune::ptx
