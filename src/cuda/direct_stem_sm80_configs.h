// The configs of `direct_stem_sm80`: their fields, the kernel that one means for a problem, and which are
// worth a try.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "convtune/convolution.h"
#include "convtune/target.h"
#include "cuda/kernels/direct_stem_sm80.h"

namespace convtune::cuda {

struct DirectStemConfig {
  std::int64_t warp_filters = 16, warp_columns = 1, warp_rows = 1;
  std::int64_t filter_warps = 1, row_warps = 1, column_warps = 1;
  std::int64_t steps = 1, stages = 2, blocks = 1, staged = 1, stagger = 0;
  template <class Self, class F>
  static void visit(Self& self, F&& field) {
    field("warp_filters", self.warp_filters);
    field("warp_columns", self.warp_columns);
    field("warp_rows", self.warp_rows);
    field("filter_warps", self.filter_warps);
    field("row_warps", self.row_warps);
    field("column_warps", self.column_warps);
    field("steps", self.steps);
    field("stages", self.stages);
    field("blocks", self.blocks);
    field("staged", self.staged);
    field("stagger", self.stagger);
  }
};

// The problem, and how its pixels are best laid out.
class DirectStemPlanned {
 public:
  explicit DirectStemPlanned(const Conv2dProblem& problem);
  const Conv2dExtents& of() const { return kernel_.of; }
  DirectStemSm80 with(const DirectStemConfig& config) const;
  double wavefronts_at(int row_pitch) const { return wavefronts_[static_cast<std::size_t>(row_pitch % 32)]; }

 private:
  DirectStemSm80 kernel_;
  std::array<double, 32> wavefronts_{};
};

// Whether it is valid, and `blocks` of it have room on a multiprocessor. A block has no more shared memory
// than every GPU can give it.
bool direct_stem_sm80_fits(const DirectStemSm80& kernel, const Target& target);

// Every config that fits, each with as many blocks on a multiprocessor as fit; where there is no other, those
// with idle pixels, few warps and few sums too.
std::vector<DirectStemConfig> direct_stem_sm80_configs(const DirectStemPlanned& planned,
                                                       const Target& target);

}  // namespace convtune::cuda
