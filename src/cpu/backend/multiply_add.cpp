#include "cpu/backend/multiply_add.h"

#include "cpu/tile/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backend/multiply_add.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// Chains enough to hide a latency of 4 cycles (5 on older cores) on two pipes, or on four where there are 32
// registers; together with the two factors they fit the registers.
constexpr int kChains = kRegisters >= 32 ? 24 : 12;

// The sums tend to 1: no overflow and no denormals, however many rounds.
float multiply_add(std::int64_t rounds) {
  const Floats d;
  const volatile float factor = 0.75F, term = 0.25F;  // volatile: unknown to the compiler
  const Vector factors = hn::Set(d, factor), terms = hn::Set(d, term);
  SizedVector sums[kChains];
  CONVTUNE_UNROLL
  for (int i = 0; i < kChains; ++i) sums[i] = hn::Set(d, factor + static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
    CONVTUNE_UNROLL
    for (int i = 0; i < kChains; ++i) sums[i] = hn::MulAdd(sums[i], factors, terms);
  }
  CONVTUNE_UNROLL
  for (int i = 1; i < kChains; ++i) sums[0] = hn::Add(sums[0], sums[i]);
  return hn::GetLane(static_cast<Vector>(sums[0]));
}

constexpr MultiplyAddKernel kKernel = {2 * kLanes * kChains, multiply_add};

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

const MultiplyAddKernel& multiply_add_kernel(int vector_bits) {
  const auto* const kernel = CONVTUNE_KERNELS_OF_WIDTH(MultiplyAddKernel, vector_bits, kKernel);
  return kernel != nullptr ? *kernel : HWY_STATIC_DISPATCH(kKernel);
}

}  // namespace convtune::cpu
#endif
