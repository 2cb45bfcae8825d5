// ConvProblem: what is asked. A plain value; nothing in it depends on a device or an algorithm.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "convtune/tensor.h"

namespace convtune {

// A convolution of 1 to 3 spatial dimensions (cross-correlation, as every deep-learning framework means it).
// Forward:
//
//   y[n][k][z][p][q] = act(bias[k] + residual[n][k][z][p][q] + sum over c, t, r, s of
//                          x[n][g*C/G + c][z*stride_d + t*dilation_d - pad_front]
//                                         [p*stride_h + r*dilation_h - pad_top]
//                                         [q*stride_w + s*dilation_w - pad_left] * w[k][c][t][r][s])
//
// with g = k / (K/G), c in [0, C/G), and x read as 0 outside the image. A 2-D problem has d = t = 1, a 1-D
// one h = r = 1 too. A forward problem with a depth may have a cache, as causal layers of videos do: `cache`
// frames before x's first, instead of as many zeros of its front padding, are those of a second tensor, the
// last of them next to x. Backward data: dx, backward weights: dw (and dbias, where the problem has a bias),
// the gradients of sum(y * dy) for a forward problem without residual and activation; the fields stay those
// of the forward problem.
//
// A transposed convolution is backward data with an epilogue: a layer that makes c channels of k, its input
// in place of dy and its output in place of dx, weights [K][C/groups][T][R][S] as PyTorch's ConvTranspose has
// them; bias (of c elements), residual and activation are added to dx as forward adds them to y. Output
// padding needs no field: h and w are the output's sizes, and p() and q() must be the input's. See
// docs/decisions/0116-transposed-convolutions.md.
//
// Text form: benchdnn's convolution grammar, then optional `key=value` words for what that grammar
// has no letters for, e.g.
//
//   mb256ic3ih224oc96oh55kh11sh4ph2n"alexnet_conv1" precision=tf32 act=relu
//
// Letters: mb n | g groups | ic c | id d, ih h, iw w | oc k | od, oh, ow output size | kd t, kh r, kw s |
// sd, sh, sw strides | pd, ph, pw front, top and left padding | dd, dh, dw dilation COUNTED FROM 0 |
// n"name", the last of them. As in benchdnn: mb defaults to 2, groups and strides to 1, dilations and
// paddings to 0; depths alone are cubes, heights alone square, widths alone 1-D (height 1); padding that a
// stated output asks for is derived. Otherwise back, bottom and right equal front, top and left. See
// docs/decisions/0019-benchdnns-lines.md. Words: precision=auto|fp32|tf32|fp16|bf16  layout=nchw|nhwc
// dtype=T, X:W:Y or X:W:Y:BIAS of f32|f16|bf16
//        dir=fwd|bwd_d|bwd_w|transposed  act=relu|clip:LOW:HIGH|... (convtune/tensor.h; default none)
//        bias=0|1 (default 1, and 0 for bwd_d)  residual=0|1  rounding=once|eager
//        snake=none|after|beside
//        pad_back=N  pad_bottom=N  pad_right=N  cache=N (frames, at most the front padding; default 0)
// dir=transposed has the line's ic, ih, iw and id mean the transposed layer's input and oc, oh, ow and od its
// output (which follows from the rest where it is not stated), with a bias by default; it is written as
// bwd_d. benchdnn's own --dt=, --dir= and --attr-post-ops= are read as words too, and written as ours.
struct ConvProblem {
  std::int64_t n = 1, c = 1, d = 1, h = 1, w = 1;  // input: batch, channels, depth, height, width
  std::int64_t k = 1, t = 1, r = 1, s = 1;         // output channels, filter depth, height, width
  std::int64_t groups = 1;
  std::int64_t stride_d = 1, stride_h = 1, stride_w = 1;
  std::int64_t dilation_d = 1, dilation_h = 1, dilation_w = 1;  // counted from 1, as PyTorch does: 1 = dense
  std::int64_t pad_front = 0, pad_top = 0, pad_left = 0;
  std::int64_t pad_back = 0, pad_bottom = 0, pad_right = 0;
  std::int64_t cache = 0;  // frames of a second tensor in front of x
  DTypes dtype = DType::f32;
  Layout layout = Layout::nchw;
  Precision precision = Precision::automatic;
  Direction direction = Direction::forward;
  // The epilogue, in this order. Backward weights has none, but that with a bias it computes the bias's
  // gradient.
  bool bias = true;
  bool residual = false;  // a tensor of y's (or dx's) shape, layout and type is added
  Activation activation = Activation::none;
  float alpha = 0, beta = 0;  // the activation's parameters: clip's bounds, leaky_relu's slope; else 0
  Rounding rounding = Rounding::once;
  Snake snake = Snake::none;  // with a bias and without another activation
  std::string name{};         // a label for people; no part of equality or of key()

  bool has_depth() const;  // 3-D: neither image nor filter is a single plane without padding
  std::int64_t z() const;  // output depth; see output_size
  std::int64_t p() const;  // output height; see output_size
  std::int64_t q() const;  // output width

  std::int64_t input_elements() const;  // n*c*d*h*w
  std::int64_t cache_elements() const;  // n*c*cache*h*w
  // Frames of cache and x that windows behind the last frame would need: (t-1)*dilation_d.
  std::int64_t kept_frames() const;
  std::int64_t weight_elements() const;  // k*(c/groups)*t*r*s
  std::int64_t output_elements() const;  // n*k*z*p*q
  // The result: y, dx or dw.
  std::int64_t result_elements() const;
  std::int64_t residual_elements() const;  // a residual's, whether there is one or not
  DType result_type() const;
  // k, and c in backward data, whether there is a bias or not; with a Snake three times that.
  std::int64_t bias_elements() const;

  // Multiplies and adds: 2*n*k*z*p*q*(c/groups)*t*r*s in every direction. Products with padding count, as
  // everywhere.
  double flops() const;
  // Elements of the input that some window touches, and what shares their piece of memory: a pixel where
  // channels come last, else a sector of 32 bytes. A 1x1 with strides of 2 leaves out three quarters of the
  // one and half of the other. n*c*d*h*w in backward data, which writes them all.
  std::int64_t touched_input_elements() const;

  // Bytes that must move at least once: touched input + cache + weights + bias + residual + output, or
  // gradients.
  double bytes() const;

  // Everything but the name: two problems with the same key are the same work.
  bool operator==(const ConvProblem&) const;
};

// Output extent along one axis: floor((size + pad_before + pad_after - (dilation*(filter-1) + 1))
// / stride) + 1, or 0 where the dilated filter does not fit. The one place that knows the formula.
std::int64_t output_size(std::int64_t size, std::int64_t filter, std::int64_t stride, std::int64_t dilation,
                         std::int64_t pad_before, std::int64_t pad_after);

// Throws Error{invalid_argument} that names the field and the numbers: extents < 1 (n may be 0),
// groups that do not divide c and k, negative padding, strides, dilations or paddings of 2^31 or more,
// an output of no size, tensors of more than 2^62 bytes, a depth's stride or dilation where there is no
// depth, parameters that the activation does not have, an epilogue of backward weights, a cache of a problem
// that is not forward or of more frames than the front padding, a name of more than 2048 bytes or with a '"'
// or a control character in it. Every public function that takes a problem calls it.
void validate(const ConvProblem&);

// The text form; throws Error{invalid_argument} that names the position, and validates.
ConvProblem parse_problem(std::string_view text);
// Shortest text that parse_problem takes back to an equal problem, name included.
std::string to_string(const ConvProblem&);
// to_string without the name: what records and caches are filed under.
std::string key(const ConvProblem&);

}  // namespace convtune
