// One convolution as cuDNN is asked for it: operation graphs. Fused, it is one graph (convolution, residual,
// bias, activation); else the convolution alone stores its sums, and what follows is a graph of pointwise
// operations, or one for each step where the problem rounds eagerly.
#pragma once

#include <cstdint>
#include <vector>

#include "convtune/problem.h"
#include "cuda/cudnn/cudnn_session.h"
#include "problem/epilogue.h"

namespace convtune::cuda {

// All tensors (weights too) channels-last or first; one graph or several.
struct CudnnForm {
  bool channels_last = false, fused = true;
  bool operator==(const CudnnForm&) const = default;
};

// A tensor that a convolution reads or writes beside its weights: x or y, or in backward data dy or dx. The
// gradient of weights reads both, x as what is read and dy as what is written elsewhere.
struct CudnnSide {
  std::int64_t channels, depth, height, width;
  DType type;
  std::int64_t pixels() const { return depth * height * width; }
};
CudnnSide read_side(const ConvProblem& problem);
CudnnSide written_side(const ConvProblem& problem);

// The tensors of the graphs, by the numbers that a variant pack names them with; `x` is what is read and `y`
// what is written, which is dw in backward weights, where `dy` is read, too. `sum` is what an unfused
// convolution stores, `partial` what an eager step does; `three` and `sixth` are numbers of the host.
enum class CudnnTensor : std::int64_t { x = 1, w, bias, y, residual, sum, partial, three, sixth, dy };

constexpr std::int64_t kCudnnAlignment = 16;  // per pointer, in bytes

inline bool has_epilogue(const ConvProblem& problem) {
  return problem.bias || problem.residual || problem.activation != Activation::none;
}

// An eager problem, where that makes a difference.
inline bool rounds_eagerly(const ConvProblem& problem) {
  return rounds_each_step(problem) && has_epilogue(problem);
}

// Gradients of weights without that of the bias, which cuDNN has not: sums of dy follow it.
ConvProblem without_dbias(ConvProblem problem);

// Elements of the bias that the graphs read, 0 where they have none; a channel each, or those again for each
// image: a pointwise graph knows no NCHW, and is given an image for each channel of each image.
std::int64_t cudnn_bias_elements(const ConvProblem& problem, const CudnnForm& form);
// The type of the problem's bias, or of the zeros in its place: precompiled engines fuse residual and
// activation with a bias only.
DType cudnn_bias_type(const ConvProblem& problem);

struct CudnnGraph {
  CudnnDescriptor descriptor;
  std::vector<CudnnTensor> tensors;
};

// Tells whether the operations that follow an unfused convolution answer rightly.
bool sequence_is_right(const ConvProblem& problem, const CudnnForm& form);

// The convolution: all of the problem where fused, else x and w to `sum`; where there is no epilogue, to y.
CudnnGraph convolution_graph(const ConvProblem& problem, const CudnnForm& form, const CudnnSession& session);
// Returns the operations that follow an unfused convolution, in order.
std::vector<CudnnGraph> epilogue_graphs(const ConvProblem& problem, const CudnnForm& form,
                                        const CudnnSession& session);

}  // namespace convtune::cuda
