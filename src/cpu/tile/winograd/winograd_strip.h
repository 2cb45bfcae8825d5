// The input's transform of Winograd's convolution in registers, a strip of tiles at a time: B of the parts of
// a filter (winograd_parts.h) down the rows of the image as they lie, the phases of that, B along them.
// Compiled once for each instruction set, chosen at run time as the direct convolution's kernels are.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "convtune/problem.h"
#include "cpu/tile/winograd/winograd_parts.h"

namespace convtune::cpu {

// A product down the rows: row a, or it and row b, added or taken away.
struct WinogradDown {
  std::int64_t a, b;
  enum { alone, added, taken } how;
  std::int64_t fetched;  // a row that is fetched for the next strip: all are, some twice
};
// The products of an axis, in their order.
std::vector<WinogradDown> winograd_down(const WinogradAxis& axis, std::int64_t stride);

// Tiles of one row of tiles, one a lane, of consecutive channels.
struct WinogradStrip {
  // Channel 0 of the input where the first tile's window begins, which may lie beside the image. Whole
  // vectors are read of rows [from_row, end_row), which are in the image, as columns [from_col, end_col) are;
  // a window has zeros elsewhere.
  const float* x;
  std::int64_t row_step, plane;
  std::int64_t from_row, end_row, from_col, end_col;
  std::int64_t channels;
  std::span<const WinogradDown> down;
  // Destination of the products: lane l in [skip, end) of product j along product i down to
  // to[(places[i * products along + j] + c) * step + l].
  struct Piece {
    float* to;
    std::int64_t step, skip, end;
  };
  std::span<const Piece> pieces;
  const std::int64_t* places;
};
constexpr std::size_t kMostPieces = 18;  // blocks of one tile, and two that are cut

using WinogradStripKernel = void (*)(const WinogradStrip& strip);
struct WinogradStripsOf {
  int taps, stride;
  WinogradStripKernel kernel;
};
using WinogradStripKernels = std::array<WinogradStripsOf, 5>;
// Null where this build has none of that width, or for so many taps along a row, so far apart.
WinogradStripKernel winograd_strip_kernel(int vector_bits, std::int64_t taps, std::int64_t stride);

// Floats that WinogradStrips::transform() needs to copy rows.
std::int64_t winograd_strip_floats(const ConvProblem& problem, int lanes);

// Whole strips of a problem's input.
class WinogradStrips {
 public:
  WinogradStrips(const ConvProblem& problem, int vector_bits, int lanes);

  // Null where there is no kernel.
  explicit operator bool() const { return kernel_ != nullptr; }
  // `lanes` tiles at most of image n, from tile (row, col) on, of channels [channel, channel + channels); of
  // products [first_down, end_down) down the rows.
  struct Tiles {
    std::int64_t n, row, col, channel, channels;
    std::size_t first_down = 0, end_down = ~std::size_t{0};
  };
  void transform(const Tiles& tiles, std::span<const WinogradStrip::Piece> pieces, const std::int64_t* places,
                 const float* x, float* copied) const;

 private:
  ConvProblem problem_;
  std::vector<WinogradDown> down_;
  WinogradStripKernel kernel_;
  std::int64_t rows_, along_;  // of a window; products along a row
  std::int64_t columns_;       // that a kernel reads of a row
  std::int64_t elements_;      // of the input
};

}  // namespace convtune::cpu
