// An algorithm's kernels for one problem as CUDA C++ that stands alone.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cuda/launch/dry_run.h"

namespace convtune::cuda {

struct ProgramText {
  std::string arch;         // "sm_90a"
  std::string device_code;  // needs C++20 and constexpr functions that are device functions too
  // Statements that do what pack() and run() do, those of a host function that has const float *x, *w, *bias;
  // float *packed, *y, *partial_sums; and the cudaStream_t stream. x must begin at a multiple of 16 bytes.
  // Tensors of other types come as pointers to float, too. In backward data x is dy, and y is dx.
  std::string pack, run;
  bool has_tensor_maps = false;  // then they call tensor_map(address, type, extents, strides, box, ...) too
  bool has_walks = false;        // and walking_map()
  // The layout of x and of y is channels last where the problem's is not: who calls converts them.
  bool converts_x = false, converts_y = false;
  std::size_t packed_bytes = 0, partial_sums_bytes = 0;
  // Further parts of a transposed layer (LaunchPlan::more): they run behind this one and write into the same
  // y.
  std::vector<ProgramText> more;
};

// Needs neither a GPU nor a compiler. Throws Error{unsupported} for an algorithm that compiles nothing.
ProgramText program_text(const ConvProblem& problem, const DeviceInfo& device, const Candidate& candidate);

}  // namespace convtune::cuda
