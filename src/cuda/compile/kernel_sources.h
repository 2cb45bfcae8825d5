// The device code below src/cuda/, built into the library; read from the folder CONVTUNE_KERNEL_DIR
// where that is set, so that an edited kernel needs no build.
#pragma once

#include <string>
#include <vector>

namespace convtune::cuda {

struct KernelSource {
  std::string name;  // "cuda/ptx/sm80.cuh"
  std::string text;

  bool operator==(const KernelSource&) const = default;
};

// A file and everything that it includes, directly or not, each once; the file itself is the first. Throws
// Error{io} with the name of a file that is not there.
std::vector<KernelSource> kernel_sources(const std::string& file);

// A hash of the code in those files, for an algorithm's source_hash(): comments and blank space do not change
// it, so that records of a kernel outlive a better comment.
std::string kernel_source_hash(const std::string& file);

}  // namespace convtune::cuda
