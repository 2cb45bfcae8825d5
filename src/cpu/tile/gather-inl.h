// What each of some pixels multiplies, put together from runs of a window (GatherArgs). Included once for
// each target, as vectors-inl.h is, behind <hwy/foreach_target.h>.
#if defined(CONVTUNE_GATHER_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_GATHER_INL
#undef CONVTUNE_GATHER_INL
#else
#define CONVTUNE_GATHER_INL
#endif

#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/tile/elements-inl.h"
#include "cpu/tile/gather.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR  // there, nobody asks
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// What lies at `from` where the mask has bits, else what is there.
template <class D>
HWY_INLINE auto load_over(hn::Vec<D> all, hn::Mask<D> mask, D d, const Bf16* from) {
#if HWY_TARGET == HWY_AVX3
  all.raw = _mm512_mask_loadu_epi16(all.raw, mask.raw, from);
  return all;
#else
  return hn::IfThenElse(mask, hn::LoadU(d, from), all);  // around runs may be read
#endif
}

// A vector of so many pieces, which are blended as they are loaded. Where they fill it, the first needs no
// mask.
template <int count, bool filled>
void gather_pieces(const GatherArgs& args) {
  const hn::Repartition<Bf16, Floats> d;
  std::uint8_t masks[count + 1][8] = {};  // LoadMaskBits() reads so many
  const Bf16* from[count + 1];
  for (int i = 0; i < count; ++i) {
    const GatherPiece& piece = args.vector->pieces[static_cast<std::size_t>(i)];
    std::memcpy(masks[i], &piece.mask, sizeof piece.mask);
    from[i] = args.x + piece.from;
  }
  const std::int32_t* const offsets = args.offsets;
  const std::int64_t pixels = args.pixels, to_step = args.to_step;
  Bf16* to = args.to;
  for (std::int64_t j = 0; j < pixels; ++j, to += to_step) {
    const std::int64_t at = offsets[j];
    auto all = hn::Zero(d);
    if constexpr (filled)
      all = hn::LoadU(d, from[0] + at);
    else if constexpr (count > 0)
      all = hn::IfThenElseZero(hn::LoadMaskBits(d, masks[0]), hn::LoadU(d, from[0] + at));
    CONVTUNE_UNROLL
    for (int i = 1; i < count; ++i) all = load_over(all, hn::LoadMaskBits(d, masks[i]), d, from[i] + at);
    hn::StoreU(all, d, to);
  }
}

template <int... pieces>
void gather_any(const GatherArgs& args, std::integer_sequence<int, pieces...>) {
  using Gather = void (*)(const GatherArgs&);
  static constexpr Gather kSome[] = {gather_pieces<pieces, false>...};
  static constexpr Gather kFilled[] = {gather_pieces<pieces, (pieces > 0)>...};
  (args.vector->filled ? kFilled : kSome)[args.vector->pieces.size()](args);
}

void gather(const GatherArgs& args) {
  // Runs may have one element.
  gather_any(args, std::make_integer_sequence<int, 2 * kLanes + 1>());
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
#endif
HWY_AFTER_NAMESPACE();

#endif
