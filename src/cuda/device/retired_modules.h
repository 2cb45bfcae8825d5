// Loaded modules that nobody launches any more, until they may be unloaded. Work that they queued may still
// be waiting, on any stream of anybody's, and the driver does not promise to keep their code for it.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/fork_gate.h"
#include "cuda/device/driver.h"

namespace convtune::cuda {

// The modules of one device; may be used from any thread.
class RetiredModules {
 public:
  // Up to `bound` stay loaded: tens of kilobytes each.
  explicit RetiredModules(std::size_t bound) : bound_(bound) {}

  void add(CUmodule) noexcept;
  // Does nothing up to `bound` modules; beyond it waits for the device, and unloads those that were here
  // before. `wait` says whether the device has nothing left to do; while it does not, all of them stay.
  void unload_some(const std::function<bool()>& wait, const std::function<void(CUmodule)>& unload);

 private:
  const std::size_t bound_;
  Mutex mutex_;
  std::vector<CUmodule> modules_;
};

}  // namespace convtune::cuda
