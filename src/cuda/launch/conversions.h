// Tensors in half precision, and f32 of gradients of weights, from NCHW to NHWC before a kernel that is for
// channels last alone, and back behind it: as steps of its launch plan, and as work that the model of time
// counts.
#pragma once

#include <string>

#include "convtune/error.h"
#include "convtune/problem.h"
#include "cuda/launch/launch_plan.h"
#include "model/time_model.h"

namespace convtune::cuda {

// The tensors that a kernel has in NHWC alone; x: the cache too, y: the residual; of gradients of weights dy.
struct ChannelsLast {
  bool x = false, y = false;
  explicit operator bool() const { return x || y; }
};

// Names another operand in every place of a step that names the one.
void replace(Step& step, Operand from, Operand to);

// Tells whether a problem's tensors can be converted: from NCHW, not of backward data, in 2 bytes; of
// gradients of weights in f32, too.
bool is_convertible(const ConvProblem& problem);

// Tells whether the tensors to be converted are small enough to be moved by one launch each, else why not.
Support takes_conversions(const ConvProblem& problem, ChannelsLast tensors);
// The plan's kernel works on tensors in NHWC then, which are in the plan's workspace; those that are the same
// in both layouts stay where they are.
void add_conversions(LaunchPlan& plan, const ConvProblem& problem, ChannelsLast tensors);
void count_conversions(TileWork& work, const ConvProblem& problem, ChannelsLast tensors);
// "converts x and y between NCHW and NHWC, with 25.7 MB of memory for them"; empty where none moves.
std::string conversions_in_words(const ConvProblem& problem, ChannelsLast tensors);

}  // namespace convtune::cuda
