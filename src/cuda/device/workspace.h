// Memory that a plan's runs need besides their tensors, shared by all plans of a device: runs on one stream
// follow each other, so a network of fifty layers needs what its largest layer needs, and not fifty times
// that.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/fork_gate.h"
#include "convtune/tensor.h"
#include "cuda/device/driver.h"

namespace convtune::cuda {

// One plan's part of such memory. From any thread.
class Workspace {
 public:
  explicit Workspace(int device) : device_(device) {}
  ~Workspace();

  // Work that uses the memory is put on the stream while this lives: nobody else gets any of the device's
  // meanwhile, so that the parts of two runs on one stream, which have the same, do not mix.
  struct Hold {
    void* memory = nullptr;
    std::unique_lock<Mutex> lock;
  };
  // Gives so many bytes at a multiple of 256; nothing where none are asked for. No other stream has them,
  // neither one whose handle this one has got again nor another thread's own default stream. Where the stream
  // is being captured they are the graph's: it may be replayed beside whatever runs then, but for itself, and
  // they are freed when it and all that was instantiated of it are gone. The device must be current. Throws
  // Error{unsupported} where memory is short.
  Hold at_least(std::size_t bytes, Stream stream);

  // Key of a stream's block: its handle and, for the stream that every thread has, by the thread.
  struct Place {
    Stream stream;
    std::uint64_t thread;  // 0: whichever
    auto operator<=>(const Place&) const = default;
  };
  struct Block {
    std::shared_ptr<void> memory;
    std::size_t bytes;
    std::uint64_t stream_id;           // none of the process has twice
    std::weak_ptr<const void> thread;  // ends with the thread that the stream is of
  };

 private:
  void* of_capture(std::uint64_t capture, CUgraph graph, const Place& place, std::size_t bytes);

  const int device_;
  std::map<Place, std::shared_ptr<const Block>> shared_;  // memory that work that is still queued may use
  // By capture, stream and bytes: branches of one graph may run beside each other.
  std::map<std::tuple<std::uint64_t, Place, std::size_t>, std::weak_ptr<void>> captured_;
  std::vector<std::shared_ptr<void>> kept_;  // for graphs that did not take theirs
};

}  // namespace convtune::cuda
