// Tensors in half precision from NCHW to NHWC before a kernel that is for channels last alone, and back
// behind it: as steps of its launch plan, and as work that the model of time counts.
#pragma once

#include <string>

#include "convtune/error.h"
#include "convtune/problem.h"
#include "cuda/launch/launch_plan.h"
#include "model/time_model.h"

namespace convtune::cuda {

// The problem that a kernel for channels last alone computes: in NHWC where it comes in NCHW, forward, in two
// dimensions and with x and y in half precision; else as it is.
ConvProblem in_channels_last(const ConvProblem& problem);

// What follows is of a problem in NCHW that in_channels_last() changes.
// Whether its tensors are small enough to be moved by one launch each, else why not.
Support takes_conversions(const ConvProblem& problem);
// The plan's kernel works on tensors in NHWC then, which are in the plan's workspace; those that are the same
// in both layouts stay where they are.
void add_conversions(LaunchPlan& plan, const ConvProblem& problem);
void count_conversions(TileWork& work, const ConvProblem& problem);
// "converts x and y between NCHW and NHWC, with 25.7 MB of memory for them"; empty where none moves.
std::string conversions_in_words(const ConvProblem& problem);

}  // namespace convtune::cuda
