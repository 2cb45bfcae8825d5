// See onednn_convolution.h.
#include "cpu/onednn/onednn_convolution.h"

#include <utility>

namespace convtune::cpu {
namespace {

// `front`, then the spatial axes: two, or three where the problem has a depth.
OnednnDims with_depth(const ConvProblem& a, OnednnDims front, std::int64_t depth, const OnednnDims& plane) {
  if (a.has_depth()) front.push_back(depth);
  front.insert(front.end(), plane.begin(), plane.end());
  return front;
}

bool is_transposed(const ConvProblem& a) {
  return a.direction == Direction::backward_data;
}
OnednnDims x_dims(const ConvProblem& a) {
  return with_depth(a, {a.n, a.c}, a.d, {a.h, a.w});
}
OnednnDims y_dims(const ConvProblem& a) {
  return with_depth(a, {a.n, a.k}, a.z(), {a.p(), a.q()});
}
OnednnDims input_dims(const ConvProblem& a) {
  return is_transposed(a) ? y_dims(a) : x_dims(a);
}
OnednnDims output_dims(const ConvProblem& a) {
  return is_transposed(a) ? x_dims(a) : y_dims(a);
}
// Filters before channels, as they lie.
OnednnDims filter_dims(const ConvProblem& a) {
  const bool grouped = a.groups > 1;
  return with_depth(a, grouped ? OnednnDims{a.groups, a.k / a.groups, a.c / a.groups} : OnednnDims{a.k, a.c},
                    a.t, {a.r, a.s});
}
// A deconvolution's have what it makes before what it reads.
OnednnDims outputs_first(const ConvProblem& a, OnednnDims of_filters) {
  const std::size_t first = a.groups > 1 ? 1 : 0;
  if (is_transposed(a)) std::swap(of_filters[first], of_filters[first + 1]);
  return of_filters;
}
OnednnDims weights_dims(const ConvProblem& a) {
  return outputs_first(a, filter_dims(a));
}

DType input_type(const ConvProblem& a) {
  return is_transposed(a) ? a.dtype.y : a.dtype.x;
}

DType output_type(const ConvProblem& a) {
  return is_transposed(a) ? a.dtype.x : a.dtype.y;
}

// The last axis runs fastest.
OnednnDims dense(const OnednnDims& dims) {
  OnednnDims strides(dims.size(), 1);
  for (std::size_t axis = dims.size() - 1; axis > 0; --axis) strides[axis - 1] = strides[axis] * dims[axis];
  return strides;
}

// The descriptor of an input or output, whose axis 1 is the channels.
OnednnDims plain(const ConvProblem& a, OnednnDims dims) {
  if (a.layout == Layout::nchw) return dense(dims);
  const std::int64_t channels = dims[1];
  dims.erase(dims.begin() + 1);
  dims.push_back(channels);
  OnednnDims strides = dense(dims);
  strides.pop_back();
  strides.insert(strides.begin() + 1, 1);
  return strides;
}

void apply_activation(OnednnAttributes& attributes, const ConvProblem& a) {
  switch (a.activation) {
    case Activation::none:
      return;
    case Activation::leaky_relu:
      return attributes.apply(a.activation, a.alpha, 0);
    case Activation::clip:
      return attributes.apply(a.activation, a.alpha, a.beta);
    case Activation::silu:
      return attributes.apply(a.activation, 1, 0);
    case Activation::hardswish:
      return attributes.apply(a.activation, 1.0F / 6, 0.5F);  // oneDNN 2 has no others
    default:
      return attributes.apply(a.activation, 0, 0);
  }
}

OnednnGeometry geometry_of(const ConvProblem& a) {
  return {.strides = with_depth(a, {}, a.stride_d, {a.stride_h, a.stride_w}),
          .dilations = with_depth(a, {}, a.dilation_d - 1, {a.dilation_h - 1, a.dilation_w - 1}),
          .pad_before = with_depth(a, {}, a.pad_front, {a.pad_top, a.pad_left}),
          .pad_after = with_depth(a, {}, a.pad_back, {a.pad_bottom, a.pad_right})};
}

// `residual`: null, or how it lies.
OnednnPrimitiveDesc describe(const ConvProblem& a, const OnednnDesc& x, const OnednnDesc& w,
                             const OnednnDesc& y, const OnednnDesc* residual) {
  OnednnAttributes attributes;
  if (residual != nullptr) attributes.add(*residual);
  apply_activation(attributes, a);
  return onednn_convolution(x, w, onednn_bias(a), y, geometry_of(a), attributes, is_transposed(a));
}

}  // namespace

OnednnDesc onednn_input(const ConvProblem& a) {
  return {input_dims(a), input_type(a), plain(a, input_dims(a))};
}
OnednnDesc onednn_output(const ConvProblem& a) {
  return {output_dims(a), output_type(a), plain(a, output_dims(a))};
}
OnednnDesc onednn_weights(const ConvProblem& a) {
  return {weights_dims(a), a.dtype.w, outputs_first(a, dense(filter_dims(a)))};
}
OnednnDesc onednn_bias(const ConvProblem& a) {
  return a.bias ? OnednnDesc({a.bias_elements()}, a.dtype.bias, {1}) : OnednnDesc();
}

// A residual lies as the output does, so where oneDNN chooses that, it is asked twice.
OnednnPrimitiveDesc describe_convolution(const ConvProblem& a, const OnednnConfig& config) {
  OnednnDesc x = onednn_input(a), y = onednn_output(a);
  const OnednnDesc w(weights_dims(a), a.dtype.w, {});
  if (config.blocked) {
    x = {input_dims(a), input_type(a), {}};
    y = {output_dims(a), output_type(a), {}};
  }
  if (a.direction == Direction::backward_weights) {  // its order of weights is oneDNN's choice
    return onednn_wgrad(x, w, onednn_bias(a), y, geometry_of(a),
                        onednn_convolution(x, w, onednn_bias(a), y, geometry_of(a), {}, false));
  }
  if (!a.residual) return describe(a, x, w, y, nullptr);
  if (config.blocked) {
    const OnednnPrimitiveDesc chosen = describe(a, x, w, y, nullptr);
    x = chosen.query(OnednnQuery::src);
    y = chosen.query(OnednnQuery::dst);
  }
  return describe(a, x, w, y, &y);
}

OnednnPrimitiveDesc describe_like(const ConvProblem& a, const OnednnPrimitiveDesc& other) {
  const OnednnDesc y = other.query(OnednnQuery::dst);
  return describe(a, other.query(OnednnQuery::src), other.query(OnednnQuery::weights), y,
                  a.residual ? &y : nullptr);
}

}  // namespace convtune::cpu
