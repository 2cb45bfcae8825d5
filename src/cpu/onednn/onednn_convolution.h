// A problem in oneDNN's words.
#pragma once

#include "cpu/onednn/onednn_objects.h"

namespace convtune::cpu {

struct OnednnConfig {
  std::int64_t blocked = 0;
  template <class Self, class F>
  static void visit(Self& self, F&& field) {
    field("blocked", self.blocked, 0, 1, "oneDNN chooses the layout, and both conversions are counted");
  }
};

// Backward data is oneDNN's deconvolution, which has an epilogue: dy is its input, dx its output.
//
// Descriptors of the tensors as they lie in memory by the problem's layout.
OnednnDesc onednn_input(const ConvProblem&);
OnednnDesc onednn_output(const ConvProblem&);  // the residual's, too
OnednnDesc onednn_weights(const ConvProblem&);
OnednnDesc onednn_bias(const ConvProblem&);  // none where there is no bias

// Throws Error{unsupported} where oneDNN has no implementation. In backward weights it describes the
// gradient.
OnednnPrimitiveDesc describe_convolution(const ConvProblem&, const OnednnConfig&);
// The convolution with tensors that lie as those of `other` do, for as many threads as OpenMP has now. Not of
// weights' gradients. Throws as the former does.
OnednnPrimitiveDesc describe_like(const ConvProblem&, const OnednnPrimitiveDesc& other);

}  // namespace convtune::cpu
