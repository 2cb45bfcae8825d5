// See transposition.h.
#include "cuda/launch/transposition.h"

#include <fmt/format.h>

#include "cuda/launch/transpose_tile.h"

namespace convtune::cuda {
namespace {

std::int64_t parts(std::int64_t whole, std::int64_t part) {
  return (whole + part - 1) / part;
}

struct Tile {
  std::int64_t rows, cols;

  std::int64_t moved(const Transposition& what) const {  // elements, those outside of the matrix too
    return parts(what.rows, rows) * rows * parts(what.cols, cols) * cols;
  }
};
template <class Wide>
Tile tile_of_wide(const Transposition& what) {
  return {Wide::kRows, Wide::cols_for(what.cols)};
}
// From NCHW, where both ways to go were measured: far fewer channels than pixels tell it from the way back,
// on which neither gains (a tenth was lost by 196 pixels of 256 channels).
bool rows_are_channels(const Transposition& what) {
  return what.element_bytes == 2 && 4 * what.rows < what.cols;
}
Tile tile_of(const Transposition& what) {
  if (TransposeConfig::is_narrow(what.rows, what.cols)) {
    const TransposeConfig config = TransposeConfig::for_matrix(what.rows, what.cols);
    return {config.tile_rows, config.tile_cols};
  }
  if (what.element_bytes == 4) return tile_of_wide<WideTranspose<4, 64>>(what);
  // Tiles of 64 channels leave a half of the last one idle where there are 32 or 96.
  const Tile usual = tile_of_wide<WideTranspose<2, 64>>(what),
             lower = tile_of_wide<WideTranspose<2, 128, 16>>(what);
  return rows_are_channels(what) && lower.moved(what) < usual.moved(what) ? lower : usual;
}

}  // namespace

std::int64_t Transposition::row_tiles() const {
  return parts(rows, tile_of(*this).rows);
}

std::int64_t Transposition::col_tiles() const {
  return parts(cols, tile_of(*this).cols);
}

std::string Transposition::kernel() const {
  const char* const element = element_bytes == 2 ? "unsigned short" : "unsigned";
  const Tile tile = tile_of(*this);
  if (!TransposeConfig::is_narrow(rows, cols))
    return fmt::format("convtune::transpose_wide<{},{},{},{}>", element, tile.cols,
                       tile.rows * element_bytes / 4, rows_are_channels(*this));
  return fmt::format("convtune::transpose<convtune::TransposeConfig{{.tile_rows={},.tile_cols={}}},{}>",
                     tile.rows, tile.cols, element);
}

CompileJob Transposition::job(const std::string& arch) const {
  return kernel_job(kFile, kernel(), arch);
}

}  // namespace convtune::cuda
