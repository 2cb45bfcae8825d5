// A kernel loaded on one device, ready to be launched from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "convtune/tensor.h"
#include "cuda/compile/compiled_module.h"
#include "cuda/device/driver.h"
#include "cuda/launch/launch_plan.h"

namespace convtune::cuda {

// May be destroyed while launches of its wait on a stream (its module stays loaded), but not while a CUDA
// graph that recorded one may be replayed.
class Kernel {
 public:
  // In a run a stream may be being captured, which nothing must disturb.
  enum class Loaded { at_build, in_a_run };
  struct Options {
    std::size_t dynamic_smem_bytes =
        0;  // memory that a launch may ask for, at most; above the usual 48 KiB too
    Loaded loaded = Loaded::at_build;
    // Its code calls wait_for_earlier_grids() (cuda/ptx/grid.cuh): its blocks may begin while the kernel
    // before it on the stream still runs, where device and driver can do that, also in a CUDA graph.
    bool waits_for_earlier_grids = false;
  };
  // The kernel that the module's job called `name`. Throws Error when the driver refuses.
  Kernel(int device, const CompiledModule& module, const std::string& name, const Options& options);
  // Another one of the module that `one` was loaded with.
  Kernel(const Kernel& one, const CompiledModule& module, const std::string& name, const Options& options);

  const KernelResources& resources() const { return resources_; }
  // How many blocks of this size a multiprocessor holds at once, as the driver counts.
  int blocks_per_unit(unsigned threads, std::size_t dynamic_smem_bytes) const;

  // The arguments must have exactly the types of the kernel's parameters: nothing checks them. Returns as
  // soon as the work is queued.
  template <class... Args>
  void launch(Extent3 grid, Extent3 block, std::size_t dynamic_smem_bytes, Stream stream,
              const Args&... args) const {
    const void* addresses[] = {static_cast<const void*>(&args)..., nullptr};
    launch_with(grid, block, dynamic_smem_bytes, stream, addresses);
  }
  // As above, of arguments that lie at these addresses.
  void launch_with(Extent3 grid, Extent3 block, std::size_t dynamic_smem_bytes, Stream stream,
                   const void** arguments) const;

 private:
  void find(const Options& options);

  int device_;
  KernelResources resources_;
  std::shared_ptr<CUmod_st> module_;  // retired with the last copy
  CUfunction function_ = nullptr;
  bool overlaps_ = false;
};

// Fills device memory with `words` copies of `word`. Returns as soon as the work is queued.
void fill(int device, void* memory, unsigned word, std::size_t words, Stream stream);

}  // namespace convtune::cuda
