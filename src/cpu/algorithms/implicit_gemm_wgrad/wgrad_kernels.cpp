// Written once with Highway and compiled by foreach_target.h for each instruction set
// (docs/decisions/0004).
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_kernels.h"

#include "cpu/tile/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/algorithms/implicit_gemm_wgrad/wgrad_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

constexpr int kWgradRows = kRegisters == 32 ? 8 : 4;

template <int rows, int vectors>
HWY_INLINE void add_to(const SizedVector (&acc)[rows][vectors], float* sums) {
  const Floats d;
  CONVTUNE_UNROLL
  for (int i = 0; i < rows; ++i) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) {
      float* const to = sums + (i * vectors + v) * kLanes;
      hn::Store(hn::Add(hn::Load(d, to), acc[i][v]), d, to);
    }
  }
}

template <int vectors>
void multiply_wgrad(const WgradArgs& shared) {
  const WgradArgs args = shared;  // a copy, so that stores to sums cannot be taken to change it
  const Floats d;
  SizedVector acc[kWgradRows][vectors];
  clear(acc);
  for (const WgradRun *run = args.runs, *const end = run + args.run_count; run < end; ++run) {
    const float *vector = args.vectors + run->vector, *word = args.words + run->word;
    for (std::int64_t j = 0; j < run->count; ++j, vector += args.vector_step, word += args.word_step)
      add_products<F32Products>(
          acc, [&](int v) HWY_ATTR { return hn::Load(d, vector + v * kLanes); }, word);
  }
  add_to(acc, args.sums);
}

template <int vectors>
void multiply_each(const WgradArgs& shared) {
  const WgradArgs args = shared;
  const Floats d;
  SizedVector acc[1][vectors];
  clear(acc);
  for (const WgradRun *run = args.runs, *const end = run + args.run_count; run < end; ++run) {
    const float *vector = args.vectors + run->vector, *word = args.words + run->word;
    for (std::int64_t j = 0; j < run->count; ++j, vector += args.vector_step, word += args.word_step) {
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v)
        acc[0][v] = hn::MulAdd(hn::Load(d, word + v * kLanes), hn::Load(d, vector + v * kLanes), acc[0][v]);
    }
  }
  add_to(acc, args.sums);
}

// Unused where wgrad_kernels() has no width for the target.
[[maybe_unused]] constexpr WgradKernels kWgradTable = {
    kLanes,
    kWgradRows,
    {multiply_wgrad<1>, multiply_wgrad<2>, multiply_wgrad<3>},
    {multiply_each<1>, multiply_each<2>, multiply_each<3>, multiply_each<4>}};

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

const WgradKernels* wgrad_kernels(int vector_bits) {
  return CONVTUNE_KERNELS_OF_WIDTH(WgradKernels, vector_bits, kWgradTable);
}

}  // namespace convtune::cpu
#endif
