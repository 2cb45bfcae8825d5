// See gather.h.
#include "cpu/tile/gather.h"

#include <algorithm>

namespace convtune::cpu {

std::vector<GatherVector> gather_vectors(std::span<const std::int64_t> runs, std::int64_t run,
                                         std::int64_t elements, int lanes) {
  const std::int64_t vector = 2 * lanes, all = std::ssize(runs) * run;
  std::vector<GatherVector> vectors;
  for (std::int64_t first = 0; first < elements; first += vector) {
    vectors.push_back({.pieces = {}, .filled = first + vector <= all});
    const std::int64_t end = std::min(first + vector, all);
    for (std::int64_t i = first / run; i * run < end; ++i) {
      const std::int64_t from = std::max(i * run, first) - first, to = std::min((i + 1) * run, end) - first;
      const std::uint64_t mask = (std::uint64_t{1} << to) - (std::uint64_t{1} << from);
      vectors.back().pieces.push_back(
          {runs[static_cast<std::size_t>(i)] + first - i * run, static_cast<std::uint32_t>(mask)});
    }
  }
  return vectors;
}

}  // namespace convtune::cpu
