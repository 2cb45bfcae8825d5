// Computes the epilogue of a sum (bias, residual, activation) in double precision.
#pragma once

#include "convtune/problem.h"

namespace convtune {

// True where rounding eagerly and rounding once give different outputs: sums are f32, so that steps of f32
// outputs have nothing to round.
inline bool rounds_each_step(const ConvProblem& problem) {
  return problem.rounding == Rounding::eager && problem.result_type() != DType::f32;
}

// The problem's epilogue of one sum. Not rounded to the output's type at the end: who stores it does that. An
// eager problem's steps before are.
double epilogue(const ConvProblem& problem, double sum, double bias, double residual);
// A Snake's value of what the epilogue gives, by its numbers for the channel; an eager problem's is rounded
// before.
double snaked(const ConvProblem& problem, double value, double alpha, double scale);

}  // namespace convtune
