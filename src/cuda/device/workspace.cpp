// A block a device and stream, as large as the largest request. It lives while a plan holds it: one that has
// become too small goes when the last of its plans runs again.
#include "cuda/device/workspace.h"

#include <algorithm>
#include <utility>

#include "cuda/device/driver.h"
#include "cuda/device/memory.h"

namespace convtune::cuda {
namespace {

bool is_captured(Stream stream) {
  int status = 0;
  return driver().cuStreamIsCapturing(static_cast<CUstream>(stream), &status) == 0 && status != 0;
}

struct Registry {
  std::mutex mutex;
  std::map<std::pair<int, Stream>, std::weak_ptr<const Workspace::Block>> blocks;
};
Registry& registry() {
  static auto& all = *new Registry;  // never destroyed: plans may outlive it at exit
  return all;
}

}  // namespace

std::unique_lock<std::mutex> Workspace::turn() {
  static std::mutex mutex;
  return std::unique_lock(mutex);
}

Workspace::Block Workspace::allocate(std::size_t bytes) const {
  return {cuda::allocate(device_, bytes), bytes};
}

void* Workspace::at_least(std::size_t bytes, Stream stream) {
  if (bytes == 0) return nullptr;
  const BesideCapture beside;  // of this stream or of another: a graph has no part in what memory there is
  if (is_captured(stream)) {
    const auto fits = [&](const auto& one) { return one.first == stream && one.second.bytes >= bytes; };
    auto own = std::find_if(captured_.begin(), captured_.end(), fits);
    if (own == captured_.end()) own = captured_.insert(own, {stream, allocate(bytes)});
    return own->second.memory.get();
  }
  const std::lock_guard lock(registry().mutex);
  std::weak_ptr<const Block>& known = registry().blocks[{device_, stream}];
  std::shared_ptr<const Block>& held = shared_[stream];
  if (std::shared_ptr<const Block> block = known.lock(); block && block->bytes >= bytes) {
    held = std::move(block);
  } else {
    held.reset();  // before its successor is allocated, where it is this plan's alone
    held = std::make_shared<const Block>(allocate(bytes));
    known = held;
  }
  return held->memory.get();
}

}  // namespace convtune::cuda
