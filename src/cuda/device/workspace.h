// Memory that a plan's runs need besides their tensors, shared by all plans of a device: runs on one stream
// follow each other, so a network of fifty layers needs what its largest layer needs, and not fifty times
// that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "convtune/tensor.h"

namespace convtune::cuda {

// One plan's part of such memory. From any thread.
class Workspace {
 public:
  explicit Workspace(int device) : device_(device) {}

  // Work that uses the memory is put on the stream while this lives: nobody else gets any of the device's
  // meanwhile, so that the parts of two runs on one stream, which have the same, do not mix.
  struct Hold {
    void* memory = nullptr;
    std::unique_lock<std::mutex> lock;
  };
  // So many bytes at a multiple of 256; nothing where none are asked for. Where the stream is being captured
  // they are this plan's and this capture's own while the plan lives: the graph may be replayed beside
  // whatever runs then, but for itself. The device must be current. Throws Error{unsupported} where memory is
  // short.
  Hold at_least(std::size_t bytes, Stream stream);

  struct Block {
    std::shared_ptr<void> memory;
    std::size_t bytes;
  };

 private:
  const int device_;
  std::map<Stream, std::shared_ptr<const Block>> shared_;  // what work that is still queued may use
  // By capture, stream and bytes: branches of one graph may run beside each other.
  std::map<std::tuple<std::uint64_t, Stream, std::size_t>, std::shared_ptr<void>> captured_;
};

}  // namespace convtune::cuda
