// What becomes of a sum before it is stored, in double precision: the formulas of convtune/tensor.h, once for
// the host.
#pragma once

#include "convtune/problem.h"

namespace convtune {

double activate(Activation activation, double value, double alpha, double beta);

// The problem's epilogue of one sum. Not rounded to the output's type at the end: who stores it does that. An
// eager problem's steps before are.
double epilogue(const ConvProblem& problem, double sum, double bias, double residual);

}  // namespace convtune
