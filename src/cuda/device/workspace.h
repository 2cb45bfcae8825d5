// Memory that a plan's runs need besides their tensors, shared by all plans of a device: runs on one stream
// follow each other, so a network of fifty layers needs what its largest layer needs, and not fifty times
// that.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "convtune/tensor.h"

namespace convtune::cuda {

// One plan's hold on such memory. For one thread at a time.
class Workspace {
 public:
  explicit Workspace(int device) : device_(device) {}

  // So many bytes at a multiple of 256, for work that is put on the stream before the next call of anybody's
  // for that stream; nothing where none are asked for. Where the stream is being captured they are this
  // plan's own while it lives: the graph may be replayed beside whatever runs then. The device must be
  // current. Throws Error{unsupported} where memory is short.
  void* at_least(std::size_t bytes, Stream stream);

  // Held from at_least() until the work is on the stream: the parts of two runs on one stream, which share
  // their memory, must not mix.
  static std::unique_lock<std::mutex> turn();

  struct Block {
    std::shared_ptr<void> memory;
    std::size_t bytes;
  };

 private:
  Block allocate(std::size_t bytes) const;

  const int device_;
  std::map<Stream, std::shared_ptr<const Block>> shared_;  // what work that is still queued may use
  std::vector<std::pair<Stream, Block>> captured_;
};

}  // namespace convtune::cuda
