#include "cuda/launch/tile_work.h"

#include <algorithm>
#include <cmath>

namespace convtune::cuda {

void store_in_pieces(TileWork& work, double outputs, double piece) {
  work.stored_bytes = 4 * outputs;
  work.pieces = outputs / piece;
  work.part_sectors = std::fmod(piece, 8) == 0 ? 0 : work.pieces * 2 * 7 / 8;
}

double read_bytes(const Conv2dProblem& a) {
  const double rows = std::min(static_cast<double>(a.h), static_cast<double>(a.p() * a.r));
  return 4.0 * static_cast<double>(a.n * a.c * a.w) * rows;
}

double outputs_of(const Conv2dExtents& a) {
  return static_cast<double>(a.n) * a.k * a.p * a.q;
}

}  // namespace convtune::cuda
