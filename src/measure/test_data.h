// The numbers of a problem's tensors for a check or a timing. Used by the testbed.
#pragma once

#include <cstdint>
#include <vector>

#include "convtune/problem.h"

namespace convtune {

// Real: uniform in [-1, 1), never zeros, for timing and rounding errors.
// Integer: small integers, so that every sum is exact in every precision and must match bit by bit, but for
// executables that say that theirs are not.
// Non-finite: integers, and a few NaN and infinities in some of the tensors, mostly at edges.
// Denormal: integers, but those of one operand, of bias and of residual are multiples of the least number
// that the operand's type holds, and so are all sums.
enum class TestData { real, integer, non_finite, denormal };

// The tensors that the problem has, as floats that their types hold exactly; the others are empty.
struct TestTensors {
  std::vector<float> x, cache, w, bias, residual, dy;
};

// Equal for equal problem, data and seed.
TestTensors test_tensors(const ConvProblem& problem, TestData data, std::uint64_t seed);

}  // namespace convtune
