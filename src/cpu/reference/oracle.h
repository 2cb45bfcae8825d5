// The oracle: one element of a result in double precision, so that all of a small result, or a sample of
// a large one, can be checked. What every other answer is judged by.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convtune/problem.h"

namespace convtune::cpu {

// Tensors on the host as floats, whatever their element types: every number of f16 and bf16 is one of f32.
// Null where the problem has none.
struct HostValues {
  const float *x = nullptr, *w = nullptr, *bias = nullptr, *residual = nullptr, *dy = nullptr;
};

struct OracleValue {
  double value;      // not rounded to the result's type, but for an eager problem's steps before the last
  double magnitude;  // |bias| + |residual| + sum of |x*w|: what a rounding error is measured against
  double sum;        // before the epilogue
  double of_rounded_sum;  // `value`, where the sum is rounded to the output's type before the epilogue
};

// Shape of what a problem computes: y, dx, or dw with dbias behind it.
struct ResultShape {
  std::int64_t elements = 0;       // y, dx or dw
  std::int64_t bias_elements = 0;  // dbias
  DType type = DType::f32, bias_type = DType::f32;
  std::int64_t terms = 0;  // products of a sum, at most
};
ResultShape result_of(const ConvProblem& problem);

// Element `index` of the result as it lies in memory; from result_of().elements on: of dbias. Padding is
// never multiplied, so a NaN or Inf weight does not spread through it.
// A problem with a cache is asked as joined() has it (problem/rewrite.h).
OracleValue oracle(const ConvProblem& problem, const HostValues& values, std::int64_t index);

// The cache's frames and x's, as one tensor.
std::vector<float> join_frames(const ConvProblem& problem, const std::vector<float>& cache,
                               const std::vector<float>& x);

// "y[n=0, k=3, p=1, q=2]"
std::string name_of_element(const ConvProblem& problem, std::int64_t index);

}  // namespace convtune::cpu
