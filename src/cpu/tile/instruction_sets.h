// The table of instruction sets that vector code is compiled for and chosen by. A new set is a row here.
// (Where the compiler must be told the length of its vectors, as for SVE, CMakeLists.txt says that beside
// this folder's sources.)
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "convtune/device.h"

// ROW(name, bits of a vector, registers, whether there are masked stores as fast as others, Highway's target,
// whether this processor has it, and `...` passed on), widest first of each kind of processor. AVX2 has
// masked stores, which take AMD's processors more than ten cycles each, whatever the mask. Highway's targets
// ask for what stands here. AVX2's asks for F16C as well, which every such processor has and clang 14 cannot
// ask for. SVE is taken where its vectors have 256 bits: vectors whose length the compiler does not know
// cannot stand in arrays, as accumulators do.
// clang-format off
#define CONVTUNE_INSTRUCTION_SETS(ROW, ...)                                                                     \
  ROW(avx512, 512, 32, true, AVX3, has_avx2() && X86("avx512f") && X86("avx512bw") && X86("avx512dq") &&        \
      X86("avx512vl") && X86("avx512cd"), __VA_ARGS__)                                                          \
  ROW(avx2, 256, 16, false, AVX2, has_sse4() && X86("avx2") && X86("fma") && X86("bmi") && X86("bmi2"), __VA_ARGS__) \
  ROW(sse4, 128, 16, false, SSE4, X86("ssse3") && X86("sse4.1") && X86("sse4.2") && X86("aes") && X86("pclmul"),  \
      __VA_ARGS__)                                                                                              \
  ROW(sve, 256, 32, true, SVE_256, sve_bits() == 256, __VA_ARGS__)                                              \
  ROW(neon, 128, 32, false, NEON, is_aarch64(), __VA_ARGS__)
// clang-format on

// For Highway's headers, which come after this one: its targets are those of the table, and none at all.
#define CONVTUNE_TARGET_OF(name, bits, registers, masks, target, has, ...) | HWY_##target
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 CONVTUNE_INSTRUCTION_SETS(CONVTUNE_TARGET_OF)))

namespace convtune::cpu {

struct InstructionSet {
  std::string_view name;
  int vector_bits, registers;
  bool compiled;  // in this build
  bool (*runs_here)();
};

std::span<const InstructionSet> instruction_sets();

// The name of the widest that this processor has; "scalar" without any.
std::string widest_instruction_set();

// Bits of the widest vectors that both the processor, by its `isa`, and this build have; 0 without any. A
// processor also has every narrower set of its kind.
int widest_vector_bits(const DeviceInfo& info);

// True where this processor has vdpbf16ps, by which pairs of bf16 in vectors of 512 bits are multiplied.
bool multiplies_bf16();

}  // namespace convtune::cpu
