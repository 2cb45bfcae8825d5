// Weights in half precision that are gathered while they are packed: gather_numbers.cuh and tile/pack.cuh in
// one pass, for gradients of x, whose filters are others in each step. A thread packs 16 bytes. Of threads
// beside each other the taps are beside each other, behind them the channels of dx, as they lie in the
// filter: each load of a warp is of one piece of memory.
#include "cuda/launch/gather_axes.h"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune {

// How units of 8 halves are dealt to threads, for kernels that read [.][tap][.][filter][piece, exchanged]:
// taps have `between` steps of other channels between each other.
struct GatherDeal {
  long long taps = 1, between = 1, filters = 1, pieces = 1;

  constexpr long long step_units() const { return filters * pieces; }
  template <class Index>
  constexpr Index unit_of(Index i) const {
    const auto take = [&](long long count) {
      const Index index = i % static_cast<Index>(count);
      i /= static_cast<Index>(count);
      return index;
    };
    const Index tap = take(taps), filter = take(filters), piece = take(pieces), step = take(between);
    const Index count = static_cast<Index>(pieces);
    return ((i * static_cast<Index>(taps) + tap) * static_cast<Index>(between) + step) *
               static_cast<Index>(step_units()) +
           filter * count + (piece ^ filter * count / 8 % count);
  }
};
template <auto config, GatherAxes axes>
__device__ constexpr GatherDeal gather_deal() {
  constexpr long long kUnits = config.packed().prepared / 4, kMost = 64;
  constexpr auto kSources = sources<config>();
  GatherDeal deal{.pieces = config.pieces()};
  if constexpr (requires { config.filters(); })
    deal.filters = config.filters();
  else
    deal.filters = config.filters;
  const long long units = deal.step_units(), first = axes.source_of(kSources.source_of(0));
  const unsigned taps = axes.extents[GatherAxes::kTaps + 2];
  for (long long step = 1; taps > 1 && step <= kMost && taps * step * units <= kUnits; ++step) {
    if (kUnits % (taps * step * units) != 0) continue;
    const long long source = kSources.source_of(8 * step * units);
    if (source < 0 || axes.source_of(source) != first + axes.steps[GatherAxes::kTaps + 2]) continue;
    deal.taps = taps, deal.between = step;
    break;
  }
  return deal;
}

// `kFlags`: says in the flag, which must be 0 before, whether a weight is not finite. Where nothing is
// multiplied by padding nobody needs to know, and the flag is made 0 here.
template <auto config, GatherAxes axes, bool kFlags>
__global__ void __launch_bounds__(kPackThreads)
    gather_and_pack(const void* __restrict__ w, const void* __restrict__ bias,
                    unsigned* __restrict__ packed) {
  constexpr Packed kAt = config.packed();
  constexpr ElementType kType = config.conv.x_type;
  constexpr long long kUnits = kAt.prepared / kAt.unit;
  constexpr auto kSources = sources<config>();
  constexpr GatherDeal kDeal = gather_deal<config, axes>();
  static_assert(kAt.unit == 4 && kAt.prepared % 4 == 0 && kAt.weights == 0);
  ptx::wait_for_earlier_grids(w);
  const long long thread = blockIdx.x * static_cast<long long>(kPackThreads) + threadIdx.x;
  if (!kFlags && kAt.flagged && thread == 0) packed[kAt.flag_at()] = 0;
  if (thread >= kAt.threads()) return;
  if (thread >= kUnits) {
    copy_word<kType, config.conv.bias_type>(kAt, w, bias, packed, thread - kUnits + kAt.prepared);
    return;
  }
  using Index = typename IndexThat<(kAt.prepared < 1LL << 31)>::Fits;
  const Index unit = kDeal.unit_of(static_cast<Index>(thread));
  const auto source_of = [&](int i) -> long long {
    const long long source = kSources.source_of(static_cast<long long>(8 * unit | i));
    return source < 0 ? -1 : axes.source_of(static_cast<Index>(source));
  };
  const auto* const from = static_cast<const unsigned short*>(w);
  constexpr long long kNext = axes.steps[GatherAxes::kFilters];
  const long long first = source_of(0);
  unsigned words[4];
  if (first >= 0 && source_of(7) == first + 7 * kNext) {
    unsigned halves[8];  // all are loaded before one is looked at
#pragma unroll
    for (int i = 0; i < 8; ++i) halves[i] = from[first + i * kNext];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = halves[2 * i] | halves[2 * i + 1] << 16;
  } else {
    unsigned long long lower = 0, upper = 0;
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      const long long source = source_of(i);
      const unsigned long long half = source < 0 ? 0 : from[source];
      lower = lower >> 16 | upper << 48, upper = upper >> 16 | half << 48;
    }
    words[0] = static_cast<unsigned>(lower), words[1] = static_cast<unsigned>(lower >> 32);
    words[2] = static_cast<unsigned>(upper), words[3] = static_cast<unsigned>(upper >> 32);
  }
  bool finite = true;
  if (kFlags)
#pragma unroll
    for (int i = 0; i < 8; ++i)
      finite &= is_finite(__float_as_uint(low_half<kType>(words[i / 2] >> 16 * (i % 2) & 0xffff)));
  reinterpret_cast<uint4*>(packed)[unit] = {words[0], words[1], words[2], words[3]};
  if (!finite) packed[kAt.flag_at()] = 1;
}

}  // namespace convtune
