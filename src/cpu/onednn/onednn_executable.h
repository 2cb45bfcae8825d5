// A convolution of oneDNN's that runs: weights packed in its order, and a layout of its own converted to and
// from.
#pragma once

#include <memory>

#include "contract/backend.h"
#include "cpu/base/openmp.h"
#include "cpu/onednn/onednn_convolution.h"

namespace convtune::cpu {

class OnednnConvolution : public Executable {
 public:
  // The weights and the bias as pack() got them.
  virtual void unpack(const void* packed, void* w, void* bias) const = 0;
};

// How long runs of this thread that give way (Executable::give_way()) leave oneDNN's team of threads alone,
// since it was late: they go on with one thread. The second function has them do so.
TeamPatience& onednn_patience();
void leave_onednn_team();

// `desc` is of this problem, whose batch is at least 1, and was made with as many threads.
std::unique_ptr<OnednnConvolution> onednn_executable(const ConvProblem&, OnednnPrimitiveDesc desc,
                                                     int threads);

}  // namespace convtune::cpu
