// Asynchronous copies, several in one statement, from places that a table lists: how long a kernel compiles
// is how many statements and branches it has.
#pragma once

#include "cuda/ptx/sm80.cuh"

namespace convtune::ptx {

// Four rows of a tile and of the input from row kFirst on, kTo and kFrom bytes apart; zeros where `bytes` is
// 0.
template <int kSize, int kFirst, int kTo, int kFrom>
__device__ __forceinline__ void cp_async_four(unsigned to, const float* from, unsigned bytes) {
  asm volatile(
      "cp.async.ca.shared.global [%0 + %3 * %5], [%1 + %4 * %5], %6, %2;\n"
      "cp.async.ca.shared.global [%0 + %3 * (%5 + 1)], [%1 + %4 * (%5 + 1)], %6, %2;\n"
      "cp.async.ca.shared.global [%0 + %3 * (%5 + 2)], [%1 + %4 * (%5 + 2)], %6, %2;\n"
      "cp.async.ca.shared.global [%0 + %3 * (%5 + 3)], [%1 + %4 * (%5 + 3)], %6, %2;" ::"r"(to),
      "l"(from), "r"(bytes), "n"(kTo), "n"(kFrom), "n"(kFirst), "n"(kSize)
      : "memory");
}

// A table's entry is an offset in floats, a row and a column. Each is added to an
// address, a row and a column of the image; what lies there is copied, zeros where that is outside. All
// entries are read before the first copy, which would make each wait.
//   %0, %1: the first entry, and bytes to the next; %2, %3: the image's height and width; %4: bytes of a
//   copy; %5: bytes from one copy to the next in shared memory; %6 to %9, %10 to %13: places
#define CONVTUNE_ENTRY(load, i) load ".v4.u32 {l" #i ", h" #i ", r" #i ", c" #i "}, [%0 + %1 * " #i "];\n"
#define CONVTUNE_COPY(i, to, from, row, column)                                \
  "add.s32 s, r" #i ", " row                                                   \
  ";\nsetp.lt.u32 p, s, %2;\n"                                                 \
  "add.s32 s, c" #i ", " column                                                \
  ";\nsetp.lt.and.u32 p, s, %3, p;\nselp.b32 s, %4, 0, p;\n"                   \
  "mov.b64 at, {l" #i ", h" #i "};\nshl.b64 at, at, 2;\nadd.s64 at, at, " from \
  ";\n"                                                                        \
  "cp.async.ca.shared.global [" to " + %5 * " #i "], [at], %4, s;\n"
// clang-format off
#define CONVTUNE_ENTRIES_1(load) CONVTUNE_ENTRY(load, 0)
#define CONVTUNE_ENTRIES_4(load) \
  CONVTUNE_ENTRY(load, 0) CONVTUNE_ENTRY(load, 1) CONVTUNE_ENTRY(load, 2) CONVTUNE_ENTRY(load, 3)
#define CONVTUNE_COPIES_1(...) CONVTUNE_COPY(0, __VA_ARGS__)
#define CONVTUNE_COPIES_4(...)                                \
  CONVTUNE_COPY(0, __VA_ARGS__) CONVTUNE_COPY(1, __VA_ARGS__) \
  CONVTUNE_COPY(2, __VA_ARGS__) CONVTUNE_COPY(3, __VA_ARGS__)
// clang-format on
#define CONVTUNE_GATHER(load, table, count, copies, ...)                                                  \
  asm volatile(                                                                                           \
      "{\n.reg .pred p;\n.reg .b32 l<4>, h<4>, r<4>, c<4>, s;\n.reg .b64 at;\n" CONVTUNE_ENTRIES_##count( \
          load) copies "}" ::table,                                                                       \
      "n"(kEntry), "r"(height), "r"(width), "n"(kSize), "n"(kTo), __VA_ARGS__                             \
      : "memory")
#define CONVTUNE_ONE_PLACE(load, table, count)                                                             \
  CONVTUNE_GATHER(load, table, count, CONVTUNE_COPIES_##count("%6", "%7", "%8", "%9"), "r"(to), "l"(from), \
                  "r"(row), "r"(column))
#define CONVTUNE_TWO_PLACES(load, table, count)                                                              \
  CONVTUNE_GATHER(load, table, count,                                                                        \
                  CONVTUNE_COPIES_##count("%6", "%7", "%8", "%9")                                            \
                      CONVTUNE_COPIES_##count("%10", "%11", "%12", "%13"),                                   \
                  "r"(to), "l"(from), "r"(row), "r"(column), "r"(to_other), "l"(from_other), "r"(row_other), \
                  "r"(column_other))

// kCount entries, four or one, kEntry bytes apart: of a table in shared memory;
template <int kCount, int kSize, int kEntry, int kTo>
__device__ __forceinline__ void cp_async_gather(int height, int width, unsigned table, unsigned to,
                                                const float* from, int row, int column) {
  static_assert(kCount == 4 || kCount == 1);
  if constexpr (kCount == 4)
    CONVTUNE_ONE_PLACE("ld.shared", "r"(table), 4);
  else
    CONVTUNE_ONE_PLACE("ld.shared", "r"(table), 1);
}
// the address of one in global memory;
template <int kCount, int kSize, int kEntry, int kTo>
__device__ __forceinline__ void cp_async_gather(int height, int width, const int4* table, unsigned to,
                                                const float* from, int row, int column) {
  static_assert(kCount == 4 || kCount == 1);
  if constexpr (kCount == 4)
    CONVTUNE_ONE_PLACE("ld.global.nc", "l"(table), 4);
  else
    CONVTUNE_ONE_PLACE("ld.global.nc", "l"(table), 1);
}
// and of that for two places.
template <int kCount, int kSize, int kEntry, int kTo>
__device__ __forceinline__ void cp_async_gather(int height, int width, const int4* table, unsigned to,
                                                const float* from, int row, int column, unsigned to_other,
                                                const float* from_other, int row_other, int column_other) {
  static_assert(kCount == 4 || kCount == 1);
  if constexpr (kCount == 4)
    CONVTUNE_TWO_PLACES("ld.global.nc", "l"(table), 4);
  else
    CONVTUNE_TWO_PLACES("ld.global.nc", "l"(table), 1);
}

// As above of one place, or of two, of an image of several frames: an entry is an offset in floats, of 32
// bits, a frame, a row and a column.
//   %6: frames; %7 to %11, %12 to %16: places
#define CONVTUNE_COPY_OF_FRAMES(i, to, from, frame, row, column) \
  "add.s32 s, h" #i ", " frame                                   \
  ";\nsetp.lt.u32 p, s, %6;\n"                                   \
  "add.s32 s, r" #i ", " row                                     \
  ";\nsetp.lt.and.u32 p, s, %2, p;\n"                            \
  "add.s32 s, c" #i ", " column                                  \
  ";\nsetp.lt.and.u32 p, s, %3, p;\nselp.b32 s, %4, 0, p;\n"     \
  "mad.wide.s32 at, l" #i ", 4, " from                           \
  ";\n"                                                          \
  "cp.async.ca.shared.global [" to " + %5 * " #i "], [at], %4, s;\n"
// clang-format off
#define CONVTUNE_COPIES_OF_FRAMES_1(...) CONVTUNE_COPY_OF_FRAMES(0, __VA_ARGS__)
#define CONVTUNE_COPIES_OF_FRAMES_4(...)                                          \
  CONVTUNE_COPY_OF_FRAMES(0, __VA_ARGS__) CONVTUNE_COPY_OF_FRAMES(1, __VA_ARGS__) \
  CONVTUNE_COPY_OF_FRAMES(2, __VA_ARGS__) CONVTUNE_COPY_OF_FRAMES(3, __VA_ARGS__)
// clang-format on
#define CONVTUNE_ONE_PLACE_OF_FRAMES(count)                                                                \
  CONVTUNE_GATHER("ld.global.nc", "l"(table), count,                                                       \
                  CONVTUNE_COPIES_OF_FRAMES_##count("%7", "%8", "%9", "%10", "%11"), "r"(frames), "r"(to), \
                  "l"(from), "r"(frame), "r"(row), "r"(column))
#define CONVTUNE_TWO_PLACES_OF_FRAMES(count)                                                         \
  CONVTUNE_GATHER("ld.global.nc", "l"(table), count,                                                 \
                  CONVTUNE_COPIES_OF_FRAMES_##count("%7", "%8", "%9", "%10", "%11")                  \
                      CONVTUNE_COPIES_OF_FRAMES_##count("%12", "%13", "%14", "%15", "%16"),          \
                  "r"(frames), "r"(to), "l"(from), "r"(frame), "r"(row), "r"(column), "r"(to_other), \
                  "l"(from_other), "r"(frame_other), "r"(row_other), "r"(column_other))
template <int kCount, int kSize, int kEntry, int kTo>
__device__ __forceinline__ void cp_async_gather_frames(int frames, int height, int width, const int4* table,
                                                       unsigned to, const float* from, int frame, int row,
                                                       int column) {
  static_assert(kCount == 4 || kCount == 1);
  if constexpr (kCount == 4)
    CONVTUNE_ONE_PLACE_OF_FRAMES(4);
  else
    CONVTUNE_ONE_PLACE_OF_FRAMES(1);
}
template <int kCount, int kSize, int kEntry, int kTo>
__device__ __forceinline__ void cp_async_gather_frames(int frames, int height, int width, const int4* table,
                                                       unsigned to, const float* from, int frame, int row,
                                                       int column, unsigned to_other, const float* from_other,
                                                       int frame_other, int row_other, int column_other) {
  static_assert(kCount == 4 || kCount == 1);
  if constexpr (kCount == 4)
    CONVTUNE_TWO_PLACES_OF_FRAMES(4);
  else
    CONVTUNE_TWO_PLACES_OF_FRAMES(1);
}

#undef CONVTUNE_TWO_PLACES_OF_FRAMES
#undef CONVTUNE_ONE_PLACE_OF_FRAMES
#undef CONVTUNE_COPIES_OF_FRAMES_4
#undef CONVTUNE_COPIES_OF_FRAMES_1
#undef CONVTUNE_COPY_OF_FRAMES
#undef CONVTUNE_TWO_PLACES
#undef CONVTUNE_ONE_PLACE
#undef CONVTUNE_GATHER
#undef CONVTUNE_COPIES_4
#undef CONVTUNE_COPIES_1
#undef CONVTUNE_ENTRIES_4
#undef CONVTUNE_ENTRIES_1
#undef CONVTUNE_COPY
#undef CONVTUNE_ENTRY

}  // namespace convtune::ptx
