// The twin of src/cuda/ptx/sm90.cuh.
#pragma once

#include "cuda/ptx/sm80.cuh"

namespace convtune::ptx {

inline unsigned cvt_rn_tf32(float value) {
  if (__builtin_isnan(value)) return 0x7fffffff;
  const unsigned bits = __float_as_uint(value);
  return __builtin_isinf(value) ? bits : (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
}

inline void mbarrier_init(unsigned barrier, unsigned arrivals) {
  host_gpu::mbarrier_init(barrier, arrivals);
}
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive(unsigned barrier) {
  host_gpu::mbarrier_arrive(barrier);
}
inline void mbarrier_wait(unsigned barrier, unsigned parity) {
  host_gpu::mbarrier_wait(barrier, parity);
}
inline void cp_async_mbarrier_arrive(unsigned barrier) {
  host_gpu::cp_async_arrive(barrier);
}
inline void mbarrier_arrive_if(unsigned barrier, bool arrives) {
  if (arrives) host_gpu::mbarrier_arrive(barrier);
}
inline void mbarrier_arrive_expect(unsigned barrier, unsigned bytes) {
  host_gpu::mbarrier_arrive(barrier, bytes);
}
inline void mbarrier_arrive_expect_if(unsigned barrier, unsigned bytes, bool arrives) {
  if (arrives) host_gpu::mbarrier_arrive(barrier, bytes);
}

inline void bulk_copy_to_shared(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  host_gpu::bulk_load(to, from, bytes, barrier);
}
inline void bulk_copy_to_shared_if(unsigned to, const void* from, unsigned bytes, unsigned barrier,
                                   bool copies) {
  if (copies) host_gpu::bulk_load(to, from, bytes, barrier);
}
inline void prefetch_l2_if(const void*, unsigned, bool) {}
inline void bulk_copy_to_global(void* to, unsigned from, unsigned bytes) {
  host_gpu::bulk_store(to, from, bytes);
}
inline void bulk_commit_group() {
  host_gpu::bulk_commit();
}
inline void bulk_wait_read() {
  host_gpu::bulk_wait(0);
}
template <int kPending>
inline void bulk_wait_read_but() {
  host_gpu::bulk_wait(kPending);
}
inline void bulk_wait() {
  host_gpu::bulk_wait(0);
}

struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};
inline void store_box_if(const TensorMap* map, int x0, int x1, int x2, unsigned from, bool stores) {
  const int at[] = {x0, x1, x2};
  if (stores) host_gpu::box_store(map, at, 3, from);
}
inline void store_box_if(const TensorMap* map, int x0, int x1, int x2, int x3, int x4, unsigned from,
                         bool stores) {
  const int at[] = {x0, x1, x2, x3, x4};
  if (stores) host_gpu::box_store(map, at, 5, from);
}
inline void load_box_if(unsigned to, const TensorMap* map, int x0, int x1, int x2, int x3, int x4,
                        unsigned barrier, bool loads) {
  const int at[] = {x0, x1, x2, x3, x4};
  if (loads) host_gpu::box_load(to, map, at, 5, barrier);
}
inline void load_box_once_if(unsigned to, const TensorMap* map, int x0, int x1, int x2, int x3, int x4,
                             unsigned barrier, bool loads) {
  load_box_if(to, map, x0, x1, x2, x3, x4, barrier, loads);
}
inline void prefetch_box_if(const TensorMap*, int, int, int, int, int, bool) {}
inline void load_rows_if(unsigned to, const TensorMap* map, int x0, int x1, unsigned barrier, bool loads) {
  const int at[] = {x0, x1};
  if (loads) host_gpu::box_load(to, map, at, 2, barrier);
}
inline void load_rows_once_if(unsigned to, const TensorMap* map, int x0, int x1, unsigned barrier,
                              bool loads) {
  load_rows_if(to, map, x0, x1, barrier, loads);
}
inline void load_pixels_if(unsigned to, const TensorMap* map, int channel, int column, int row, int image,
                           int columns_on, int rows_on, unsigned barrier, bool loads) {
  const int at[] = {channel, column, row, image};
  const int on[] = {columns_on, rows_on};
  if (loads) host_gpu::pixels_load(to, map, at, 4, on, barrier);
}
inline void load_frame_pixels_if(unsigned to, const TensorMap* map, int channel, int column, int row,
                                 int frame, int image, int columns_on, int rows_on, int frames_on,
                                 unsigned barrier, bool loads) {
  const int at[] = {channel, column, row, frame, image}, on[] = {columns_on, rows_on, frames_on};
  if (loads) host_gpu::pixels_load(to, map, at, 5, on, barrier);
}
inline void load_group_pixels_if(unsigned to, const TensorMap* map, int channel, int column, int row,
                                 int image, int group, int columns_on, int rows_on, unsigned barrier,
                                 bool loads) {
  load_frame_pixels_if(to, map, channel, column, row, image, group, columns_on, rows_on, 0, barrier, loads);
}

inline void stmatrix_x4_trans(unsigned row_address, const unsigned (&from)[4]) {
  host_gpu::stmatrix(row_address, from, true);
}
inline void stmatrix_x4(unsigned row_address, const unsigned (&from)[4]) {
  host_gpu::stmatrix(row_address, from, false);
}

template <int kRegisters>
inline void take_registers() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  host_gpu::take_registers(kRegisters);
}
template <int kRegisters>
inline void leave_registers() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  host_gpu::leave_registers(kRegisters);
}
inline void bar_arrive(unsigned id, unsigned threads) {
  host_gpu::barrier(id, threads, false, 0);
}
inline void fence_proxy_async() {
  host_gpu::fence_proxy_async();
}

}  // namespace convtune::ptx
