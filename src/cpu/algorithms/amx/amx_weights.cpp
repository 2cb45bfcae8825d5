// See amx_weights.h.
#include "cpu/algorithms/amx/amx_weights.h"

#include <algorithm>
#include <cmath>

#include "cpu/algorithms/amx/amx_tiles.h"
#include "cpu/reference/padding_repair.h"
#include "cpu/tile/elements.h"
#include "problem/element.h"

namespace convtune::cpu {

// visit(element of the packed weights, of the weights) of all.
template <class Visit>
void AmxWeights::for_each_weight(Visit&& visit) const {
  const AmxGeometry& g = geometry_;
  const std::int64_t taps = problem_.r * problem_.s;
  for (std::int64_t group = 0; group < g.groups; ++group)
    for (std::int64_t b = 0; b < g.filter_blocks; ++b) {
      const FilterBlock block = g.block(b);
      for (std::int64_t f = 0; f < block.count * kAmxFilters; ++f) {
        const std::int64_t filter = block.first * kAmxFilters + f;
        if (filter >= g.group_filters) break;
        for (std::int64_t run = 0; run < g.run_count; ++run)
          for (std::int64_t e = 0; e < g.run; ++e) {
            // Runs go on from tap to tap.
            const std::int64_t of_filter = run * g.run + e;
            const std::int64_t c = of_filter % g.channels, tap = of_filter / g.channels;
            if (c >= g.group_channels || tap >= taps) continue;
            const std::int64_t chunk = e / kAmxElements, in_chunk = e % kAmxElements;
            const std::int64_t words = (chunk < g.chunks ? kAmxElements : g.tail) / 2;
            const std::int64_t word =
                (run * g.run + chunk * kAmxElements) / 2 * block.count +  // whole chunks before this
                f / kAmxFilters * words + in_chunk / 2;
            const std::int64_t at = of(group, block) + word * kAmxFilters + f % kAmxFilters;
            visit(2 * at + in_chunk % 2,
                  ((group * g.group_filters + filter) * g.group_channels + c) * taps + tap);
          }
      }
    }
}

void AmxWeights::pack(const void* w, const void* bias, float* packed) const {
  std::fill_n(packed, floats(), 0.0F);
  bool all_finite = true;
  for_each_weight([&](std::int64_t at, std::int64_t index) {
    const float value = load(DType::bf16, w, index);
    all_finite = all_finite && std::isfinite(value);
    store(DType::bf16, packed, at, static_cast<double>(value));
  });
  for (std::int64_t k = 0; problem_.bias && k < problem_.k; ++k)
    packed[this->bias(k)] = load(problem_.dtype.bias, bias, k);
  packed[flag()] = all_finite ? 0 : 1;
}

void AmxWeights::repair(const Tensors& tensors, const float* packed,
                        const std::vector<float>& residual) const {
  std::vector<float> w(static_cast<std::size_t>(problem_.weight_elements())),
      biases(static_cast<std::size_t>(problem_.k));
  for_each_weight([&](std::int64_t at, std::int64_t index) {
    w[static_cast<std::size_t>(index)] = load(DType::bf16, packed, at);
  });
  for (std::int64_t k = 0; k < problem_.k; ++k) biases[static_cast<std::size_t>(k)] = packed[bias(k)];
  const std::vector<float> x = to_floats(problem_.dtype.x, tensors.x, problem_.input_elements());
  repair_padded_outputs(problem_,
                        {.x = x.data(), .w = w.data(), .bias = biases.data(), .residual = residual.data()},
                        tensors.y);
}

}  // namespace convtune::cpu
