// Numbers of one tensor in another order: filters before they are packed. A thread has one of them; this runs
// as seldom as packing does.
#include "cuda/launch/gather_axes.h"
#include "cuda/ptx/grid.cuh"

namespace convtune {

template <class Element>
__global__ void __launch_bounds__(GatherAxes::kThreads)
    gather_numbers(const Element* __restrict__ from, Element* __restrict__ to, const GatherAxes axes) {
  ptx::wait_for_earlier_grids();
  const long long i = blockIdx.x * static_cast<long long>(GatherAxes::kThreads) + threadIdx.x;
  if (i >= axes.elements) return;
  const long long source = axes.source_of(i);
  to[i] = source < 0 ? Element{0} : from[source];
}

}  // namespace convtune
