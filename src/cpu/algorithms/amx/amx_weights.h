// The packed weights of `amx`: in the order of amx_geometry.h, zeros where there is no filter or channel;
// then the bias in the order of the filters, then whether any weight is infinite or NaN.
#pragma once

#include <cstdint>
#include <vector>

#include "convtune/problem.h"
#include "cpu/algorithms/amx/amx_geometry.h"
#include "cpu/algorithms/amx/amx_tiles.h"

namespace convtune::cpu {

// Offsets are in floats: a word is one. Problem and geometry outlive it.
class AmxWeights {
 public:
  AmxWeights(const ConvProblem& problem, const AmxGeometry& geometry)
      : problem_(problem), geometry_(geometry) {}

  std::int64_t floats() const { return flag() + 1; }
  void pack(const void* w, const void* bias, float* packed) const;

  std::int64_t of(std::int64_t group, const FilterBlock& block) const {
    return group * of_group() + block.first * kAmxFilters * geometry_.words;
  }
  std::int64_t bias(std::int64_t group, std::int64_t filter) const {
    return problem_.groups * of_group() + group * geometry_.filter_units * kAmxFilters + filter;
  }
  bool finite(const float* packed) const { return packed[flag()] == 0; }

  // Outputs whose filter reaches over the padding, where a weight is not finite.
  void repair(const Tensors& tensors, const float* packed, const std::vector<float>& residual) const;

 private:
  std::int64_t of_group() const { return geometry_.filter_units * kAmxFilters * geometry_.words; }
  std::int64_t bias(std::int64_t k) const {
    return bias(k / geometry_.group_filters, k % geometry_.group_filters);
  }
  std::int64_t flag() const { return bias(problem_.groups, 0); }
  template <class Visit>
  void for_each_weight(Visit&& visit) const;

  const ConvProblem& problem_;
  const AmxGeometry& geometry_;
};

}  // namespace convtune::cpu
