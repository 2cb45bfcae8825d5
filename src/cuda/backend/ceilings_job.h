// The kernels behind the ceilings that cuda.h offers, for the tests that compile them without a GPU.
#pragma once

#include "convtune/capability.h"
#include "cuda/compile/compiler.h"

namespace convtune::cuda {

// All kernels that measure_ceilings() runs on such a device.
CompileJob ceilings_job(ComputeCapability capability, const std::string& isa);

}  // namespace convtune::cuda
