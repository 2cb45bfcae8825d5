// The twin of src/cuda/ptx/grid.cuh: launches do not overlap here.
#pragma once

namespace convtune::ptx {

template <class... Pointers>
inline void wait_for_earlier_grids(Pointers&... pointers) {}

}  // namespace convtune::ptx
