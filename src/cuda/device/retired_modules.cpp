#include "cuda/device/retired_modules.h"

#include <new>
#include <utility>

namespace convtune::cuda {

void RetiredModules::add(CUmodule module) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    modules_.push_back(module);
  } catch (const std::bad_alloc&) {  // then it stays loaded
  }
}

void RetiredModules::unload_some(const std::function<bool()>& wait,
                                 const std::function<void(CUmodule)>& unload) {
  std::vector<CUmodule> now;
  {
    const std::lock_guard lock(mutex_);
    if (modules_.size() <= bound_) return;
    now = std::exchange(modules_, {});
  }
  const bool idle = wait();
  for (CUmodule module : now) idle ? unload(module) : add(module);
}

}  // namespace convtune::cuda
