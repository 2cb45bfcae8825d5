// Register tiles: sums of products that stay in registers, and the tables of kernels that are made of them.
// Products are of words: of f32, or of pairs of bf16 where the instruction set has them, which
// CONVTUNE_BF16_PAIRS says. Included once for each target, as vectors-inl.h is, behind
// <hwy/foreach_target.h>.
#if defined(CONVTUNE_REGISTER_TILE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_REGISTER_TILE_INL
#undef CONVTUNE_REGISTER_TILE_INL
#else
#define CONVTUNE_REGISTER_TILE_INL
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "cpu/tile/register_tile.h"
#include "cpu/tile/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// ---- Products ----

struct F32Products {
  static HWY_INLINE Vector add(Vector a, Vector b, Vector sums) { return hn::MulAdd(a, b, sums); }
};

#undef CONVTUNE_BF16_PAIRS
#if HWY_TARGET == HWY_AVX3 && HWY_ARCH_X86
#define CONVTUNE_BF16_PAIRS 1
// Both products of each lane's pairs. Highway 1.0 widens them instead, and a target of the compiler's for
// this one instruction would be a fourth copy of everything. Denormal bf16 operands and results count as 0.
struct Bf16Products {
  static HWY_INLINE Vector add(Vector a, Vector b, Vector sums) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sums.raw) : "v"(a.raw), "v"(b.raw));
    return sums;
  }
};
#else
#define CONVTUNE_BF16_PAIRS 0
#endif

// ---- Sums ----
// Loops over rows and vectors have constant bounds and unroll whole, so that sums stay in registers.

// sums[i][v] = value(i, v).
template <int rows, int vectors, class Value>
HWY_INLINE void fill(SizedVector (&sums)[rows][vectors], Value&& value) {
  CONVTUNE_UNROLL
  for (int i = 0; i < rows; ++i) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) sums[i][v] = value(i, v);
  }
}

template <int rows, int vectors>
HWY_INLINE void clear(SizedVector (&sums)[rows][vectors]) {
  fill(sums, [](int, int) HWY_ATTR { return hn::Zero(Floats()); });
}

// Row i goes to to[i * row_step], aligned to whole vectors.
template <int rows, int vectors>
HWY_INLINE void store_sums(const SizedVector (&sums)[rows][vectors], float* to, std::int64_t row_step) {
  CONVTUNE_UNROLL
  for (int i = 0; i < rows; ++i) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) hn::Store(sums[i][v], Floats(), to + i * row_step + v * kLanes);
  }
}

// Adds to each sum the product of its row's word, which broadcast(i) gives in all lanes, and of its vector,
// which load(v) gives. The fewer of both wait in registers beside the sums while the others pass, so that 12
// sums need no more than 16 of them.
template <class Products, int rows, int vectors, class Load, class Broadcast>
HWY_INLINE void add_products(SizedVector (&sums)[rows][vectors], Load&& load, Broadcast&& broadcast) {
  if constexpr (rows < vectors) {
    SizedVector word[rows];
    CONVTUNE_UNROLL
    for (int i = 0; i < rows; ++i) word[i] = broadcast(i);
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const Vector vector = load(v);
      CONVTUNE_UNROLL
      for (int i = 0; i < rows; ++i) sums[i][v] = Products::add(word[i], vector, sums[i][v]);
    }
  } else {
    SizedVector vector[vectors];
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) vector[v] = load(v);
    CONVTUNE_UNROLL
    for (int i = 0; i < rows; ++i) {
      const Vector word = broadcast(i);
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) sums[i][v] = Products::add(word, vector[v], sums[i][v]);
    }
  }
}

// Adds products of words that follow each other in memory, one a row.
template <class Products, int rows, int vectors, class Load>
HWY_INLINE void add_products(SizedVector (&sums)[rows][vectors], Load&& load, const float* words) {
  add_products<Products>(sums, load, [&](int i) HWY_ATTR { return hn::Set(Floats(), words[i]); });
}

// ---- Tables ----

// Tile::kernel<rows, vectors> is the kernel of a size.
template <class Kernel, class Tile, int rows, int... fewer>
constexpr RegisterTile<Kernel> register_tile(std::integer_sequence<int, fewer...>) {
  static_assert(sizeof...(fewer) <= kMaxTileVectors);
  return {rows, sizeof...(fewer), {Tile::template kernel<rows, fewer + 1>...}};
}
template <class Kernel, class Tile, const auto& sizes, std::size_t... i>
constexpr std::array<RegisterTile<Kernel>, sizeof...(i)> register_tiles_of(std::index_sequence<i...>) {
  static_assert(kRegisters == 0 || (fits_registers(sizes[i], kRegisters) && ...));
  return {register_tile<Kernel, Tile, sizes[i].rows>(std::make_integer_sequence<int, sizes[i].vectors>())...};
}
template <class Kernel, class Tile, const auto& sizes>
constexpr std::array kRegisterTiles =
    register_tiles_of<Kernel, Tile, sizes>(std::make_index_sequence<std::size(sizes)>());

// Sizes for 32 registers are `many`, those for fewer `few`.
template <class Kernel, class Tile, const auto& few, const auto& many>
constexpr RegisterTiles<Kernel> register_tiles() {
  if constexpr (kRegisters == 32)
    return kRegisterTiles<Kernel, Tile, many>;
  else
    return kRegisterTiles<Kernel, Tile, few>;
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#endif
