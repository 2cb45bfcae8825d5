// bf16 in memory, floats in registers. Included once for each target, as vectors-inl.h is, behind
// <hwy/foreach_target.h>.
#if defined(CONVTUNE_ELEMENTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_ELEMENTS_INL
#undef CONVTUNE_ELEMENTS_INL
#else
#define CONVTUNE_ELEMENTS_INL
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/tile/elements.h"
#include "cpu/tile/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

using Ints = hn::RebindToSigned<Floats>;
using Bits = hn::RebindToUnsigned<Floats>;
using Halves = hn::Rebind<Bf16, Floats>;
using BitVector = hn::Vec<Bits>;

HWY_INLINE Vector from_bf16(BitVector bits) {
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(bits));
}

// Nearest, ties to even, in the upper half of each lane. A NaN stays one if its lower half is 0: sums and
// products of bf16 make no other.
HWY_INLINE BitVector round_bf16(Vector v) {
  const Bits du;
  const BitVector bits = hn::BitCast(du, v);
  const BitVector odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  return hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff)));
}

// The lower half of each lane.
HWY_INLINE hn::Vec<Halves> narrow(BitVector bits) {
  return hn::DemoteTo(Halves(), hn::BitCast(Ints(), bits));
}

#if HWY_TARGET == HWY_AVX3
// Nearest, ties to even, by the instruction of processors with avx512_bf16: denormal numbers become 0.
HWY_INLINE hn::Vec<hn::Repartition<Bf16, Floats>> round_both(Vector lower, Vector upper) {
  hn::Vec<hn::Repartition<Bf16, Floats>> rounded;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(rounded.raw) : "v"(upper.raw), "v"(lower.raw));
  return rounded;
}
#endif

HWY_INLINE BitVector load_halves(const void* from) {
  return hn::PromoteTo(Bits(), hn::LoadU(Halves(), static_cast<const Bf16*>(from)));
}

// ---- kLanes elements ----

HWY_INLINE Vector load(const float* from) {
  return hn::LoadU(Floats(), from);
}
HWY_INLINE Vector load(const Bf16* from) {
  return from_bf16(load_halves(from));
}
HWY_INLINE void store(Vector v, float* to) {
  hn::StoreU(v, Floats(), to);
}

template <class T>
HWY_INLINE hn::Vec<Halves> to_halves(Vector v) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<T, InstructionBf16>) {
    hn::Vec<Halves> halves;
    asm("vcvtneps2bf16 %1, %0" : "=v"(halves.raw) : "v"(v.raw));
    return halves;
  }
#endif
  return narrow(hn::ShiftRight<16>(round_bf16(v)));
}
template <class T>
HWY_INLINE void store(Vector v, T* to) {
  hn::StoreU(to_halves<T>(v), Halves(), reinterpret_cast<Bf16*>(to));
}
HWY_INLINE void store_past_caches(Vector v, float* to) {
  hn::Stream(v, Floats(), to);
}
template <class T>
HWY_INLINE void store_past_caches(Vector v, T* to) {
  hn::Stream(to_halves<T>(v), Halves(), reinterpret_cast<Bf16*>(to));
}

// One after the other, where masked stores are slow or there are none. Not inlined into loops that store
// whole vectors.
template <class T>
HWY_NOINLINE void store_one_by_one(Vector v, T* to, std::int64_t skip, std::int64_t count) {
  HWY_ALIGN T lanes[kLanes];
  store(v, lanes);
  for (std::int64_t i = skip; i < count; ++i) to[i] = lanes[i];
}

// Lanes [skip, count), 0 <= skip < kLanes. No neighbour is touched, which another thread may be writing.
HWY_INLINE void store_lanes(Vector v, float* to, std::int64_t skip, std::int64_t count) {
  const Floats d;
  count = std::min<std::int64_t>(count, kLanes);
  if constexpr (kMaskedStores) {
    const auto first = [&](std::int64_t lanes) { return hn::FirstN(d, static_cast<std::size_t>(lanes)); };
    hn::BlendedStore(v, hn::AndNot(first(skip), first(count)), d, to);
  } else if (skip == 0 && count == kLanes) {
    store(v, to);
  } else {
    store_one_by_one(v, to, skip, count);
  }
}
template <class T>
HWY_INLINE void store_lanes(Vector v, T* to, std::int64_t skip, std::int64_t count) {
  count = std::min<std::int64_t>(count, kLanes);
#if HWY_TARGET == HWY_AVX3
  const auto mask = static_cast<__mmask16>((1U << count) - (1U << skip));
  _mm256_mask_storeu_epi16(to, mask, to_halves<T>(v).raw);
#else
  store_one_by_one(v, to, skip, count);
#endif
}

// ---- A vector of 32-bit words: kLanes floats, or twice as many bf16, the odd ones apart ----

#if HWY_TARGET != HWY_SCALAR  // there, no word holds two elements, and nobody asks

// Read once: GCC 12 reads memory again for every use of a value, which may lie across two lines of the cache.
HWY_INLINE Vector in_register(Vector v) {
#if HWY_TARGET == HWY_AVX3
  asm("" : "+v"(v.raw));
#endif
  return v;
}

template <class T>
constexpr int kParts = 4 / static_cast<int>(sizeof(T));

HWY_INLINE void load_parts(const float* from, SizedVector (&parts)[1]) {
  parts[0] = load(from);
}
HWY_INLINE void load_parts(const Bf16* from, SizedVector (&parts)[2]) {
  const hn::Repartition<Bf16, Floats> d;
  const Bits du;
  const BitVector words = hn::BitCast(du, in_register(hn::BitCast(Floats(), hn::LoadU(d, from))));
  parts[0] = from_bf16(words);
  parts[1] = hn::BitCast(Floats(), hn::And(words, hn::Set(du, 0xffff0000U)));
}
HWY_INLINE hn::Vec<hn::Repartition<Bf16, Floats>> join_parts(Vector even, Vector odd) {
  const Bits du;
  const BitVector upper = hn::And(round_bf16(odd), hn::Set(du, 0xffff0000U));
  return hn::BitCast(hn::Repartition<Bf16, Floats>(), hn::Or(hn::ShiftRight<16>(round_bf16(even)), upper));
}
HWY_INLINE void store_parts(Vector even, Vector odd, Bf16* to) {
  hn::StoreU(join_parts(even, odd), hn::Repartition<Bf16, Floats>(), to);
}
// The first `count`.
HWY_INLINE void store_parts(Vector even, Vector odd, Bf16* to, std::int64_t count) {
  if (count >= 2 * kLanes) return store_parts(even, odd, to);
#if HWY_TARGET == HWY_AVX3
  const auto mask = static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
  _mm512_mask_storeu_epi16(to, mask, join_parts(even, odd).raw);
#else
  HWY_ALIGN Bf16 lanes[2 * kLanes];
  store_parts(even, odd, lanes);
  std::copy_n(lanes, count, to);
#endif
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#endif
