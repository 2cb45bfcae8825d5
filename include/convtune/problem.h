// Conv2dProblem: what is asked. A plain value; nothing in it depends on a device or an algorithm.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "convtune/tensor.h"

namespace convtune {

// A forward 2-D convolution (cross-correlation, as every deep-learning framework means it):
//
//   y[n][k][p][q] = act(bias[k] + sum over c, r, s of
//                       x[n][g*C/G + c][p*stride_h + r*dilation_h - pad_top]
//                                      [q*stride_w + s*dilation_w - pad_left] * w[k][c][r][s])
//
// with g = k / (K/G), c in [0, C/G), and x read as 0 outside the image.
//
// Text form: benchdnn's convolution grammar, then optional `key=value` words for what that grammar
// has no letters for, e.g.
//
//   mb256ic3ih224oc96oh55kh11sh4ph2n"alexnet_conv1" precision=tf32 act=relu
//
// Letters: mb n | g groups | ic c | ih h | iw w | oc k | oh, ow output size | kh r | kw s |
// sh, sw strides | ph, pw top and left padding | dh, dw dilation COUNTED FROM 0 | n"name", the last of them.
// As in benchdnn: mb defaults to 2, groups and strides to 1, dilations and paddings to 0; heights alone are
// square, widths alone 1-D (height 1), a depth (id, kd, od, …) is 1; padding that a stated output asks for is
// derived. Otherwise bottom and right equal top and left. See docs/decisions/0019-benchdnns-lines.md.
// Words: precision=auto|fp32|tf32|fp16|bf16  layout=nchw|nhwc  dtype=f32|f16|bf16
//        act=none|relu  bias=0|1 (default 1)  pad_bottom=N  pad_right=N
struct Conv2dProblem {
  std::int64_t n = 1, c = 1, h = 1, w = 1;  // input: batch, channels, height, width
  std::int64_t k = 1, r = 1, s = 1;         // output channels, filter height, filter width
  std::int64_t groups = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t dilation_h = 1, dilation_w = 1;  // counted from 1, as PyTorch does: 1 = dense
  std::int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  DType dtype = DType::f32;
  Layout layout = Layout::nchw;
  Precision precision = Precision::automatic;
  Activation activation = Activation::none;
  bool bias = true;
  std::string name{};  // a label for people; no part of equality or of key()

  std::int64_t p() const;  // output height; see output_size
  std::int64_t q() const;  // output width

  std::int64_t input_elements() const;   // n*c*h*w
  std::int64_t weight_elements() const;  // k*(c/groups)*r*s
  std::int64_t output_elements() const;  // n*k*p*q

  // Multiplies and adds: 2*n*k*p*q*(c/groups)*r*s. Products with padding count, as everywhere.
  double flops() const;
  // Bytes that must move at least once: input + weights + bias + output.
  double bytes() const;

  // Everything but the name: two problems with the same key are the same work.
  bool operator==(const Conv2dProblem&) const;
};

// Output extent along one axis: floor((size + pad_before + pad_after - (dilation*(filter-1) + 1))
// / stride) + 1, or 0 where the dilated filter does not fit. The one place that knows the formula.
std::int64_t output_size(std::int64_t size, std::int64_t filter, std::int64_t stride, std::int64_t dilation,
                         std::int64_t pad_before, std::int64_t pad_after);

// Throws Error{invalid_argument} that names the field and the numbers: extents < 1 (n may be 0),
// groups that do not divide c and k, negative padding, strides, dilations or paddings of 2^31 or more,
// an output of no size, tensors of more than 2^62 bytes, a name of more than 2048 bytes or with a '"' or
// a control character in it. Every public function that takes a problem calls it.
void validate(const Conv2dProblem&);

// The text form; throws Error{invalid_argument} that names the position, and validates.
Conv2dProblem parse_problem(std::string_view text);
// Shortest text that parse_problem takes back to an equal problem, name included.
std::string to_string(const Conv2dProblem&);
// to_string without the name: what records and caches are filed under.
std::string key(const Conv2dProblem&);

}  // namespace convtune
