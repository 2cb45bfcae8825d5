// See cpu_algorithms.h.
#include "cpu/algorithms/cpu_algorithms.h"

namespace convtune::cpu {

std::vector<const Algorithm*> own_algorithms() {
  // A row an algorithm.
  // clang-format off
  return {
      &winograd(),
      &winograd_rows(),
      &winograd_filters(),
      &direct(),
      &direct_depthwise(),
      &amx(),
      &implicit_gemm(),
      &implicit_gemm_wgrad(),
  };
  // clang-format on
}

}  // namespace convtune::cpu
