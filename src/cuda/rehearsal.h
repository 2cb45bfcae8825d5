// An algorithm's build() and run() without a device: kernels are compiled and never loaded, launches are
// noted and never made. So every algorithm can be planned for a GPU that is elsewhere, and none needs to know
// of it.
#pragma once

#include <optional>

#include "cuda/compiler.h"
#include "cuda/cuda.h"

namespace convtune::cuda {

// While one lives, compile(), Kernel and launches of this thread belong to it.
class Rehearsal {
 public:
  // With a module: what the first compile() answers. Without: the first compile() keeps its job here and
  // throws StoppedAtCompile.
  explicit Rehearsal(const CompiledModule* module);
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;
  static Rehearsal* current();

  struct StoppedAtCompile {};
  std::optional<CompiledModule> compiled(const CompileJob& asked);  // nothing: compile it

  std::optional<CompileJob> job;
  std::vector<Launch> launches;

 private:
  const CompiledModule* module_;
};

}  // namespace convtune::cuda
