// Candidates built ahead of their trial, each by a child process, for what that leaves in the cache of
// compiled kernels. Used by the search, which does other things meanwhile.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "contract/backend.h"

namespace convtune {

// An algorithm and its config.
using Way = std::pair<const Algorithm*, Config>;

class CompileAhead {
 public:
  // All children are begun when this returns. Each has `seconds_each`, and is ended then; what it did not
  // leave is compiled where it is needed, and a failure is found there.
  CompileAhead(const ConvProblem& problem, const DeviceInfo& device, const std::vector<Way>& ways,
               double seconds_each = 30);
  CompileAhead(const CompileAhead&) = delete;
  CompileAhead& operator=(const CompileAhead&) = delete;
  ~CompileAhead();  // ends what still runs

  // Returns when all have ended: what the slowest took, in seconds.
  double wait();
  // After wait(): the ways, by their places, that were not done in time. None where all were late: then
  // it is the children that do not get on (another thread held a lock when they were made).
  std::vector<std::size_t> late() const;

 private:
  struct Children;
  std::unique_ptr<Children> children_;
};

}  // namespace convtune
