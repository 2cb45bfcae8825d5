// Names that a page gives its cases.
#pragma once

#include <string>

#include "convtune/problem.h"

namespace convtune::page {

// "alexnet_conv1 (batch 8)": the batch is in no name, and a problem's text leaves out a usual one.
std::string case_name(const ConvProblem& problem);

}  // namespace convtune::page
