// A pair's configs, and what compiles, packs and launches one.
#pragma once

#include <cstddef>
#include <vector>

#include "convtune/pair.h"
#include "cuda/compile/compiler.h"
#include "cuda/launch/kernel.h"
#include "cuda/pairs/pair_sm90.h"

namespace convtune::cuda {

// Tells whether the kernel takes it on that device, or why not.
Support supports_pair(const PairProblem& problem, const DeviceInfo& device);
PairSm90 pair_kernel(const PairProblem& problem, const Config& config);
// The choices for a problem that is supported, by the time that each should take.
std::vector<PairSm90> pair_kernels(const PairProblem& problem, const DeviceInfo& device);
double estimated_us(const PairProblem& problem, const PairSm90& kernel, int multiprocessors);

class PairExecutable {
 public:
  // Throws what compile() and Kernel throw.
  PairExecutable(const PairProblem& problem, const PairSm90& kernel, const DeviceInfo& device);
  static CompileJob job(const PairSm90& kernel, const std::string& arch);

  std::size_t packed_bytes() const;
  void pack(const PairWeights& weights, void* packed, Stream stream) const;
  void run(const void* x, const void* packed, void* y, Stream stream) const;

 private:
  PairProblem problem_;
  PairSm90 config_;
  int device_;
  CompiledModule module_;
  Kernel run_, pack_;
};

}  // namespace convtune::cuda
