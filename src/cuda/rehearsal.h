// An algorithm's build() and run() without a device: kernels are compiled and never loaded, launches are
// noted and never made. So every algorithm can be planned for a GPU that is elsewhere, and none needs to know
// of it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cuda/compiler.h"
#include "cuda/cuda.h"
#include "cuda/kernel.h"

namespace convtune::cuda {

// A launch as CUDA C++ would write it, or memory that is filled.
struct RehearsedStep {
  std::string kernel;  // as the job wrote it; empty: memory is filled
  Extent3 grid, block;
  std::size_t dynamic_smem_bytes = 0;
  std::vector<std::string> arguments;  // argument_text(); of a fill the address, the word, how many
};

// While one lives, compile(), Kernel and launches of this thread belong to it.
class Rehearsal {
 public:
  // With a module: what the first compile() answers. Without: the first compile() keeps its job here and
  // throws StoppedAtCompile.
  explicit Rehearsal(const CompiledModule* module);
  // Every compile() compiles, and keeps what it made in the cache; nothing is loaded.
  struct Compiling {};
  explicit Rehearsal(Compiling);
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;
  static Rehearsal* current();

  struct StoppedAtCompile {};
  std::optional<CompiledModule> compiled(const CompileJob& asked);  // nothing: compile it

  std::optional<CompileJob> job;
  std::vector<Launch> launches;
  std::vector<RehearsedStep> steps;      // the same launches, and what is filled between them
  std::vector<std::string> tensor_maps;  // as CUDA C++ makes them

 private:
  const CompiledModule* module_ = nullptr;
  bool compiling_ = false;
};

}  // namespace convtune::cuda
