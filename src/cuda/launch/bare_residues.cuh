// Stores elements of dx that no tap meets: their bias, residual and activation. A thread has one element, met
// or not.
#include "cuda/launch/bare_residues.h"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/epilogue.cuh"

namespace convtune {

template <BareResidues what>
__global__ void __launch_bounds__(BareResidues::kThreads)
    store_bare_residues(const float* __restrict__ bias, const void* residual, void* y) {
  constexpr ConvExtents a = what.conv;
  constexpr long long kElements = what.elements();
  ptx::wait_for_earlier_grids();
  const long long i = 1LL * blockIdx.x * BareResidues::kThreads + threadIdx.x;
  if (i >= kElements) return;
  const auto at = [&](auto index) {
    const int channel = static_cast<int>(a.nhwc ? index % a.k : index / (a.z * a.p * a.q) % a.k);
    const auto pixel = a.nhwc ? index / a.k : index % (a.z * a.p * a.q);
    const int column = static_cast<int>(pixel % a.q), row = static_cast<int>(pixel / a.q % a.p);
    if (what.is_met(static_cast<int>(pixel / (a.p * a.q) % a.z), row, column)) return;
    float other = 0;
    if constexpr (what.conv.residual) other = load_element<what.conv.y_type>(residual, i);
    store_element<what.conv.y_type>(y, i, finish<what.conv>(0, bias[what.bias_of(channel)], other));
  };
  if constexpr (kElements < (1LL << 31))
    at(static_cast<int>(i));
  else
    at(i);
}

}  // namespace convtune
