// The vector code of the depthwise convolution for a filter's row of any length: values of x slide through
// the registers, each loaded once for all taps that multiply it. Included once for each target, as
// vectors-inl.h is, behind <hwy/foreach_target.h>, by the code of pixels and of planes.
#if defined(CONVTUNE_DEPTHWISE_TAPS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_DEPTHWISE_TAPS_INL
#undef CONVTUNE_DEPTHWISE_TAPS_INL
#else
#define CONVTUNE_DEPTHWISE_TAPS_INL
#endif

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cpu/tile/elements-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR  // there, nothing is split into even and odd, and nobody asks
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// Processors with SSE4 alone have kernels of filters of three rows or columns, and those for all.
constexpr bool kFewKernels = HWY_TARGET == HWY_SSE4;

// The outputs of a register tile: each has its sums and the value that slides past it, of so many parts, and
// there is a weight for each part.
template <int parts>
constexpr int kSlidingOutputs = (kRegisters - parts) / (2 * parts);

// Values of x, step columns apart, before the first one that lies `distance` columns on or farther.
HWY_INLINE std::int64_t values_before(std::int64_t distance, std::int64_t step) {
  return distance <= 0 ? 0 : (distance - 1) / step + 1;
}

// Adds tap t, the values of which are loaded but for the last: value t + j is in place (turn + j) % outputs.
template <class Kind, int parts, int turn, int outputs, int rows, int columns, class Load>
HWY_INLINE void add_tap(const float* weights, std::int64_t t, const Load& load,
                        SizedVector (&value)[outputs][parts], SizedVector (&acc)[rows][columns]) {
  SizedVector weight[parts];
  Kind::load_weights(weights, weight);
  load(t + outputs - 1, value[(turn + outputs - 1) % outputs]);
  CONVTUNE_UNROLL
  for (int i = 0; i < outputs * parts; ++i) {
    SizedVector& sum = acc[i / columns][i % columns];
    sum = Kind::add(weight[i % parts], value[(turn + i / parts) % outputs][i % parts], sum);
  }
}

// Adds taps [begin, end) to the sums of a register tile, acc[output * parts + part] in rows of any length:
// output j multiplies tap t by value t + j. load(i, value) loads value i; Kind loads weights and multiplies.
template <class Kind, int parts, int rows, int columns, class Load>
HWY_INLINE void slide_taps(const float* weights, std::int64_t weight_step, std::int64_t begin,
                           std::int64_t end, const Load& load, SizedVector (&acc)[rows][columns]) {
  constexpr int outputs = rows * columns / parts;
  if (begin >= end) return;
  weights += begin * weight_step;
  SizedVector value[outputs][parts];
  CONVTUNE_UNROLL
  for (int j = 0; j + 1 < outputs; ++j) load(begin + j, value[j]);
  // After so many taps values are where they were: unrolled, none is moved from register to register.
  [&]<int... turn>(std::integer_sequence<int, turn...>) HWY_ATTR {
    std::int64_t t = begin;
    while (((add_tap<Kind, parts, turn>(weights, t, load, value, acc), weights += weight_step, ++t < end) &&
            ...)) {
    }
  }
  (std::make_integer_sequence<int, outputs>());
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
#endif
HWY_AFTER_NAMESPACE();

#endif
