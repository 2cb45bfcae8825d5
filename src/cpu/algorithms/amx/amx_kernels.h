// AMX as this processor has it, and whether this process may use it.
#pragma once

#include <string>

#include "cpu/algorithms/amx/amx_tiles.h"

namespace convtune::cpu {

// This processor's kernels; amx_missing() must have been asked first.
const AmxKernels& amx_kernels();

// Why this process cannot use AMX; empty where it can. Linux gives the tiles' state to a process that asks:
// the first call does.
const std::string& amx_missing();

}  // namespace convtune::cpu
