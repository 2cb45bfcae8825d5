// Vectors of floats from and to elements of any type in memory, and blocks of them transposed. Included once
// for each target, as vectors-inl.h is, behind <hwy/foreach_target.h>.
#if defined(CONVTUNE_ELEMENT_TYPES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_ELEMENT_TYPES_INL
#undef CONVTUNE_ELEMENT_TYPES_INL
#else
#define CONVTUNE_ELEMENT_TYPES_INL
#endif

#include <cstdint>
#include <cstring>

#include "convtune/problem.h"
#include "cpu/tile/elements-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR  // there, nothing is transposed, and nobody asks
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// Nearest, ties to even; a NaN stays one.
HWY_INLINE BitVector to_bf16(Vector v) {
  const Bits du;
  const BitVector quiet = hn::Or(hn::BitCast(du, v), hn::Set(du, 0x400000));
  return hn::ShiftRight<16>(hn::BitCast(
      du, hn::IfThenElse(hn::IsNaN(v), hn::BitCast(Floats(), quiet), hn::BitCast(Floats(), round_bf16(v)))));
}

// The exponents are moved by a product, which is exact for subnormal numbers too.
HWY_INLINE Vector from_f16(BitVector bits) {
  const Floats d;
  const Bits du;
  const BitVector magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fff)));
  const BitVector sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
  const Vector moved = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112F));
  // Infinity and NaN came out as 65536 and more.
  const Vector special = hn::BitCast(d, hn::Or(magnitude, hn::Set(du, 0x7f800000)));
  const Vector value = hn::IfThenElse(hn::Ge(moved, hn::Set(d, 65536.0F)), special, moved);
  return hn::BitCast(d, hn::Or(hn::BitCast(du, value), sign));
}

// Nearest, ties to even. Numbers below 2^-14 are rounded by adding one in whose last place they end.
HWY_INLINE BitVector to_f16(Vector v) {
  const Floats d;
  const Bits du;
  const BitVector bits = hn::BitCast(du, v);
  const BitVector sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000));
  const BitVector magnitude = hn::And(bits, hn::Set(du, 0x7fffffff));
  const Vector size = hn::BitCast(d, magnitude);
  const BitVector odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
  const BitVector normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, hn::Set(du, 0xc8000fffU))));
  const BitVector subnormal =
      hn::Sub(hn::BitCast(du, hn::Add(size, hn::Set(d, 0.5F))), hn::Set(du, 0x3f000000));
  const auto choose = [&](auto mask, BitVector yes, BitVector no) {
    return hn::BitCast(du, hn::IfThenElse(mask, hn::BitCast(d, yes), hn::BitCast(d, no)));
  };
  BitVector half = choose(hn::Lt(size, hn::Set(d, 0x1p-14F)), subnormal, normal);
  half = choose(hn::Ge(size, hn::Set(d, 65520.0F)), hn::Set(du, 0x7c00), half);
  half = choose(hn::IsNaN(v), hn::Set(du, 0x7e00), half);
  return hn::Or(half, sign);
}

// Compilers warn of no switch here, below a header of Highway's: a further type is answered in the next three
// functions.
static_assert(kLastDType == DType::bf16);

HWY_INLINE Vector load_floats(DType type, const void* from) {
  switch (type) {
    case DType::f32:
      return hn::LoadU(Floats(), static_cast<const float*>(from));
    case DType::f16:
      return from_f16(load_halves(from));
    case DType::bf16:
      break;
  }
  return from_bf16(load_halves(from));
}

HWY_INLINE void store_floats(DType type, Vector v, void* to) {
  switch (type) {
    case DType::f32:
      return hn::StoreU(v, Floats(), static_cast<float*>(to));
    case DType::f16:
      return hn::StoreU(narrow(to_f16(v)), Halves(), static_cast<Bf16*>(to));
    case DType::bf16:
      return hn::StoreU(narrow(to_bf16(v)), Halves(), static_cast<Bf16*>(to));
  }
}

HWY_INLINE Vector rounded_to(DType type, Vector v) {
  switch (type) {
    case DType::f32:
      return v;
    case DType::f16:
      return from_f16(to_f16(v));
    case DType::bf16:
      break;
  }
  return from_bf16(to_bf16(v));
}

// The first `count` elements, zeros behind them. Nothing past them is touched: it may be another thread's.
HWY_INLINE Vector load_some(DType type, const void* from, std::int64_t count, std::int64_t bytes) {
  if (count >= kLanes) return load_floats(type, from);
  HWY_ALIGN unsigned char whole[kLanes * sizeof(float)] = {};
  std::memcpy(whole, from, static_cast<std::size_t>(count * bytes));
  return load_floats(type, whole);
}
HWY_INLINE void store_some(DType type, Vector v, void* to, std::int64_t count, std::int64_t bytes) {
  if (count >= kLanes) return store_floats(type, v, to);
  HWY_ALIGN unsigned char whole[kLanes * sizeof(float)];
  store_floats(type, v, whole);
  std::memcpy(to, whole, static_cast<std::size_t>(count * bytes));
}

// ---- Transposing ----

// Transposes within rows 4g to 4g+3: block b of row 4g+j becomes column 4b+j of them.
HWY_INLINE void transpose_blocks(SizedVector* row) {
  const Floats d;
  const hn::Repartition<double, Floats> pairs;
  const Vector a = row[0], b = row[1], c = row[2], e = row[3];
  const auto lower = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
  const auto upper = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto next_lower = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
  const auto next_upper = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  row[0] = hn::BitCast(d, hn::InterleaveLower(pairs, lower, next_lower));
  row[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, lower, next_lower));
  row[2] = hn::BitCast(d, hn::InterleaveLower(pairs, upper, next_upper));
  row[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, upper, next_upper));
}

// A square of kLanes vectors.
template <int lanes>
HWY_INLINE void transpose(SizedVector (&row)[lanes]) {
  const Floats d;
  if constexpr (lanes >= 4) {
    for (int group = 0; group < lanes; group += 4) transpose_blocks(row + group);
  }
  if constexpr (lanes == 8) {
    for (int j = 0; j < 4; ++j) {
      const Vector a = row[j], b = row[4 + j];
      row[j] = hn::ConcatLowerLower(d, b, a);
      row[4 + j] = hn::ConcatUpperUpper(d, b, a);
    }
  } else if constexpr (lanes == 16) {
    for (int j = 0; j < 4; ++j) {
      const Vector a = row[j], b = row[4 + j], c = row[8 + j], e = row[12 + j];
      const Vector even = hn::ConcatLowerLower(d, c, a), odd = hn::ConcatLowerLower(d, e, b);
      const Vector upper_even = hn::ConcatUpperUpper(d, c, a), upper_odd = hn::ConcatUpperUpper(d, e, b);
      row[j] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd), even);
      row[4 + j] = hn::OddEvenBlocks(odd, hn::SwapAdjacentBlocks(even));
      row[8 + j] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(upper_odd), upper_even);
      row[12 + j] = hn::OddEvenBlocks(upper_odd, hn::SwapAdjacentBlocks(upper_even));
    }
  } else {
    static_assert(lanes <= 4);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
#endif
HWY_AFTER_NAMESPACE();

#endif
