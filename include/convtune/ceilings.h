// A device's measured ceilings, and the floor that they set under the time of a problem.
#pragma once

#include <string>

#include "convtune/problem.h"
#include "convtune/tensor.h"

namespace convtune {

// The device's measured ceilings: what an ideal kernel could reach here, in this run.
struct Ceilings {
  double flops_per_second = 0;  // fused multiply-adds, all units busy; on a GPU: of tf32 numbers
  double bytes_per_second = 0;  // copying memory: bytes read plus bytes written
  // The other precisions of a GPU. 0, as on a CPU: they are multiplied as fast as the above.
  double fp32_flops_per_second = 0;  // by ordinary units, or as three products of tf32 where that is faster
  double fp16_flops_per_second = 0, bf16_flops_per_second = 0;  // sums in fp32

  double peak(Precision) const;  // multiply-adds a second in that precision
};

// max(flops / the precision's peak, compulsory bytes / copy speed): no kernel can be faster, but for layers
// whose tensors stay in a CPU's caches, and Winograd's, which makes fewer products.
struct Roofline {
  double floor_us = 0;
  std::string bound;  // "compute" or "memory"
  // The two roofs, of the problem's precision; 0 where they are not known, as in a record.
  double flops_per_second = 0, bytes_per_second = 0;
};
Roofline roofline(const ConvProblem&, const Ceilings&);

// Measures the ceilings of a device, about half a second. Measured once in a process and kept.
const Ceilings& measure_ceilings(Device);

}  // namespace convtune
