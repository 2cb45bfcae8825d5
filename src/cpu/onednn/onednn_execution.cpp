// See onednn_execution.h.
#include "cpu/onednn/onednn_execution.h"

#include <omp.h>

namespace convtune::cpu {

ThreadCount::ThreadCount(int threads) : before_(omp_get_max_threads()), changed_(before_ != threads) {
  if (changed_) omp_set_num_threads(threads);
}

ThreadCount::~ThreadCount() {
  if (changed_) omp_set_num_threads(before_);
}

}  // namespace convtune::cpu
