// NaN and infinities behind oneDNN. Its activations make numbers of NaN (max(NaN, 0) is 0 there), and where
// its JIT kernels do not take a problem, it multiplies padding, so that an infinite weight makes NaN at the
// edges.
#pragma once

#include <memory>

#include "cpu/onednn/onednn_executable.h"

namespace convtune::cpu {

// The convolution as it is, where it can do neither. Else one that looks at the weights when they are packed,
// and before a run whose activation would hide NaN at x and the residual: reading them is little beside what
// a convolution does. Where no sum can be NaN, oneDNN does it all. Else it computes the sums alone, the
// epilogue follows in double precision, and outputs beside infinite weights over padding are computed again.
std::unique_ptr<Executable> keep_special_numbers(const ConvProblem&, std::unique_ptr<OnednnConvolution>,
                                                 const DeviceInfo&);

}  // namespace convtune::cpu
