#include "torch/ready.h"

#include "torch/how.h"
#include "torch/step_calls.h"

namespace convtune::torch {

Tensor run_if_ready(const Call& call) {
  if (packs_anew(call.how)) return step_forward_if_known(call);
  Form x;
  if (!read_form(call.x, x) || !is_served(x)) return {};
  void* const stream = current_stream(x);
  if (is_capturing(x, stream)) return {};
  const auto entry = Table::of_process().find(call, x, stream);
  return entry ? run(entry->launch, call.x, call.residual) : Tensor{};
}

}  // namespace convtune::torch
