// A convolution of oneDNN's that runs: weights packed in its order, and a layout of its own converted to and
// from.
#pragma once

#include <memory>

#include "contract/backend.h"
#include "cpu/onednn/onednn_convolution.h"

namespace convtune::cpu {

class OnednnConvolution : public Executable {
 public:
  // The weights and the bias as pack() got them.
  virtual void unpack(const void* packed, void* w, void* bias) const = 0;
};

// `desc` is of this problem, whose batch is at least 1, and was made with as many threads.
std::unique_ptr<OnednnConvolution> onednn_executable(const ConvProblem&, OnednnPrimitiveDesc desc,
                                                     int threads);

}  // namespace convtune::cpu
