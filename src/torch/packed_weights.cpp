#include "torch/packed_weights.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "torch/how.h"
#include "torch/plans.h"
#include "torch/stack.h"

namespace convtune::torch {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw std::runtime_error("convtune::conv2d_packed: " + why);
}

// `text`: fingerprint of the device, problem, layout, algorithm and config, by tabs (run.choice_line).
Plan make(const std::string& text, const std::string& device) {
  const std::vector<std::string> fields = split(text, '\t');
  if (fields.size() != 5) refuse("'" + text + "' is no plan of convtune's");
  convtune_problem problem = CONVTUNE_PROBLEM_INIT;
  check_face(convtune_problem_parse(fields[1].c_str(), &problem));
  const bool wanted_last = problem.layout == CONVTUNE_NHWC;
  problem.layout = fields[2] == "nhwc" ? CONVTUNE_NHWC : CONVTUNE_NCHW;
  Plan plan = plan_of(problem, device, fields[3].c_str(), fields[4].c_str());
  plan.wanted_last = wanted_last;
  if (fingerprint(plan.convolution.get()) != fields[0])
    refuse(device + " is another kind of device than the graph was compiled for, '" + fields[0] + "'");
  return plan;
}

Tensor answer(TensorHandle x, TensorHandle packed, TensorHandle residual, std::string_view plan) {
  Form of_x, of_residual;
  if (!read_form(x, of_x) || !is_served(of_x)) refuse("x is no image on a CPU or on an NVIDIA GPU");
  void* const stream = current_stream(of_x);
  const SharedPlan shared =
      planned(plan, of_x, is_capturing(of_x, stream), "convtune::conv2d_packed",
              [&](const std::string& device) { return make(std::string(plan), device); });
  const Plan& of = *shared;
  std::int64_t bytes = 0;
  check(shim->get_numel(packed, &bytes), "get_numel");
  if (of_x.sizes != of.x || c_dtype(of_x.dtype) != of.problem.dtype ||
      bytes < static_cast<std::int64_t>(convtune_packed_bytes(of.convolution.get())) ||
      !on_device_of(packed, of_x))
    refuse("x or the packed weights are not of the plan '" + std::string(plan) + "'");
  const bool added = residual && read_form(residual, of_residual) && of_residual.sizes == of.y &&
                     of_residual.axes == of_x.axes && of_residual.dtype == of_x.dtype &&
                     of_residual.on_device_of(of_x);
  if (added != (of.problem.residual != 0) || added != (residual != nullptr))
    refuse("residual is not of the plan '" + std::string(plan) + "'");
  Form y = of_x;
  y.sizes = of.y;
  if (of.problem.snake == CONVTUNE_SNAKE_BESIDE) y.sizes[0] *= 2;
  if (!std::all_of(y.sizes.begin() + 2, y.sizes.end() - y.axes, [](std::int64_t size) { return size == 1; }))
    refuse("x has fewer axes than the plan '" + std::string(plan) + "'");
  const Launch launch = {.convolution = of.convolution.get(),
                         .packed = address(packed),
                         .stream = stream,
                         .x = of_x,
                         .residual = of_residual,
                         .y = dense(y, of.wanted_last),
                         .last = of.runs_last(),
                         .transposed = of.transposed()};
  return run(launch, x, residual);
}

}  // namespace

void conv2d_packed(Value* stack, std::uint64_t count, std::uint64_t) {
  Arguments arguments(stack, count);
  Tensor y = answer(as_tensor(stack[0]), as_tensor(stack[1]), unboxed(stack[2]), as_text(stack[3]));
  arguments.free();
  stack[0] = as_value(y.release());
}

}  // namespace convtune::torch
