// Wraps the matrix products of a warpgroup (wgmma), for compute capability 9.0 (sm_90a).
// All 128 threads. The sums must not be read or written between wgmma_fence and wgmma_wait: the compiler
// would serialise the products (it warns). The products are in files of their own: kernels read those they
// use, and lists of registers take long to read.
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

// f(columns, sums of a thread, names of the operands behind those sums).
// clang-format off
#define CONVTUNE_COLUMNS_8(f) f(8, 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
#define CONVTUNE_COLUMNS_16(f) f(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
#define CONVTUNE_COLUMNS_24(f) f(24, 12, "%12", "%13", "%14", "%15", "%16", "%17", "%18")
#define CONVTUNE_COLUMNS_32(f) f(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
#define CONVTUNE_COLUMNS_40(f) f(40, 20, "%20", "%21", "%22", "%23", "%24", "%25", "%26")
#define CONVTUNE_COLUMNS_48(f) f(48, 24, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
#define CONVTUNE_COLUMNS_56(f) f(56, 28, "%28", "%29", "%30", "%31", "%32", "%33", "%34")
#define CONVTUNE_COLUMNS_64(f) f(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
#define CONVTUNE_COLUMNS_72(f) f(72, 36, "%36", "%37", "%38", "%39", "%40", "%41", "%42")
#define CONVTUNE_COLUMNS_80(f) f(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
#define CONVTUNE_COLUMNS_88(f) f(88, 44, "%44", "%45", "%46", "%47", "%48", "%49", "%50")
#define CONVTUNE_COLUMNS_96(f) f(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
#define CONVTUNE_COLUMNS_104(f) f(104, 52, "%52", "%53", "%54", "%55", "%56", "%57", "%58")
#define CONVTUNE_COLUMNS_112(f) f(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
#define CONVTUNE_COLUMNS_120(f) f(120, 60, "%60", "%61", "%62", "%63", "%64", "%65", "%66")
#define CONVTUNE_COLUMNS_128(f) f(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
#define CONVTUNE_COLUMNS_136(f) f(136, 68, "%68", "%69", "%70", "%71", "%72", "%73", "%74")
#define CONVTUNE_COLUMNS_144(f) f(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
#define CONVTUNE_COLUMNS_152(f) f(152, 76, "%76", "%77", "%78", "%79", "%80", "%81", "%82")
#define CONVTUNE_COLUMNS_160(f) f(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
#define CONVTUNE_COLUMNS_168(f) f(168, 84, "%84", "%85", "%86", "%87", "%88", "%89", "%90")
#define CONVTUNE_COLUMNS_176(f) f(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
#define CONVTUNE_COLUMNS_184(f) f(184, 92, "%92", "%93", "%94", "%95", "%96", "%97", "%98")
#define CONVTUNE_COLUMNS_192(f) f(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
#define CONVTUNE_COLUMNS_200(f) f(200, 100, "%100", "%101", "%102", "%103", "%104", "%105", "%106")
#define CONVTUNE_COLUMNS_208(f) f(208, 104, "%104", "%105", "%106", "%107", "%108", "%109", "%110")
#define CONVTUNE_COLUMNS_216(f) f(216, 108, "%108", "%109", "%110", "%111", "%112", "%113", "%114")
#define CONVTUNE_COLUMNS_224(f) f(224, 112, "%112", "%113", "%114", "%115", "%116", "%117", "%118")
#define CONVTUNE_COLUMNS_232(f) f(232, 116, "%116", "%117", "%118", "%119", "%120", "%121", "%122")
#define CONVTUNE_COLUMNS_240(f) f(240, 120, "%120", "%121", "%122", "%123", "%124", "%125", "%126")
#define CONVTUNE_COLUMNS_248(f) f(248, 124, "%124", "%125", "%126", "%127", "%128", "%129", "%130")
#define CONVTUNE_COLUMNS_256(f) f(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

// The widths that half precision has too in all forms, those that TF32 has with `a` in registers besides,
// those that half precision has in shared memory besides, and the rest. CONVTUNE_COLUMNS: the one width that
// a program has products of (LaunchPlan::product_columns), since all of them take 10 to 25 ms to read.
#ifdef CONVTUNE_COLUMNS
#define CONVTUNE_JOINED(first, second) first##second
#define CONVTUNE_COLUMNS_OF(columns) CONVTUNE_JOINED(CONVTUNE_COLUMNS_, columns)
#define CONVTUNE_WIDTHS(f) CONVTUNE_COLUMNS_OF(CONVTUNE_COLUMNS)(f)
#define CONVTUNE_WIDER(f)
#define CONVTUNE_BETWEEN(f)
#define CONVTUNE_OTHERS(f)
#else
#define CONVTUNE_WIDTHS(f) \
  CONVTUNE_COLUMNS_8(f) CONVTUNE_COLUMNS_16(f) CONVTUNE_COLUMNS_24(f) CONVTUNE_COLUMNS_32(f) \
  CONVTUNE_COLUMNS_48(f) CONVTUNE_COLUMNS_64(f) CONVTUNE_COLUMNS_80(f) CONVTUNE_COLUMNS_96(f) \
  CONVTUNE_COLUMNS_112(f) CONVTUNE_COLUMNS_128(f)
#define CONVTUNE_WIDER(f) \
  CONVTUNE_COLUMNS_160(f) CONVTUNE_COLUMNS_192(f) CONVTUNE_COLUMNS_224(f) CONVTUNE_COLUMNS_256(f)
#define CONVTUNE_BETWEEN(f) \
  CONVTUNE_COLUMNS_144(f) CONVTUNE_COLUMNS_176(f) CONVTUNE_COLUMNS_208(f) CONVTUNE_COLUMNS_240(f)
#define CONVTUNE_OTHERS(f) \
  CONVTUNE_COLUMNS_40(f) CONVTUNE_COLUMNS_56(f) CONVTUNE_COLUMNS_72(f) CONVTUNE_COLUMNS_88(f) \
  CONVTUNE_COLUMNS_104(f) CONVTUNE_COLUMNS_120(f) CONVTUNE_COLUMNS_136(f) CONVTUNE_COLUMNS_152(f) \
  CONVTUNE_COLUMNS_168(f) CONVTUNE_COLUMNS_184(f) CONVTUNE_COLUMNS_200(f) CONVTUNE_COLUMNS_216(f) \
  CONVTUNE_COLUMNS_232(f) CONVTUNE_COLUMNS_248(f)
#endif
// clang-format on
#define CONVTUNE_ALL_WIDTHS(f) CONVTUNE_WIDTHS(f) CONVTUNE_WIDER(f) CONVTUNE_BETWEEN(f) CONVTUNE_OTHERS(f)

}  // namespace convtune::ptx
