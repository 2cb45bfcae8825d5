// Calls of Python's that PyTorch's dispatcher does not see: a function of Python's own C interface.
#pragma once

#include <cstdint>

#include "convtune/c.h"

namespace convtune::torch {

// A new reference to a function (x, weight, bias or None, residual or None, how) that gives y where that call
// is ready, else None; null where this process has no Python, or PyTorch no way to hand it a tensor. Its
// tensors must be ordinary ones, and nobody may watch what is done with them: nothing is asked of the
// dispatcher.
void* python_call();
// The others are there only where that one is.

// A new reference to a function (x, weight, bias or None, stride, padding, dilation, groups, precision,
// activation, choices, residual or None) that does the same where its tensors are plain and nothing is set in
// this thread by which somebody could watch or change the call; else it gives None. `spell`, a function of
// Python's, makes `how` of the words between bias and residual, which must be hashable; `levels` are the
// variables of torch.autograd.forward_ad. Null where this libtorch does not tell all that is to be asked.
void* python_eager(void* spell, void* levels);
// Tells what inference mode sets in a thread: called twice, with it off and with it on, where nothing else
// changes between. What else is set does not matter.
void remember_inference_mode();

// A new reference to a function (x, packed, [residual,] out=y) that runs the convolution on the current
// stream of the GPU of that number (-1: a CPU), in tensors that lie as its kernel reads and writes;
// `transposed`: they are dy and dx. What it cannot do, and what fails, is `otherwise`'s, a function of
// Python's (x, packed, residual or None, y). Both last as long as the process, as the code that calls it
// does.
void* python_bound(const convtune_convolution* convolution, std::int32_t device, bool transposed,
                   void* otherwise);
// A new reference to a function that tells of a tuple of tensors whether they are those of this tuple, lie
// where they did, and have not been written to since, nor have `counters`, another tuple; to None where
// nobody counts a tensor's changes, or storages cannot be told. Somebody must hold weak references to the
// tensors, so that Python gives none of those objects another tensor of C++, and to their storages, and may
// not call it once one of the tensors has gone.
void* python_watch(void* tensors, void* counters);
// A new reference to the Python object of the tensor at that address in C++, or to None.
void* python_object(const void* tensor);

}  // namespace convtune::torch
