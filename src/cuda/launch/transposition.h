// A transposition as data: what it moves, and the kernel that does (transpose_tile.cuh).
#pragma once

#include <cstdint>
#include <string>

#include "cuda/compile/compiler.h"

namespace convtune::cuda {

// `batch` matrices of elements of 2 or 4 bytes, [rows][cols] to [cols][rows]: NCHW to NHWC with channels as
// rows and pixels as columns, and back the other way round.
struct Transposition {
  static constexpr const char* kFile = "cuda/launch/transpose_tile.cuh";
  std::int64_t batch = 1, rows = 1, cols = 1, element_bytes = 4;

  // Output and input are the same sequence of numbers: one row, or one column.
  bool is_copy() const { return rows == 1 || cols == 1; }
  std::size_t bytes() const { return static_cast<std::size_t>(batch * rows * cols * element_bytes); }
  // How many of the kernel's tiles a matrix is high and wide. A launch has at most kMostBlocks.
  std::int64_t row_tiles() const;
  std::int64_t col_tiles() const;
  std::int64_t blocks() const { return batch * row_tiles() * col_tiles(); }
  static constexpr std::int64_t kMostBlocks = 2147483647;
  // "convtune::transpose_wide<unsigned>". Of no copy.
  std::string kernel() const;
  CompileJob job(const std::string& arch) const;

  bool operator==(const Transposition&) const = default;
};

}  // namespace convtune::cuda
