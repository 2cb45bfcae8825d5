// Three products of a warpgroup in one statement, in a file of their own: they take longer to read than the
// rest of a kernel.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

// Three products one after the other in one statement, which compiles faster: the operands of the second and
// the third lie so much further on.
template <int N>
struct ThreeWgmmaTf32;

#define CONVTUNE_PRODUCT(columns, count) \
  "wgmma.mma_async.sync.aligned.m64n" #columns "k8.f32.tf32.tf32 {" CONVTUNE_LIST_##count "}, "
#define CONVTUNE_THREE_WGMMA(columns, count, a_name, b_name, adds_name, a1_name, b1_name, a2_name, b2_name)   \
  template <>                                                                                                 \
  struct ThreeWgmmaTf32<columns> {                                                                            \
    template <int a1, int b1, int a2, int b2>                                                                 \
    __device__ static void multiply(float (&sums)[count], unsigned long long a, unsigned long long b,         \
                                    bool adds) {                                                              \
      asm volatile("{\n.reg .pred adds;\n.reg .b64 a, b;\nsetp.ne.b32 adds, " adds_name ", 0;\n"            \
                   CONVTUNE_PRODUCT(columns, count) a_name ", " b_name ", adds, 1, 1;\n"                    \
                   "add.s64 a, " a_name ", " a1_name ";\nadd.s64 b, " b_name ", " b1_name ";\n"             \
                   CONVTUNE_PRODUCT(columns, count) "a, b, 1, 1, 1;\n"                                      \
                   "add.s64 a, " a_name ", " a2_name ";\nadd.s64 b, " b_name ", " b2_name ";\n"             \
                   CONVTUNE_PRODUCT(columns, count) "a, b, 1, 1, 1;\n}"                                     \
                   : CONVTUNE_SUMS_##count                                                                  \
                   : "l"(a), "l"(b), "r"(static_cast<unsigned>(adds)), "n"(a1), "n"(b1), "n"(a2), "n"(b2)); \
    }                                                                                                         \
  };
CONVTUNE_THREE_WGMMA(8, 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
CONVTUNE_THREE_WGMMA(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
CONVTUNE_THREE_WGMMA(24, 12, "%12", "%13", "%14", "%15", "%16", "%17", "%18")
CONVTUNE_THREE_WGMMA(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
CONVTUNE_THREE_WGMMA(40, 20, "%20", "%21", "%22", "%23", "%24", "%25", "%26")
CONVTUNE_THREE_WGMMA(48, 24, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
CONVTUNE_THREE_WGMMA(56, 28, "%28", "%29", "%30", "%31", "%32", "%33", "%34")
CONVTUNE_THREE_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
CONVTUNE_THREE_WGMMA(72, 36, "%36", "%37", "%38", "%39", "%40", "%41", "%42")
CONVTUNE_THREE_WGMMA(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
CONVTUNE_THREE_WGMMA(88, 44, "%44", "%45", "%46", "%47", "%48", "%49", "%50")
CONVTUNE_THREE_WGMMA(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
CONVTUNE_THREE_WGMMA(104, 52, "%52", "%53", "%54", "%55", "%56", "%57", "%58")
CONVTUNE_THREE_WGMMA(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
CONVTUNE_THREE_WGMMA(120, 60, "%60", "%61", "%62", "%63", "%64", "%65", "%66")
CONVTUNE_THREE_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
CONVTUNE_THREE_WGMMA(136, 68, "%68", "%69", "%70", "%71", "%72", "%73", "%74")
CONVTUNE_THREE_WGMMA(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
CONVTUNE_THREE_WGMMA(152, 76, "%76", "%77", "%78", "%79", "%80", "%81", "%82")
CONVTUNE_THREE_WGMMA(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
CONVTUNE_THREE_WGMMA(168, 84, "%84", "%85", "%86", "%87", "%88", "%89", "%90")
CONVTUNE_THREE_WGMMA(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
CONVTUNE_THREE_WGMMA(184, 92, "%92", "%93", "%94", "%95", "%96", "%97", "%98")
CONVTUNE_THREE_WGMMA(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
CONVTUNE_THREE_WGMMA(200, 100, "%100", "%101", "%102", "%103", "%104", "%105", "%106")
CONVTUNE_THREE_WGMMA(208, 104, "%104", "%105", "%106", "%107", "%108", "%109", "%110")
CONVTUNE_THREE_WGMMA(216, 108, "%108", "%109", "%110", "%111", "%112", "%113", "%114")
CONVTUNE_THREE_WGMMA(224, 112, "%112", "%113", "%114", "%115", "%116", "%117", "%118")
CONVTUNE_THREE_WGMMA(232, 116, "%116", "%117", "%118", "%119", "%120", "%121", "%122")
CONVTUNE_THREE_WGMMA(240, 120, "%120", "%121", "%122", "%123", "%124", "%125", "%126")
CONVTUNE_THREE_WGMMA(248, 124, "%124", "%125", "%126", "%127", "%128", "%129", "%130")
CONVTUNE_THREE_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
#undef CONVTUNE_THREE_WGMMA

}  // namespace convtune::ptx
