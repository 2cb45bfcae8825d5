#include "cpu/tile/instruction_sets.h"

#include <hwy/detect_targets.h>

#include <algorithm>

#if defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

#if defined(__x86_64__)
#define X86(feature) (__builtin_cpu_supports(feature) != 0)
#else
#define X86(feature) false
#endif

namespace convtune::cpu {
namespace {

bool is_aarch64() {
#if defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

// The length that this process's vectors have: 0 without SVE.
int sve_bits() {
#if defined(__aarch64__)
  if ((getauxval(AT_HWCAP) & HWCAP_SVE) == 0) return 0;
  const int length = prctl(PR_SVE_GET_VL);
  return length < 0 ? 0 : (length & PR_SVE_VL_LEN_MASK) * 8;
#else
  return 0;
#endif
}

#define DECLARE(name, bits, registers, masks, target, has, ...) [[maybe_unused]] bool has_##name();
CONVTUNE_INSTRUCTION_SETS(DECLARE)
#define DEFINE(name, bits, registers, masks, target, has, ...) \
  bool has_##name() {                                          \
    return has;                                                \
  }
CONVTUNE_INSTRUCTION_SETS(DEFINE)

constexpr long long kTargets = HWY_TARGETS;  // a macro that names the table itself
constexpr InstructionSet kSets[] = {
#define LIST(name, bits, registers, masks, target, has, ...) \
  {#name, bits, registers, (kTargets & HWY_##target) != 0, has_##name},
    CONVTUNE_INSTRUCTION_SETS(LIST)};

}  // namespace

std::span<const InstructionSet> instruction_sets() {
  return kSets;
}

std::string widest_instruction_set() {
  const auto* const set = std::ranges::find_if(kSets, [](const auto& one) { return one.runs_here(); });
  return set == std::end(kSets) ? "scalar" : std::string(set->name);
}

bool multiplies_bf16() {
  return X86("avx512bf16");
}

int widest_vector_bits(const DeviceInfo& info) {
  const auto* const set = std::ranges::find(kSets, info.isa, &InstructionSet::name);
  if (set == std::end(kSets)) return 0;
  // A build for another kind of processor has sets of its own instead, of which none is wider than this one.
  int bits = 0;
  for (const InstructionSet& one : kSets)
    if (one.compiled && one.vector_bits <= set->vector_bits) bits = std::max(bits, one.vector_bits);
  return bits;
}

}  // namespace convtune::cpu
