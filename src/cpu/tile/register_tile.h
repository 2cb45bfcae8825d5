// Register tiles as their callers see them: sums of `rows` numbers by `vectors` vectors, which a kernel keeps
// in registers. Kernels are made of cpu/tile/register_tile-inl.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace convtune::cpu {

struct TileSize {
  int rows, vectors;
};

// Sums, the fewer of rows and vectors, and one of the others must fit the registers.
constexpr bool fits_registers(TileSize size, int registers) {
  return size.rows * size.vectors + std::min(size.rows, size.vectors) + 1 <= registers;
}

// kernels[v - 1] does the first v vectors of a register tile: the end of an output tile needs no more.
constexpr int kMaxTileVectors = 8;
template <class Kernel>
struct RegisterTile {
  int rows, vectors;
  std::array<Kernel, kMaxTileVectors> kernels;
};
template <class Kernel>
using RegisterTiles = std::span<const RegisterTile<Kernel>>;

// Null where there is no such register tile.
template <class Kernel>
const RegisterTile<Kernel>* find_tile(RegisterTiles<Kernel> tiles, int rows, int vectors) {
  for (const RegisterTile<Kernel>& tile : tiles)
    if (tile.rows == rows && tile.vectors == vectors) return &tile;
  return nullptr;
}

// The kernel of `vectors` vectors of a register tile of so many rows; null where there is none.
template <class Kernel>
Kernel find_kernel(RegisterTiles<Kernel> tiles, std::int64_t rows, std::int64_t vectors) {
  for (const RegisterTile<Kernel>& tile : tiles)
    if (tile.rows == rows && vectors <= tile.vectors)
      return tile.kernels[static_cast<std::size_t>(vectors - 1)];
  return nullptr;
}

}  // namespace convtune::cpu
