// The configs of `direct_stem_sm80`: how each is laid out for a problem, and which are worth a try.
#pragma once

#include <array>
#include <vector>

#include "convtune/problem.h"
#include "convtune/target.h"
#include "cuda/algorithms/direct_stem_sm80/config.h"

namespace convtune::cuda {

// The problem, and how its pixels are best laid out.
class DirectStemPlanned {
 public:
  explicit DirectStemPlanned(const ConvProblem& problem);
  // The problem, laid out, with no choice made.
  const DirectStemSm80& plain() const { return kernel_; }
  // A kernel of the problem with the pitch of rows and the width of loads that suit its choices.
  DirectStemSm80 laid_out(DirectStemSm80 kernel) const;
  double wavefronts_at(int row_pitch) const { return wavefronts_[static_cast<std::size_t>(row_pitch % 32)]; }

 private:
  DirectStemSm80 kernel_;
  std::array<double, 32> wavefronts_{};
};

// Tells whether it is valid, and `blocks` of it have room on a multiprocessor. A block has no more shared
// memory than every GPU can give it.
bool direct_stem_sm80_fits(const DirectStemSm80& kernel, const Target& target);

// Every config that fits, each with as many blocks on a multiprocessor as fit; where there is no other, those
// with idle pixels, few warps and few sums too.
std::vector<DirectStemSm80> direct_stem_sm80_configs(const DirectStemPlanned& planned, const Target& target);
// Tells whether there is one: in a tenth of the time.
bool direct_stem_sm80_has_configs(const DirectStemPlanned& planned, const Target& target);

// Wavefronts of a load that reads a group's pixels: 1 where no two threads of a warp want different words of
// one bank. The average over the groups.
double direct_stem_sm80_wavefronts(const DirectStemSm80& kernel);

}  // namespace convtune::cuda
