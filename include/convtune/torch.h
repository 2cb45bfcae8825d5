/* The operator convtune::conv2d_forward for programs that have libtorch and no Python: what graphs of
 * torch.compile hold, and packages of AOTInductor that were made of them. A library of its own,
 * libconvtune_torch.so, which needs libtorch's headers neither to build nor to use, and serves PyTorch 2.10
 * and every later version.
 *
 *   if (const char* why = convtune_torch_register()) throw std::runtime_error(why);
 *   torch::inductor::AOTIModelPackageLoader model("model.pt2");
 *   auto y = model.run({x});
 *
 * The schema, for calls through the dispatcher; `how` is described in src/torch/how.h:
 *
 *   conv2d_forward(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, str how) -> Tensor
 *
 * activation(conv2d(x, weight) + bias + residual) of float32, float16 or bfloat16 tensors (N, C, H, W) and
 * (K, C/groups, R, S), a bias (K) of their type or float32, and a residual of the output's shape; of tensors
 * with one axis, or three, in the place of two it is a 1-D or 3-D convolution; where `how` has an output
 * padding, a transposed one, of weights (C, K/groups, R, S). The weight is packed when it is new or was
 * written to, as PyTorch counts writes; it lives on as long as what was packed of it, which a program's end
 * frees. */
#ifndef CONVTUNE_TORCH_H
#define CONVTUNE_TORCH_H

#include "convtune/c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Registers the operator's schema and its kernels for CPUs and NVIDIA GPUs, once. Null, or why it could not:
 * libtorch is not in this process, or is too old, or somebody has registered it before. In Python the package
 * does it. */
CONVTUNE_API const char* convtune_torch_register(void);

#ifdef __cplusplus
}
#endif

#endif
