// Memory of a device.
#pragma once

#include <cstddef>
#include <memory>

#include "contract/rows.h"
#include "convtune/tensor.h"

namespace convtune::cuda {

// At a multiple of 256 bytes, freed with the last copy of the pointer. Throws Error{unsupported} where there
// is not as much, with what is free.
std::shared_ptr<void> allocate(int device, std::size_t bytes);

// Queued on the stream.
void move_rows(int device, const Rows& rows, Stream stream);

}  // namespace convtune::cuda
