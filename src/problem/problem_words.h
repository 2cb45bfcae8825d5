// The words of a problem line: what benchdnn's letters do not say, read and written.
#pragma once

#include <string>

#include "convtune/problem.h"
#include "problem/problem_line.h"

namespace convtune {

// Errors name the column.
void apply_words(const ProblemLine& line, ConvProblem& problem);

// " precision=tf32 act=relu": each that is not the default, with a blank before it.
std::string words_of(const ConvProblem& problem);

}  // namespace convtune
