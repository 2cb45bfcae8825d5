// What becomes of a sum before it is stored, in double precision.
#pragma once

#include "convtune/problem.h"

namespace convtune {

// The problem's epilogue of one sum. Not rounded to the output's type at the end: who stores it does that. An
// eager problem's steps before are.
double epilogue(const ConvProblem& problem, double sum, double bias, double residual);

}  // namespace convtune
