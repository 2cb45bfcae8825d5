// What each of some pixels multiplies, put together from runs of a window: which vectors that takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/tile/elements.h"

namespace convtune::cpu {

// What a vector of 2 * lanes elements has of one run of x: its elements where `mask` has bits, read from
// `from` on. Vectors are put together from such pieces, so that each is stored once, and whole.
struct GatherPiece {
  std::int64_t from;  // may lie before the run by what the vector has of others
  std::uint32_t mask;
};
struct GatherVector {
  std::vector<GatherPiece> pieces;  // none: zeros
  bool filled = false;              // by pieces alone
};
// The vectors of `runs` of `run` elements, which stand side by side, and of zeros behind them up to
// `elements`, a multiple of a vector's.
std::vector<GatherVector> gather_vectors(std::span<const std::int64_t> runs, std::int64_t run,
                                         std::int64_t elements, int lanes);

// to[j * to_step + e] = element e of the vector of pixel j, whose runs begin at x + offsets[j]. Vectors that
// begin up to one before the first run, and end as far behind the last, may be read.
struct GatherArgs {
  const Bf16* x;
  const std::int32_t* offsets;
  const GatherVector* vector;
  std::int64_t pixels;
  Bf16* to;
  std::int64_t to_step;
};

}  // namespace convtune::cpu
