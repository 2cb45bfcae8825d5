// Stores elements of dx that no tap meets: their bias, residual and activation. A block has a piece of a
// plane, whose channel is one; or, channels last and where planes are small, a thread has one element, met or
// not.
#include "cuda/launch/bare_residues.h"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/epilogue.cuh"

namespace convtune {

template <BareResidues what>
__device__ __forceinline__ void store_bare_piece(const float* __restrict__ bias, const void* residual,
                                                 void* y) {
  constexpr ConvExtents a = what.conv;
  const unsigned piece = blockIdx.x % what.pieces(), of_all = blockIdx.x / what.pieces();
  const int frame = static_cast<int>(of_all % a.z), channel = static_cast<int>(of_all / a.z % a.k);
  const bool met = what.is_met(what.met_d, frame + what.pad_d, what.stride_d);
  const float addend = bias[what.bias_of(channel)], bare = a.residual ? 0 : finish<a>(0, addend, 0);
  const long long plane = static_cast<long long>(of_all) * what.plane();
  const int first = static_cast<int>(piece) * what.kPiece + static_cast<int>(threadIdx.x);
  const int end = lesser(what.plane(), static_cast<int>(piece + 1) * what.kPiece);
#pragma unroll 8
  for (int i = first; i < end; i += what.kThreads) {
    if (met && what.is_met(i / a.q, i % a.q)) continue;
    if constexpr (a.residual)
      store_element<a.y_type>(y, plane + i,
                              finish<a>(0, addend, load_element<a.y_type>(residual, plane + i)));
    else
      store_element<a.y_type>(y, plane + i, bare);
  }
}

template <BareResidues what>
__global__ void __launch_bounds__(BareResidues::kThreads)
    store_bare_residues(const float* __restrict__ bias, const void* residual, void* y) {
  constexpr ConvExtents a = what.conv;
  constexpr long long kElements = what.elements();
  ptx::wait_for_earlier_grids();
  if constexpr (what.by_planes()) return store_bare_piece<what>(bias, residual, y);
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
