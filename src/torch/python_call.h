// Calls of Python's that PyTorch's dispatcher does not see: a function of Python's own C interface.
#pragma once

namespace convtune::torch {

// A new reference to a function (x, weight, bias or None, residual or None, how) that gives y where that call
// is ready, else None; null where this process has no Python, or PyTorch no way to hand it a tensor. Its
// tensors must be ordinary ones, and nobody may watch what is done with them: nothing is asked of the
// dispatcher.
void* python_call();
// A new reference to the Python object of the tensor at that address in C++, or to None; behind python_call()
// alone.
void* python_object(const void* tensor);

}  // namespace convtune::torch
