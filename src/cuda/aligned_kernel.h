// A kernel in two forms. The one that is compiled when a plan is built takes tensors to begin at multiples of
// 16 bytes, which is where allocators put them; the other takes any, and is compiled and loaded when the
// first pointer comes that asks for it. A kernel that looks at its pointers while it runs has every load and
// store twice, and a compiler needs half as long again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "cuda/compiler.h"
#include "cuda/kernel.h"

namespace convtune::cuda {

class AlignedKernel {
 public:
  // As Kernel's. `any` makes the job whose first kernel is the other form, on whatever thread needs it first.
  // Nothing: the kernel itself takes any pointer.
  AlignedKernel(int device, const CompiledModule& module, const std::string& name,
                std::size_t dynamic_smem_bytes, std::function<CompileJob()> any);

  // As Kernel's, from any thread, also while a stream is being captured. All arguments that are pointers
  // decide. Throws what compile() throws where the other form is needed and cannot be had.
  template <class... Args>
  void launch(Extent3 grid, Extent3 block, std::size_t dynamic_smem_bytes, Stream stream,
              const Args&... args) const {
    const Kernel& kernel = (is_aligned(args) && ...) || !any_job_ ? aligned_ : any();
    kernel.launch(grid, block, dynamic_smem_bytes, stream, args...);
  }

 private:
  template <class T>
  static bool is_aligned(const T&) {
    return true;
  }
  template <class T>
  static bool is_aligned(T* const& pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  }
  const Kernel& any() const;

  const int device_;
  const std::size_t dynamic_smem_bytes_;
  const Kernel aligned_;
  const std::function<CompileJob()> any_job_;
  mutable std::mutex mutex_;
  mutable std::optional<Kernel> any_;
};

}  // namespace convtune::cuda
