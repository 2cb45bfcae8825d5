// Stores elements of dx that no tap meets: their bias, residual and activation. A block has a piece of a
// plane, whose channel is one; or, channels last and where planes are small, a thread has some units of
// elements, met or not.
#include "cuda/launch/bare_residues.h"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/epilogue.cuh"

namespace convtune {

template <BareResidues what>
__device__ __forceinline__ void store_bare_piece(const float* __restrict__ bias, const void* residual,
                                                 void* y) {
  constexpr ConvExtents a = what.conv;
  const unsigned piece = blockIdx.x % what.pieces(), of_all = blockIdx.x / what.pieces();
  const int frame = static_cast<int>(of_all % a.z), channel = static_cast<int>(of_all / a.z % a.k);
  const bool met = what.is_met(what.met_d, frame + what.pad_d, what.stride_d);
  const float addend = bias ? bias[what.bias_of(channel)] : 0,
              bare = a.residual ? 0 : finish<a>(0, addend, 0);
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

template <ElementType kType, int kUnit>
__device__ __forceinline__ void store_unit(void* y, long long unit, const float (&values)[kUnit]) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if constexpr (kType == ElementType::f32)
      words[i] = __float_as_uint(values[i]);
    else
      words[i] = pack_halves<kType>(values[2 * i], values[2 * i + 1]);
  static_cast<uint4*>(y)[unit] = {words[0], words[1], words[2], words[3]};
}

template <BareResidues what>
__device__ __forceinline__ void store_bare_units(const float* __restrict__ bias, const void* residual,
                                                 void* y) {
  constexpr ConvExtents a = what.conv;
  using Index = typename IndexThat<(what.units() < what.kInt)>::Fits;
  constexpr int kUnit = what.unit(), kPixel = a.k / kUnit, kFrames = a.z * a.p * a.q;
  // A thread's units have the same channels.
  constexpr bool kAlike = a.nhwc && !a.residual && what.kThreads % kPixel == 0;
  constexpr Index kAll = static_cast<Index>(what.units());
  const bool is_aligned = reinterpret_cast<unsigned long long>(y) % 16 == 0;
  const Index first = static_cast<Index>(blockIdx.x) * (what.kThreads * what.kUnits) + threadIdx.x;
  float values[kUnit];
  const auto finish_unit = [&](Index unit) {
    const int channel = static_cast<int>(a.nhwc ? unit % kPixel * kUnit : unit / kFrames % a.k);
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      float other = 0;
      if constexpr (what.conv.residual)
        other = load_element<what.conv.y_type>(residual, 1LL * unit * kUnit + i);
      values[i] = finish<what.conv>(0, bias ? bias[what.bias_of(channel + i)] : 0, other);
    }
  };
  if (first >= kAll) return;
  if constexpr (kAlike) finish_unit(first);
#pragma unroll
  for (int i = 0; i < what.kUnits; ++i) {
    const Index unit = first + i * what.kThreads;
    if (unit >= kAll) return;
    const Index pixel = a.nhwc ? unit / kPixel : unit % kFrames;
    if (what.is_met(static_cast<int>(pixel / (a.p * a.q) % a.z), static_cast<int>(pixel / a.q % a.p),
                    static_cast<int>(pixel % a.q)))
      continue;
    if constexpr (!kAlike) finish_unit(unit);
    if constexpr (kUnit > 1)
      if (is_aligned) {
        store_unit<a.y_type>(y, unit, values);
        continue;
      }
#pragma unroll
    for (int j = 0; j < kUnit; ++j) store_element<a.y_type>(y, 1LL * unit * kUnit + j, values[j]);
  }
}

template <BareResidues what>
__global__ void __launch_bounds__(BareResidues::kThreads)
    store_bare_residues(const float* __restrict__ bias, const void* residual, void* y) {
  ptx::wait_for_earlier_grids();
  if constexpr (what.by_planes())
    store_bare_piece<what>(bias, residual, y);
  else
    store_bare_units<what>(bias, residual, y);
}

}  // namespace convtune
