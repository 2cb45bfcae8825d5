// cuDNN on one device: a handle, or a description of a device that need not be here.
#pragma once

#include <optional>
#include <string_view>

#include "base/fork_gate.h"
#include "cuda/cudnn/cudnn_api.h"

namespace convtune::cuda {

// A handle serves one thread at a time: whoever calls cuDNN holds the mutex. Without a handle graphs can be
// made, and plans for the device that is described, but nothing runs.
struct CudnnSession {
  Mutex mutex;
  CudnnHandle handle = nullptr;
  std::optional<CudnnDescriptor> device = std::nullopt;  // null if there is no handle
};

// Made at the first call and kept. Throws Error where cuDNN or the device is missing.
CudnnSession& cudnn_session(int device);

// For a device by its properties as cuDNN itself writes them, from 9.8 on: a JSON object of numbers.
void describe_device(CudnnSession& session, std::string_view json);

}  // namespace convtune::cuda
