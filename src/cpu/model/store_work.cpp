// See store_work.h.
#include "cpu/model/store_work.h"

#include <algorithm>

#include "cpu/base/caches.h"
#include "cpu/model/meeting_stores.h"
#include "cpu/tile/stagger.h"

namespace convtune::cpu {

void add_stores(CpuWork& work, const ConvProblem& problem, const DeviceInfo& info, bool past_caches,
                double task_bytes, double vectors) {
  if (past_caches) return work.add(&CpuCosts::store_past_caches, vectors);
  if (!caches_keep(problem, info)) return work.add(&CpuCosts::store_to_memory, vectors);
  const auto l2 = static_cast<double>(l2_bytes_of(info));
  work.add(&CpuCosts::store_in_caches, vectors);
  work.add(&CpuCosts::store_far, vectors * task_bytes / (task_bytes + l2));
}

double activation_cycles(const ConvProblem& problem, int vector_bits) {
  switch (problem.activation) {
    case Activation::silu:
    case Activation::gelu_erf:
    case Activation::gelu_tanh:
    case Activation::sigmoid:
      return cpu_costs().exponential * static_cast<double>(problem.output_elements()) * 32 / vector_bits;
    case Activation::none:
    case Activation::relu:
    case Activation::clip:
    case Activation::hardswish:
    case Activation::leaky_relu:
      break;
  }
  return 0;
}

void add_meeting_stores(CpuWork& work, const ConvProblem& problem, const DeviceInfo& info, int stream,
                        double vectors) {
  if (stream == 2) return work.add(&CpuCosts::store_staggered, vectors);
  if (!lines_meet(problem.p() * problem.q() * size_of(problem.dtype.y)) || !meeting_stores_wait()) return;
  const bool in_caches = stream == 0 && caches_keep(problem, info);
  work.add(in_caches ? &CpuCosts::store_meeting_in_caches : &CpuCosts::store_meeting, vectors);
}

void add_cut_lines(CpuWork& work, const ConvProblem& problem, const LineBlocks& blocks,
                   std::int64_t vector_bytes, bool past_caches, double rows) {
  constexpr std::int64_t kPageBytes = 4096;
  const std::int64_t unit_bytes = blocks.unit * vector_bytes;
  const bool cuts = blocks.width * unit_bytes % kCacheLineBytes != 0 ||
                    (blocks.wider != 0 && (blocks.width + 1) * unit_bytes % kCacheLineBytes != 0);
  if (!cuts) return;
  const bool whole_pages = problem.p() * problem.q() * size_of(problem.dtype.y) % kPageBytes == 0;
  work.add(
      whole_pages ? &CpuCosts::half_line_of_page : &CpuCosts::half_line,
      rows * static_cast<double>(blocks.count - 1) * (past_caches ? 1 : cpu_costs().half_line_in_caches));
}

void add_short_pieces(CpuWork& work, const ConvProblem& a, std::int64_t output_rows, double windows) {
  const std::int64_t rows = std::min((output_rows - 1) * a.stride_h + (a.r - 1) * a.dilation_h + 1, a.h);
  const double bytes = static_cast<double>(rows) * static_cast<double>(a.w * size_of(a.dtype.x));
  if (output_rows >= a.p() || bytes >= cpu_costs().short_piece_bytes) return;
  work.add(&CpuCosts::short_piece_line,
           windows * static_cast<double>(a.c / a.groups) * bytes / static_cast<double>(kCacheLineBytes));
}

}  // namespace convtune::cpu
