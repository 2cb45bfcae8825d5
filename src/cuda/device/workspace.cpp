// A block a device and stream, as large as the largest request. It lives while a plan holds it: one that has
// become too small goes when the last of its plans runs again.
#include "cuda/device/workspace.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "cuda/device/driver.h"
#include "cuda/device/memory.h"

namespace convtune::cuda {
namespace {

// The number of the capture that the stream is part of, which none of the process has twice.
std::optional<std::uint64_t> capture_of(Stream stream) {
  int status = 0;
  std::uint64_t id = 0;
  const CUresult result =
      driver().cuStreamGetCaptureInfo(static_cast<CUstream>(stream), &status, &id, nullptr, nullptr, nullptr);
  return result == 0 && status != 0 ? std::optional(id) : std::nullopt;
}

struct Registry {
  std::mutex mutex;
  std::map<Stream, std::weak_ptr<const Workspace::Block>> blocks;
};
Registry& registry(int device) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, Registry>;  // never destroyed: plans may outlive it at exit
  const std::lock_guard lock(mutex);
  return all[device];
}

}  // namespace

Workspace::Hold Workspace::at_least(std::size_t bytes, Stream stream) {
  if (bytes == 0) return {};
  Registry& all = registry(device_);
  std::unique_lock lock(all.mutex);
  const BesideCapture beside;  // of this stream or of another: a graph has no part in what memory there is
  if (const std::optional<std::uint64_t> capture = capture_of(stream)) {
    std::shared_ptr<void>& own = captured_[{*capture, stream, bytes}];
    if (!own) own = allocate(device_, bytes);
    return {own.get(), std::move(lock)};
  }
  std::weak_ptr<const Block>& known = all.blocks[stream];
  std::shared_ptr<const Block>& held = shared_[stream];
  if (std::shared_ptr<const Block> block = known.lock(); block && block->bytes >= bytes) {
    held = std::move(block);
  } else {
    held.reset();  // before its successor is allocated, where it is this plan's alone
    held = std::make_shared<const Block>(Block{allocate(device_, bytes), bytes});
    known = held;
  }
  return {held->memory.get(), std::move(lock)};
}

}  // namespace convtune::cuda
