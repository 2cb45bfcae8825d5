// Planning and packing where no Python is: programs in C++ with libtorch, packages of AOTInductor. Convtune
// computes every call there; what the Python package would leave to PyTorch (decision 12), too.
#pragma once

#include <memory>

#include "torch/operator_table.h"

namespace convtune::torch {

// An entry for that call, planned and packed now. It is in the table as well, where weight and bias can be
// watched and no CUDA graph is recorded; there it keeps them alive, since nobody says when a tensor of C++
// goes. Throws std::runtime_error that says what cannot be.
std::shared_ptr<const Entry> prepare(const Call& call);

}  // namespace convtune::torch
