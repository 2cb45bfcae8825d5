// The twin of src/cuda/ptx/gather.cuh.
#pragma once

#include "cuda/ptx/sm80.cuh"

namespace convtune::ptx {

template <int kSize, int kFirst, int kTo, int kFrom>
inline void cp_async_four(unsigned to, const float* from, unsigned bytes) {
  for (int i = kFirst; i < kFirst + 4; ++i)
    host_gpu::cp_async(to + static_cast<unsigned>(kTo * i), bytes_behind(from, 1LL * kFrom * i), kSize,
                       bytes);
}

struct GatheredFrom {
  int height, width;
  const float* from;
  int row, column;
};
template <int kSize>
inline void gather_one(const GatheredFrom& a, const int4& entry, unsigned to) {
  const bool inside = static_cast<unsigned>(entry.z + a.row) < static_cast<unsigned>(a.height) &&
                      static_cast<unsigned>(entry.w + a.column) < static_cast<unsigned>(a.width);
  const long long offset = static_cast<long long>(entry.y) << 32 | static_cast<unsigned>(entry.x);
  host_gpu::cp_async(to, bytes_behind(a.from, 4 * offset), kSize, inside ? kSize : 0);
}
template <int kCount, int kSize, int kEntry, int kTo>
inline void cp_async_gather(int height, int width, unsigned table, unsigned to, const float* from, int row,
                            int column) {
  for (unsigned i = 0; i < kCount; ++i)
    gather_one<kSize>({height, width, from, row, column}, host_gpu::load<int4>(table + i * kEntry),
                      to + i * kTo);
}
template <int kCount, int kSize, int kEntry, int kTo>
inline void cp_async_gather(int height, int width, const int4* table, unsigned to, const float* from, int row,
                            int column) {
  for (unsigned i = 0; i < kCount; ++i)
    gather_one<kSize>({height, width, from, row, column}, table[i * (kEntry / 16)], to + i * kTo);
}
template <int kCount, int kSize, int kEntry, int kTo>
inline void cp_async_gather(int height, int width, const int4* table, unsigned to, const float* from, int row,
                            int column, unsigned to_other, const float* from_other, int row_other,
                            int column_other) {
  cp_async_gather<kCount, kSize, kEntry, kTo>(height, width, table, to, from, row, column);
  cp_async_gather<kCount, kSize, kEntry, kTo>(height, width, table, to_other, from_other, row_other,
                                              column_other);
}
template <int kCount, int kSize, int kEntry, int kTo>
inline void cp_async_gather_frames(int frames, int height, int width, const int4* table, unsigned to,
                                   const float* from, int frame, int row, int column) {
  for (unsigned i = 0; i < kCount; ++i) {
    const int4 entry = table[i * (kEntry / 16)];
    const bool is_frame = static_cast<unsigned>(entry.y + frame) < static_cast<unsigned>(frames);
    gather_one<kSize>({is_frame ? height : 0, width, from, row, column},
                      {entry.x, entry.x < 0 ? -1 : 0, entry.z, entry.w}, to + i * kTo);
  }
}
template <int kCount, int kSize, int kEntry, int kTo>
inline void cp_async_gather_frames(int frames, int height, int width, const int4* table, unsigned to,
                                   const float* from, int frame, int row, int column, unsigned to_other,
                                   const float* from_other, int frame_other, int row_other,
                                   int column_other) {
  cp_async_gather_frames<kCount, kSize, kEntry, kTo>(frames, height, width, table, to, from, frame, row,
                                                     column);
  cp_async_gather_frames<kCount, kSize, kEntry, kTo>(frames, height, width, table, to_other, from_other,
                                                     frame_other, row_other, column_other);
}

}  // namespace convtune::ptx
