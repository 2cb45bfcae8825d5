// Vectors of floats for the target that is being compiled: included once for each, as Highway's own headers
// are.
#if defined(CONVTUNE_VECTORS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_VECTORS_INL
#undef CONVTUNE_VECTORS_INL
#else
#define CONVTUNE_VECTORS_INL
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;
constexpr int kLanes = HWY_MAX_BYTES / static_cast<int>(sizeof(float));

// Vectors and masks that may stand in an array. SVE's have no size until the compiler is told their length.
using Mask = hn::Mask<Floats>;
#if HWY_TARGET == HWY_SVE_256
using SizedVector = Vector __attribute__((arm_sve_vector_bits(256)));
using SizedMask = Mask __attribute__((arm_sve_vector_bits(256)));
#else
using SizedVector = Vector;
using SizedMask = Mask;
#endif

// The columns of the table (instruction_sets.h); 0 and false for a target without a row. kMaskedStores is
// false too where they are slow. They are asked for through a constant, since HWY_TARGET is a macro that
// names the table itself.
constexpr long long kTarget = HWY_TARGET;
#define CONVTUNE_REGISTERS_OF(name, bits, registers, masks, target, has, ...) \
  +(kTarget == HWY_##target ? registers : 0)
#define CONVTUNE_MASKS_OF(name, bits, registers, masks, target, has, ...) \
  || (kTarget == HWY_##target && masks)
constexpr int kRegisters = 0 CONVTUNE_INSTRUCTION_SETS(CONVTUNE_REGISTERS_OF);
constexpr bool kMaskedStores = false CONVTUNE_INSTRUCTION_SETS(CONVTUNE_MASKS_OF);
#undef CONVTUNE_REGISTERS_OF
#undef CONVTUNE_MASKS_OF

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#endif
