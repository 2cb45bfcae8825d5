// Plans that were made, of both operators, by device and by the text that asks for them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "torch/running.h"

namespace convtune::torch {

struct Plan {
  convtune_problem problem = CONVTUNE_PROBLEM_INIT;  // in the layout that the kernel runs in
  std::shared_ptr<const convtune_convolution> convolution;
  Sizes x{}, y{};            // sizes of the operator's tensors: backward x is dy, y is dx
  bool wanted_last = false;  // y is to lie channels last

  bool transposed() const { return problem.direction == CONVTUNE_BACKWARD_DATA; }
  bool runs_last() const { return problem.layout == CONVTUNE_NHWC; }
};
using SharedPlan = std::shared_ptr<const Plan>;

// A plan of the C face; algorithm and config may be null.
Plan plan_of(const convtune_problem& problem, const std::string& device, const char* algorithm,
             const char* config);

// The plan for that text on x's device, made where it is not known yet. Throws std::runtime_error that begins
// with `who` while a CUDA graph is being recorded: a plan may have to compile. What a graph records stays,
// since nobody says how long it is replayed.
SharedPlan planned(std::string_view text, const Form& x, bool capturing, const char* who,
                   const std::function<Plan(const std::string& device)>& make);

// Forgets all plans: later calls are planned anew.
void forget_plans();

}  // namespace convtune::torch
