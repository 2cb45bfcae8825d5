// See amx_kernels.h. The instructions are written in assembly, as vdpbf16ps is: compilers have them as macros
// of literal numbers alone, and for functions of another target.
#include "cpu/algorithms/amx/amx_kernels.h"

#include "base/fork_gate.h"
#include "cpu/algorithms/amx/amx_multiply.h"

#if defined(__x86_64__) && defined(__linux__)
#define CONVTUNE_AMX 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#else
#define CONVTUNE_AMX 0
#endif

namespace convtune::cpu {
namespace {

#if CONVTUNE_AMX
// The operand of ldtilecfg: Intel's manual, volume 1, 18.3.
struct alignas(64) TileSizes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

struct ProcessorTiles {
  static void configure(int tail) {
    TileSizes sizes;
    for (int tile = 0; tile < 8; ++tile) sizes.row_bytes[tile] = 64, sizes.rows[tile] = 16;
    if (tail > 0) {
      sizes.row_bytes[kAmxTailA] = static_cast<std::uint16_t>(2 * tail);
      sizes.rows[kAmxTailB] = static_cast<std::uint8_t>(tail / 2);
    }
    asm volatile("ldtilecfg %0" : : "m"(sizes));
  }
  static void release() { asm volatile("tilerelease"); }
  template <int t>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(t));
  }
  template <int t>
  static void load(const void* from, std::int64_t row_bytes) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(t), "r"(from), "r"(row_bytes) : "memory");
  }
  template <int t>
  static void store(void* to, std::int64_t row_bytes) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(t), "r"(to), "r"(row_bytes) : "memory");
  }
  template <int sums, int a, int b>
  static void multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(a), "i"(b));
  }
};
#endif

std::string ask_for_tiles() {
#if CONVTUNE_AMX
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1U << 22, kTiles = 1U << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16) == 0 || (d & kTiles) == 0)
    return "this processor has no amx_bf16";
  // Since Linux 5.16: a process asks for registers that are larger than signal frames used to be.
  constexpr long kAskForState = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kAskForState, kTileData) != 0)
    return std::string("Linux does not let this process use AMX's tiles: ") + std::strerror(errno);
  return {};
#else
  return "AMX is a part of x86 processors under Linux";
#endif
}

}  // namespace

const AmxKernels& amx_kernels() {
#if CONVTUNE_AMX
  static constexpr AmxKernels kernels = amx_kernels_of<ProcessorTiles>();
#else
  static constexpr AmxKernels kernels{};
#endif
  return kernels;
}

const std::string& amx_missing() {
  return once([] { return ask_for_tiles(); });
}

}  // namespace convtune::cpu
