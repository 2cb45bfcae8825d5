// The sequence of problems that the property sweep walks through, biased to edges.
#pragma once

#include <cstdint>

#include "convtune/problem.h"

namespace convtune {

// Valid always; work bounded by max_macs multiply-adds (about) and tensors by 2^20 elements, so that
// an oracle in double keeps up. Depends on (seed, index) alone, on every machine.
// Biased to: extents of 1, powers of two and vector widths ± 1, primes, pad >= filter, stride >
// filter, dilation that leaves one tap inside the image, groups = c (depthwise), groups of a few
// channels, batch 0, asymmetric padding, 1x1, NHWC, no bias, ReLU. Forward, 2-D and of f32.
ConvProblem random_problem(std::uint64_t seed, std::uint64_t index, double max_macs = 3e5);

// Draws as random_problem(), and every second problem also has some of: a depth, half precision and mixed
// types, backward directions, a residual, eager rounding, the other activations.
ConvProblem random_problem_of_any_kind(std::uint64_t seed, std::uint64_t index, double max_macs = 3e5);

// Draws as random_problem_of_any_kind(), with the axes, filter, stride, dilation, padding and kind of groups
// of `layer`: kernels for few shapes need those, and hardly any draw has them. Many channels, and half of the
// images, come in eights.
ConvProblem random_problem_like(const ConvProblem& layer, std::uint64_t seed, std::uint64_t index,
                                double max_macs = 3e6);

}  // namespace convtune
