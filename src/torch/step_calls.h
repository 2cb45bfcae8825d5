// Calls of a step of training. Its weights are others in every step and are packed in each call, so all that
// is known of a call before it is made follows from how its tensors lie. Python plans and runs the first of a
// kind, and offers it to the table here; it keeps the convolutions until it clears the table.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fork_gate.h"
#include "torch/operator_table.h"
#include "torch/running.h"

namespace convtune::torch {

// Three tensors of one set of gradients: dy, x, weight. Four of a forward: x, weight, bias, residual; what is
// not there is of no type.
using StepForms = std::array<Form, 4>;

// A convolution for which the weight is packed in the call.
struct PackedAnew {
  Launch launch;  // without packed weights, and of no stream
  Form weight;
  bool lies = false;  // as the convolution reads it
};

// The gradient of a weight, and of the bias with it.
struct WeightGradient {
  const convtune_convolution* convolution = nullptr;
  Form dw, dbias;          // no bias: of no type
  bool last = false;       // the kernel's images lie channels last
  bool exchanged = false;  // of a transposed layer, whose dy is the kernel's x
  bool dw_last = false;    // the kernel stores dw channels last
};

struct StepCall {
  // The key.
  std::string how;
  StepForms tensors;
  std::int32_t precision = Entry::kAnyPrecision;
  // The parts of the call; one without a convolution is not done.
  PackedAnew forward, of_x;
  WeightGradient of_weight;
};

class StepCalls {
 public:
  // The calls of this process; never destroyed, since kernels run until its end.
  static StepCalls& of_process();

  std::shared_ptr<const StepCall> find(std::string_view how, const StepForms& tensors);
  void add(std::shared_ptr<const StepCall> call);
  // Forgets all, and returns when no call uses any of them.
  void clear();
  std::int64_t size();

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  SharedMutex mutex_;
  std::unordered_map<std::string, std::vector<std::shared_ptr<const StepCall>>, Hash, std::equal_to<>>
      by_how_;
};

// y, where such a call is known and no CUDA graph records it; else none.
Tensor step_forward_if_known(const Call& call);

// Gradients of x, of the weight and of the bias; those that are not asked are none.
using Gradients = std::array<Tensor, 3>;
// False where such a call is not known, or a CUDA graph records it.
bool gradients_if_known(TensorHandle dy, TensorHandle x, TensorHandle weight, std::string_view how,
                        Gradients& gradients);

}  // namespace convtune::torch
