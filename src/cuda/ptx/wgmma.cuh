// Matrix products of a warpgroup (wgmma), for compute capability 9.0 (sm_90a). All 128 threads. The sums must
// not be read or written between wgmma_fence and wgmma_wait: the compiler would serialise the products (it
// warns).
#pragma once

#include "cuda/ptx/sm90.cuh"

namespace convtune::ptx {

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit_and_wait() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until at most kPending groups are under way.
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Operands without swizzle are made of core matrices, 8 rows of 16 bytes that follow each other. The
// descriptor counts in 16 bytes: `address` of the first; from the first 16 bytes of a row's k to the next
// (`k_step`); from 8 rows to the next 8 (`row_step`). Any multiple of 16 will do, so operands may overlap.
__device__ constexpr unsigned long long wgmma_descriptor(unsigned address, unsigned k_step,
                                                         unsigned row_step) {
  return (address & 0x3fff) | static_cast<unsigned long long>(k_step & 0x3fff) << 16 |
         static_cast<unsigned long long>(row_step & 0x3fff) << 32;
}

// sums = a * b, or += where `adds`; 64 x N x 8. Warp w has rows 16w to 16w+15; sums[4j + 2i + b] is row
// is row group + 8i, column 8j + 2 * thread + b. The operands' lower 13 bits are dropped: round with
// cvt_rna_tf32 first.
template <int N>
struct WgmmaTf32;

// Every multiple of 8 columns. A list is the one before and 4 more.
#define CONVTUNE_LIST_4 "%0, %1, %2, %3"
#define CONVTUNE_LIST_8 CONVTUNE_LIST_4 ", %4, %5, %6, %7"
#define CONVTUNE_LIST_12 CONVTUNE_LIST_8 ", %8, %9, %10, %11"
#define CONVTUNE_LIST_16 CONVTUNE_LIST_12 ", %12, %13, %14, %15"
#define CONVTUNE_LIST_20 CONVTUNE_LIST_16 ", %16, %17, %18, %19"
#define CONVTUNE_LIST_24 CONVTUNE_LIST_20 ", %20, %21, %22, %23"
#define CONVTUNE_LIST_28 CONVTUNE_LIST_24 ", %24, %25, %26, %27"
#define CONVTUNE_LIST_32 CONVTUNE_LIST_28 ", %28, %29, %30, %31"
#define CONVTUNE_LIST_36 CONVTUNE_LIST_32 ", %32, %33, %34, %35"
#define CONVTUNE_LIST_40 CONVTUNE_LIST_36 ", %36, %37, %38, %39"
#define CONVTUNE_LIST_44 CONVTUNE_LIST_40 ", %40, %41, %42, %43"
#define CONVTUNE_LIST_48 CONVTUNE_LIST_44 ", %44, %45, %46, %47"
#define CONVTUNE_LIST_52 CONVTUNE_LIST_48 ", %48, %49, %50, %51"
#define CONVTUNE_LIST_56 CONVTUNE_LIST_52 ", %52, %53, %54, %55"
#define CONVTUNE_LIST_60 CONVTUNE_LIST_56 ", %56, %57, %58, %59"
#define CONVTUNE_LIST_64 CONVTUNE_LIST_60 ", %60, %61, %62, %63"
#define CONVTUNE_LIST_68 CONVTUNE_LIST_64 ", %64, %65, %66, %67"
#define CONVTUNE_LIST_72 CONVTUNE_LIST_68 ", %68, %69, %70, %71"
#define CONVTUNE_LIST_76 CONVTUNE_LIST_72 ", %72, %73, %74, %75"
#define CONVTUNE_LIST_80 CONVTUNE_LIST_76 ", %76, %77, %78, %79"
#define CONVTUNE_LIST_84 CONVTUNE_LIST_80 ", %80, %81, %82, %83"
#define CONVTUNE_LIST_88 CONVTUNE_LIST_84 ", %84, %85, %86, %87"
#define CONVTUNE_LIST_92 CONVTUNE_LIST_88 ", %88, %89, %90, %91"
#define CONVTUNE_LIST_96 CONVTUNE_LIST_92 ", %92, %93, %94, %95"
#define CONVTUNE_LIST_100 CONVTUNE_LIST_96 ", %96, %97, %98, %99"
#define CONVTUNE_LIST_104 CONVTUNE_LIST_100 ", %100, %101, %102, %103"
#define CONVTUNE_LIST_108 CONVTUNE_LIST_104 ", %104, %105, %106, %107"
#define CONVTUNE_LIST_112 CONVTUNE_LIST_108 ", %108, %109, %110, %111"
#define CONVTUNE_LIST_116 CONVTUNE_LIST_112 ", %112, %113, %114, %115"
#define CONVTUNE_LIST_120 CONVTUNE_LIST_116 ", %116, %117, %118, %119"
#define CONVTUNE_LIST_124 CONVTUNE_LIST_120 ", %120, %121, %122, %123"
#define CONVTUNE_LIST_128 CONVTUNE_LIST_124 ", %124, %125, %126, %127"
#define CONVTUNE_FOUR(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define CONVTUNE_SUMS_4 CONVTUNE_FOUR(0)
#define CONVTUNE_SUMS_8 CONVTUNE_SUMS_4, CONVTUNE_FOUR(4)
#define CONVTUNE_SUMS_12 CONVTUNE_SUMS_8, CONVTUNE_FOUR(8)
#define CONVTUNE_SUMS_16 CONVTUNE_SUMS_12, CONVTUNE_FOUR(12)
#define CONVTUNE_SUMS_20 CONVTUNE_SUMS_16, CONVTUNE_FOUR(16)
#define CONVTUNE_SUMS_24 CONVTUNE_SUMS_20, CONVTUNE_FOUR(20)
#define CONVTUNE_SUMS_28 CONVTUNE_SUMS_24, CONVTUNE_FOUR(24)
#define CONVTUNE_SUMS_32 CONVTUNE_SUMS_28, CONVTUNE_FOUR(28)
#define CONVTUNE_SUMS_36 CONVTUNE_SUMS_32, CONVTUNE_FOUR(32)
#define CONVTUNE_SUMS_40 CONVTUNE_SUMS_36, CONVTUNE_FOUR(36)
#define CONVTUNE_SUMS_44 CONVTUNE_SUMS_40, CONVTUNE_FOUR(40)
#define CONVTUNE_SUMS_48 CONVTUNE_SUMS_44, CONVTUNE_FOUR(44)
#define CONVTUNE_SUMS_52 CONVTUNE_SUMS_48, CONVTUNE_FOUR(48)
#define CONVTUNE_SUMS_56 CONVTUNE_SUMS_52, CONVTUNE_FOUR(52)
#define CONVTUNE_SUMS_60 CONVTUNE_SUMS_56, CONVTUNE_FOUR(56)
#define CONVTUNE_SUMS_64 CONVTUNE_SUMS_60, CONVTUNE_FOUR(60)
#define CONVTUNE_SUMS_68 CONVTUNE_SUMS_64, CONVTUNE_FOUR(64)
#define CONVTUNE_SUMS_72 CONVTUNE_SUMS_68, CONVTUNE_FOUR(68)
#define CONVTUNE_SUMS_76 CONVTUNE_SUMS_72, CONVTUNE_FOUR(72)
#define CONVTUNE_SUMS_80 CONVTUNE_SUMS_76, CONVTUNE_FOUR(76)
#define CONVTUNE_SUMS_84 CONVTUNE_SUMS_80, CONVTUNE_FOUR(80)
#define CONVTUNE_SUMS_88 CONVTUNE_SUMS_84, CONVTUNE_FOUR(84)
#define CONVTUNE_SUMS_92 CONVTUNE_SUMS_88, CONVTUNE_FOUR(88)
#define CONVTUNE_SUMS_96 CONVTUNE_SUMS_92, CONVTUNE_FOUR(92)
#define CONVTUNE_SUMS_100 CONVTUNE_SUMS_96, CONVTUNE_FOUR(96)
#define CONVTUNE_SUMS_104 CONVTUNE_SUMS_100, CONVTUNE_FOUR(100)
#define CONVTUNE_SUMS_108 CONVTUNE_SUMS_104, CONVTUNE_FOUR(104)
#define CONVTUNE_SUMS_112 CONVTUNE_SUMS_108, CONVTUNE_FOUR(108)
#define CONVTUNE_SUMS_116 CONVTUNE_SUMS_112, CONVTUNE_FOUR(112)
#define CONVTUNE_SUMS_120 CONVTUNE_SUMS_116, CONVTUNE_FOUR(116)
#define CONVTUNE_SUMS_124 CONVTUNE_SUMS_120, CONVTUNE_FOUR(120)
#define CONVTUNE_SUMS_128 CONVTUNE_SUMS_124, CONVTUNE_FOUR(124)

// f(columns, sums of a thread, names of the operands behind those sums), for what half precision has too in
// all forms, what TF32 has with `a` in registers besides, what half precision has in shared memory besides,
// and the rest.
// clang-format off
#define CONVTUNE_WIDTHS(f)                                            \
  f(8, 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")                  \
  f(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")             \
  f(24, 12, "%12", "%13", "%14", "%15", "%16", "%17", "%18")          \
  f(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")          \
  f(48, 24, "%24", "%25", "%26", "%27", "%28", "%29", "%30")          \
  f(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")          \
  f(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")          \
  f(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")          \
  f(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62")         \
  f(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
#define CONVTUNE_WIDER(f)                                             \
  f(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86")         \
  f(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")      \
  f(224, 112, "%112", "%113", "%114", "%115", "%116", "%117", "%118") \
  f(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
#define CONVTUNE_BETWEEN(f)                                           \
  f(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78")         \
  f(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94")         \
  f(208, 104, "%104", "%105", "%106", "%107", "%108", "%109", "%110") \
  f(240, 120, "%120", "%121", "%122", "%123", "%124", "%125", "%126")
#define CONVTUNE_OTHERS(f)                                            \
  f(40, 20, "%20", "%21", "%22", "%23", "%24", "%25", "%26")          \
  f(56, 28, "%28", "%29", "%30", "%31", "%32", "%33", "%34")          \
  f(72, 36, "%36", "%37", "%38", "%39", "%40", "%41", "%42")          \
  f(88, 44, "%44", "%45", "%46", "%47", "%48", "%49", "%50")          \
  f(104, 52, "%52", "%53", "%54", "%55", "%56", "%57", "%58")         \
  f(120, 60, "%60", "%61", "%62", "%63", "%64", "%65", "%66")         \
  f(136, 68, "%68", "%69", "%70", "%71", "%72", "%73", "%74")         \
  f(152, 76, "%76", "%77", "%78", "%79", "%80", "%81", "%82")         \
  f(168, 84, "%84", "%85", "%86", "%87", "%88", "%89", "%90")         \
  f(184, 92, "%92", "%93", "%94", "%95", "%96", "%97", "%98")         \
  f(200, 100, "%100", "%101", "%102", "%103", "%104", "%105", "%106") \
  f(216, 108, "%108", "%109", "%110", "%111", "%112", "%113", "%114") \
  f(232, 116, "%116", "%117", "%118", "%119", "%120", "%121", "%122") \
  f(248, 124, "%124", "%125", "%126", "%127", "%128", "%129", "%130")
// clang-format on
#define CONVTUNE_ALL_WIDTHS(f) CONVTUNE_WIDTHS(f) CONVTUNE_WIDER(f) CONVTUNE_BETWEEN(f) CONVTUNE_OTHERS(f)

#define CONVTUNE_WGMMA(columns, count, a_name, b_name, adds_name, ...)                                     \
  template <>                                                                                              \
  struct WgmmaTf32<columns> {                                                                              \
    __device__ static void multiply(float (&sums)[count], unsigned long long a, unsigned long long b,      \
                                    bool adds) {                                                           \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name                                     \
                   ", 0;\n"                                                                                \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k8.f32.tf32.tf32 {" CONVTUNE_LIST_##count \
                   "}, " a_name ", " b_name ", adds, 1, 1;\n}"                                             \
                   : CONVTUNE_SUMS_##count                                                                 \
                   : "l"(a), "l"(b), "r"(static_cast<unsigned>(adds)));                                    \
    }                                                                                                      \
  };
CONVTUNE_ALL_WIDTHS(CONVTUNE_WGMMA)
#undef CONVTUNE_WGMMA

// Three products one after the other in one statement, which compiles faster. (wgmma_three.cuh: their
// operands lie apart by constants.)
template <int N>
struct ThreeWgmmaTf32Anywhere;

#define CONVTUNE_PRODUCT(columns, count, a_name, b_name, adds_name)                       \
  "wgmma.mma_async.sync.aligned.m64n" #columns "k8.f32.tf32.tf32 {" CONVTUNE_LIST_##count \
      "}, " a_name ", " b_name ", " adds_name ", 1, 1;\n"
#define CONVTUNE_THREE_WGMMA_ANYWHERE(columns, count, a0, a1, a2, b0, b1, b2, adds_name)             \
  template <>                                                                                        \
  struct ThreeWgmmaTf32Anywhere<columns> {                                                           \
    __device__ static void multiply(float (&sums)[count], const unsigned long long (&a)[3],          \
                                    const unsigned long long (&b)[3], bool adds) {                   \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name ", 0;\n" CONVTUNE_PRODUCT(    \
                       columns, count, a0, b0, "adds") CONVTUNE_PRODUCT(columns, count, a1, b1, "1") \
                       CONVTUNE_PRODUCT(columns, count, a2, b2, "1") "}"                             \
                   : CONVTUNE_SUMS_##count                                                           \
                   : "l"(a[0]), "l"(a[1]), "l"(a[2]), "l"(b[0]), "l"(b[1]), "l"(b[2]),               \
                     "r"(static_cast<unsigned>(adds)));                                              \
    }                                                                                                \
  };
CONVTUNE_THREE_WGMMA_ANYWHERE(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
CONVTUNE_THREE_WGMMA_ANYWHERE(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
CONVTUNE_THREE_WGMMA_ANYWHERE(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
#undef CONVTUNE_THREE_WGMMA_ANYWHERE
#undef CONVTUNE_PRODUCT

// One product with `a` in registers, rounded: a[2i + j] is row group + 8j, k thread + 4i. They must be as
// they were until the products are done.
template <int N>
struct WgmmaTf32Registers;

#define CONVTUNE_WGMMA_REGISTERS(columns, count, a0, a1, a2, a3, b_name, adds_name, ...)                    \
  template <>                                                                                               \
  struct WgmmaTf32Registers<columns> {                                                                      \
    __device__ static void multiply(float (&sums)[count], const unsigned (&a)[4], unsigned long long b,     \
                                    bool adds) {                                                            \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name                                      \
                   ", 0;\n"                                                                                 \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k8.f32.tf32.tf32 {" CONVTUNE_LIST_##count  \
                   "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b_name ", adds, 1, 1;\n}"                        \
                   : CONVTUNE_SUMS_##count                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<unsigned>(adds))); \
    }                                                                                                       \
  };
CONVTUNE_WIDTHS(CONVTUNE_WGMMA_REGISTERS)
CONVTUNE_WIDER(CONVTUNE_WGMMA_REGISTERS)
#undef CONVTUNE_WGMMA_REGISTERS

}  // namespace convtune::ptx
