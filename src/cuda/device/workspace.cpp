// A block a device and stream, as large as the largest request. It lives while a plan holds it: one that has
// become too small, or whose stream or thread has ended, goes when the last of its plans runs again. The
// driver frees memory when the work that uses it is done. docs/decisions/0097
#include "cuda/device/workspace.h"

#include <atomic>
#include <list>
#include <utility>

#include "cuda/device/memory.h"

namespace convtune::cuda {
namespace {

struct Capture {
  std::uint64_t id = 0;  // none of the process has it twice
  CUgraph graph = nullptr;
};

// Finds what the stream is recorded into, if it is.
bool find_capture(Stream stream, Capture& capture) {
  int status = 0;
  const CUresult result = driver().cuStreamGetCaptureInfo(static_cast<CUstream>(stream), &status, &capture.id,
                                                          &capture.graph, nullptr, nullptr);
  return result == 0 && status != 0;
}

std::uint64_t id_of(Stream stream) {
  std::uint64_t id = 0;
  check(driver().cuStreamGetId(static_cast<CUstream>(stream), &id), "asking which stream it is");
  return id;
}

// This thread's number, from 1, for as long as it runs.
const std::shared_ptr<const std::uint64_t>& this_thread() {
  static constinit std::atomic<std::uint64_t> threads = 0;
  thread_local const auto number = std::make_shared<const std::uint64_t>(++threads);
  return number;
}

bool is_of_each_thread(Stream stream) {
  return reinterpret_cast<std::uintptr_t>(stream) == 2;  // CU_STREAM_PER_THREAD
}

// Memory of graphs that are gone. They say so on a thread that must not call the driver, so whoever asks for
// memory next frees it.
class Retired {
 public:
  using List = std::list<std::shared_ptr<void>>;

  void add(List& memory) noexcept {
    const std::lock_guard lock(mutex_);
    memory_.splice(memory_.end(), memory);
    any_ = true;
  }
  // The device must be current.
  void free() {
    if (!any_) return;
    List gone;
    const std::lock_guard lock(mutex_);
    gone.swap(memory_);
    any_ = false;
  }

 private:
  std::atomic<bool> any_ = false;
  Mutex mutex_;
  List memory_;
};

struct Registry {
  Mutex mutex;
  std::map<Workspace::Place, std::weak_ptr<const Workspace::Block>> blocks;
  Retired retired;
};
Registry& registry(int device) {
  static constinit Mutex mutex;
  auto& all = *once([] { return new std::map<int, Registry>; });  // never destroyed: plans may outlive it
  const std::lock_guard lock(mutex);
  return all[device];
}

// Memory that a graph holds.
struct OfGraph {
  Retired::List memory;
  Retired* retired;

  static void destroy(void* pointer) {
    const std::unique_ptr<OfGraph> gone(static_cast<OfGraph*>(pointer));
    gone->retired->add(gone->memory);
  }
};

// False where the graph does not take it.
bool give(CUgraph graph, const std::shared_ptr<void>& memory, Retired& retired) {
  constexpr unsigned kNoDestructorSync = 1, kMove = 1;
  auto of_graph = std::make_unique<OfGraph>(OfGraph{{memory}, &retired});
  CUuserObject object = nullptr;
  if (driver().cuUserObjectCreate(&object, of_graph.get(), &OfGraph::destroy, 1, kNoDestructorSync) != 0)
    return false;
  of_graph.release();  // destroy() gets it
  if (driver().cuGraphRetainUserObject(graph, object, 1, kMove) == 0) return true;
  driver().cuUserObjectRelease(object, 1);
  return false;
}

}  // namespace

Workspace::~Workspace() {
  if (captured_.empty()) return;
  Registry& all = registry(device_);
  const std::lock_guard lock(all.mutex);
  release_on(device_, [&] {
    const BesideCapture beside;
    all.retired.free();
  });
}

Workspace::Hold Workspace::at_least(std::size_t bytes, Stream stream) {
  if (bytes == 0) return {};
  Registry& all = registry(device_);
  std::unique_lock lock(all.mutex);
  const BesideCapture beside;  // for this stream or of another: a graph has no part in what memory there is
  all.retired.free();
  const std::shared_ptr<const std::uint64_t> thread = is_of_each_thread(stream) ? this_thread() : nullptr;
  const Place place{stream, thread ? *thread : 0};
  // While it is captured, a stream is not asked for its number: the driver refuses that. It lasts as long.
  if (Capture capture; find_capture(stream, capture))
    return {of_capture(capture.id, capture.graph, place, bytes), std::move(lock)};
  const std::uint64_t id = id_of(stream);
  std::shared_ptr<const Block>& held = shared_[place];
  std::shared_ptr<const Block> block = all.blocks[place].lock();
  if (!block || block->stream_id != id || block->bytes < bytes) {
    block.reset(), held.reset();  // before its successor is allocated, where it is this plan's alone
    std::erase_if(shared_, [](const auto& one) {
      return one.first.thread != 0 && one.second && one.second->thread.expired();
    });
    std::erase_if(all.blocks, [](const auto& one) { return one.second.expired(); });
    block = std::make_shared<const Block>(Block{allocate(device_, bytes), bytes, id, thread});
    all.blocks[place] = block;
  }
  held = std::move(block);
  return {held->memory.get(), std::move(lock)};
}

void* Workspace::of_capture(std::uint64_t capture, CUgraph graph, const Place& place, std::size_t bytes) {
  const std::tuple key(capture, place, bytes);
  if (const auto own = captured_.find(key); own != captured_.end())
    if (const std::shared_ptr<void> memory = own->second.lock()) return memory.get();
  std::erase_if(captured_, [](const auto& one) { return one.second.expired(); });
  const std::shared_ptr<void> memory = allocate(device_, bytes);
  if (!give(graph, memory, registry(device_).retired)) kept_.push_back(memory);
  captured_[key] = memory;
  return memory.get();
}

}  // namespace convtune::cuda
