// See cudnn_graph.h.
#include "cuda/cudnn/cudnn_graph.h"

#include <algorithm>
#include <limits>

namespace convtune::cuda {
namespace {

using Dimensions = std::vector<std::int64_t>;

CudnnData data_type(DType type) {
  switch (type) {
    case DType::f32:
      return CudnnData::f32;
    case DType::f16:
      return CudnnData::f16;
    case DType::bf16:
      break;
  }
  return CudnnData::bf16;
}

// ---- Places of tensors --------------------------------------------------------------------------------

// Extents as cuDNN wants them, batch and channels first whatever the layout; strides say how they lie.
struct Shape {
  Dimensions extents, strides;
};

Shape packed(const Dimensions& extents, bool channels_last) {
  Shape shape{extents, Dimensions(extents.size())};
  std::int64_t step = 1;
  const auto place = [&](std::size_t axis) {
    shape.strides[axis] = step;
    step *= extents[axis];
  };
  if (channels_last) place(1);
  for (std::size_t axis = extents.size() - 1; axis > 1; --axis) place(axis);
  if (!channels_last) place(1);
  place(0);
  return shape;
}

// `front`, then the spatial axes: two, or three where the problem has a depth.
Dimensions with_depth(const ConvProblem& a, Dimensions front, std::int64_t depth, const Dimensions& plane) {
  if (a.has_depth()) front.push_back(depth);
  front.insert(front.end(), plane.begin(), plane.end());
  return front;
}

Shape shape_of(const ConvProblem& a, const CudnnSide& side, bool channels_last) {
  return packed(with_depth(a, {a.n, side.channels}, side.depth, {side.height, side.width}), channels_last);
}

// Describes this memory for a pointwise graph, whose engines look at rows of channels.
Shape flat_output(const ConvProblem& a) {
  const CudnnSide side = written_side(a);
  return packed({1, side.channels, a.n * side.pixels(), 1}, true);
}

// ---- Operations ---------------------------------------------------------------------------------------

// `w` is dy in backward weights.
CudnnDescriptor convolution(const ConvProblem& a, const CudnnDescriptor& x, const CudnnDescriptor& w,
                            const CudnnDescriptor& y) {
  CudnnDescriptor shape(CudnnKind::convolution);
  shape.set(CudnnAttribute::convolution_compute_type, CudnnData::f32);
  shape.set_enum(CudnnAttribute::convolution_mode, CudnnType::convolution_mode, kCudnnCrossCorrelation);
  shape.set(CudnnAttribute::convolution_spatial_dimensions, Dimensions{a.has_depth() ? 3 : 2});
  shape.set(CudnnAttribute::convolution_dilations,
            with_depth(a, {}, a.dilation_d, {a.dilation_h, a.dilation_w}));
  shape.set(CudnnAttribute::convolution_filter_strides,
            with_depth(a, {}, a.stride_d, {a.stride_h, a.stride_w}));
  shape.set(CudnnAttribute::convolution_pre_paddings,
            with_depth(a, {}, a.pad_front, {a.pad_top, a.pad_left}));
  shape.set(CudnnAttribute::convolution_post_paddings,
            with_depth(a, {}, a.pad_back, {a.pad_bottom, a.pad_right}));
  shape.finalize();

  if (a.direction == Direction::backward_data) {
    CudnnDescriptor operation(CudnnKind::operation_convolution_backward_data);
    operation.set_float(CudnnAttribute::operation_convolution_backward_data_alpha, 1);
    operation.set_float(CudnnAttribute::operation_convolution_backward_data_beta, 0);
    operation.set(CudnnAttribute::operation_convolution_backward_data_convolution, shape);
    operation.set(CudnnAttribute::operation_convolution_backward_data_dy, x);
    operation.set(CudnnAttribute::operation_convolution_backward_data_w, w);
    operation.set(CudnnAttribute::operation_convolution_backward_data_dx, y);
    operation.finalize();
    return operation;
  }
  if (a.direction == Direction::backward_weights) {
    CudnnDescriptor operation(CudnnKind::operation_convolution_backward_filter);
    operation.set_float(CudnnAttribute::operation_convolution_backward_filter_alpha, 1);
    operation.set_float(CudnnAttribute::operation_convolution_backward_filter_beta, 0);
    operation.set(CudnnAttribute::operation_convolution_backward_filter_convolution, shape);
    operation.set(CudnnAttribute::operation_convolution_backward_filter_x, x);
    operation.set(CudnnAttribute::operation_convolution_backward_filter_dy, w);
    operation.set(CudnnAttribute::operation_convolution_backward_filter_dw, y);
    operation.finalize();
    return operation;
  }
  CudnnDescriptor operation(CudnnKind::operation_convolution_forward);
  operation.set_float(CudnnAttribute::operation_convolution_forward_alpha, 1);
  operation.set_float(CudnnAttribute::operation_convolution_forward_beta, 0);
  operation.set(CudnnAttribute::operation_convolution_forward_convolution, shape);
  operation.set(CudnnAttribute::operation_convolution_forward_x, x);
  operation.set(CudnnAttribute::operation_convolution_forward_w, w);
  operation.set(CudnnAttribute::operation_convolution_forward_y, y);
  operation.finalize();
  return operation;
}

// The parameters of CudnnPointwise::relu: lower where v < lower, with a slope below it; upper where v >
// upper.
struct Bounds {
  double lower = 0, upper = std::numeric_limits<float>::max(), slope = 0;
};

// The operations of one graph, and the tensors that they name.
class Operations {
 public:
  Operations(const ConvProblem& problem, Shape result) : problem_(problem), result_(std::move(result)) {}

  CudnnDescriptor tensor(CudnnTensor id, DType type, const Shape& shape) {
    tensors_.push_back(id);
    CudnnDescriptor made = unfinished(static_cast<std::int64_t>(id), type, shape);
    made.finalize();
    return made;
  }
  // Lies between two operations and is never stored: float, whatever is stored.
  CudnnDescriptor between() {
    CudnnDescriptor made = unfinished(next_id_++, DType::f32, result_);
    made.set_true(CudnnAttribute::tensor_is_virtual);
    made.finalize();
    return made;
  }

  void convolve(const CudnnDescriptor& x, const CudnnDescriptor& w, const CudnnDescriptor& y) {
    operations_.push_back(convolution(problem_, x, w, y));
  }

  // One after the other, from `from` to `to`.
  enum class Step { bias, residual, activation };
  void append(const std::vector<Step>& steps, const CudnnDescriptor& from, const CudnnDescriptor& to) {
    std::vector<CudnnDescriptor> values;
    for (std::size_t i = 0; i + 1 < steps.size(); ++i) values.push_back(between());
    for (std::size_t i = 0; i < steps.size(); ++i)
      append(steps[i], i == 0 ? from : values[i - 1], i + 1 == steps.size() ? to : values[i]);
  }
  // Channels of the bias are those of the result as this graph sees it.
  void append(Step step, const CudnnDescriptor& from, const CudnnDescriptor& to) {
    Dimensions channels(result_.extents.size(), 1);
    channels[1] = result_.extents[1];
    switch (step) {
      case Step::bias:
        return binary(CudnnPointwise::add, from,
                      tensor(CudnnTensor::bias, cudnn_bias_type(problem_), packed(channels, true)), to);
      case Step::residual:
        return binary(CudnnPointwise::add, from,
                      tensor(CudnnTensor::residual, problem_.result_type(), result_), to);
      case Step::activation:
        return activate(from, to);
    }
  }

  CudnnGraph graph(const CudnnSession& session) {
    std::vector<const CudnnDescriptor*> pointers;
    for (const CudnnDescriptor& operation : operations_) pointers.push_back(&operation);
    CudnnGraph graph{CudnnDescriptor(CudnnKind::operation_graph), tensors_};
    if (session.handle != nullptr)
      graph.descriptor.set(CudnnAttribute::operation_graph_handle, session.handle);
    graph.descriptor.set(CudnnAttribute::operation_graph_operations, pointers);
    graph.descriptor.finalize();
    return graph;
  }

 private:
  static CudnnDescriptor unfinished(std::int64_t id, DType type, const Shape& shape) {
    CudnnDescriptor tensor(CudnnKind::tensor);
    tensor.set(CudnnAttribute::tensor_data_type, data_type(type));
    tensor.set(CudnnAttribute::tensor_dimensions, shape.extents);
    tensor.set(CudnnAttribute::tensor_strides, shape.strides);
    tensor.set(CudnnAttribute::tensor_unique_id, Dimensions{id});
    tensor.set(CudnnAttribute::tensor_byte_alignment, Dimensions{kCudnnAlignment});
    return tensor;
  }
  // A number that the host passes with each run.
  CudnnDescriptor number(CudnnTensor id) {
    tensors_.push_back(id);
    CudnnDescriptor made = unfinished(static_cast<std::int64_t>(id), DType::f32,
                                      packed(Dimensions(result_.extents.size(), 1), true));
    made.set_true(CudnnAttribute::tensor_is_by_value);
    made.finalize();
    return made;
  }

  static CudnnDescriptor function(CudnnPointwise mode) {
    CudnnDescriptor function(CudnnKind::pointwise);
    function.set_enum(CudnnAttribute::pointwise_mode, CudnnType::pointwise_mode, static_cast<int>(mode));
    function.set(CudnnAttribute::pointwise_math_precision, CudnnData::f32);
    return function;
  }
  void add(CudnnDescriptor function, const CudnnDescriptor& x, const CudnnDescriptor* b,
           const CudnnDescriptor& y) {
    function.finalize();
    CudnnDescriptor operation(CudnnKind::operation_pointwise);
    operation.set(CudnnAttribute::operation_pointwise_pointwise, function);
    operation.set(CudnnAttribute::operation_pointwise_x, x);
    if (b != nullptr) operation.set(CudnnAttribute::operation_pointwise_b, *b);
    operation.set(CudnnAttribute::operation_pointwise_y, y);
    operation.finalize();
    operations_.push_back(std::move(operation));
  }
  void unary(CudnnPointwise mode, const CudnnDescriptor& x, const CudnnDescriptor& y) {
    add(function(mode), x, nullptr, y);
  }
  void binary(CudnnPointwise mode, const CudnnDescriptor& x, const CudnnDescriptor& b,
              const CudnnDescriptor& y) {
    add(function(mode), x, &b, y);
  }
  void relu(const Bounds& bounds, const CudnnDescriptor& x, const CudnnDescriptor& y) {
    constexpr double kMost = std::numeric_limits<float>::max();
    CudnnDescriptor relu = function(CudnnPointwise::relu);
    relu.set_double(CudnnAttribute::pointwise_relu_lower_clip, std::clamp(bounds.lower, -kMost, kMost));
    relu.set_double(CudnnAttribute::pointwise_relu_upper_clip, std::clamp(bounds.upper, -kMost, kMost));
    relu.set_double(CudnnAttribute::pointwise_relu_lower_clip_slope, bounds.slope);
    add(std::move(relu), x, nullptr, y);
  }

  void activate(const CudnnDescriptor& x, const CudnnDescriptor& y) {
    const auto alpha = static_cast<double>(problem_.alpha), beta = static_cast<double>(problem_.beta);
    switch (problem_.activation) {
      case Activation::none:
        return;  // is no step
      case Activation::relu:
        return unary(CudnnPointwise::relu, x, y);  // without bounds: precompiled engines take no others
      case Activation::clip:
        return relu({.lower = alpha, .upper = beta}, x, y);
      case Activation::leaky_relu:
        return relu({.slope = alpha}, x, y);
      case Activation::sigmoid:
        return unary(CudnnPointwise::sigmoid, x, y);
      case Activation::gelu_erf:
        return unary(CudnnPointwise::gelu, x, y);
      case Activation::gelu_tanh:
        return unary(CudnnPointwise::gelu_approx_tanh, x, y);
      case Activation::silu: {
        CudnnDescriptor swish = function(CudnnPointwise::swish);
        swish.set_double(CudnnAttribute::pointwise_swish_beta, 1);
        return add(std::move(swish), x, nullptr, y);
      }
      case Activation::hardswish: {  // x * min(max(x + 3, 0), 6) / 6
        const CudnnDescriptor shifted = between(), gate = between(), product = between();
        binary(CudnnPointwise::add, x, number(CudnnTensor::three), shifted);
        relu({.upper = 6}, shifted, gate);
        binary(CudnnPointwise::mul, x, gate, product);
        return binary(CudnnPointwise::mul, product, number(CudnnTensor::sixth), y);
      }
      default:  // types that cudnn.cpp's abilities leave out
        throw Error(ErrorKind::unsupported, "cuDNN has no such activation");
    }
  }

  const ConvProblem& problem_;
  const Shape result_;
  std::int64_t next_id_ = 100;
  std::vector<CudnnDescriptor> operations_;
  std::vector<CudnnTensor> tensors_;
};

using Step = Operations::Step;

}  // namespace

CudnnSide read_side(const ConvProblem& a) {
  if (a.direction == Direction::backward_data) return {a.k, a.z(), a.p(), a.q(), a.dtype.y};
  return {a.c, a.d, a.h, a.w, a.dtype.x};
}
CudnnSide written_side(const ConvProblem& a) {
  if (a.direction == Direction::backward_data) return {a.c, a.d, a.h, a.w, a.dtype.x};
  return {a.k, a.z(), a.p(), a.q(), a.dtype.y};
}

// cuDNN 9.19.0's pointwise engines are compiled at run time. On an H200 they left elements unwritten or wrote
// behind the last where rows were no whole vectors, and took another channel's bias where channels came first
// (docs/notebook/).
bool sequence_is_right(const ConvProblem& a, const CudnnForm& form) {
  constexpr std::int64_t kVector = 8;
  const Shape shape = flat_output(a);
  return form.channels_last && shape.extents[1] % kVector == 0 && shape.extents[2] % kVector == 0;
}

ConvProblem without_dbias(ConvProblem problem) {
  problem.bias = problem.bias && problem.direction != Direction::backward_weights;
  return problem;
}

std::int64_t cudnn_bias_elements(const ConvProblem& a, const CudnnForm& form) {
  return a.bias || (form.fused && has_epilogue(a)) ? a.bias_elements() : 0;
}

DType cudnn_bias_type(const ConvProblem& a) {
  return a.bias ? a.dtype.bias : a.result_type();
}

CudnnGraph convolution_graph(const ConvProblem& a, const CudnnForm& form, const CudnnSession& session) {
  const bool last = form.channels_last;
  const CudnnSide read = read_side(a);
  const Shape shape = shape_of(a, written_side(a), last);
  Operations operations(a, shape);
  const CudnnDescriptor x = operations.tensor(CudnnTensor::x, read.type, shape_of(a, read, last));
  const Shape filter = packed(with_depth(a, {a.k, a.c / a.groups}, a.t, {a.r, a.s}), last);
  if (a.direction == Direction::backward_weights) {
    const CudnnDescriptor dy = operations.tensor(CudnnTensor::dy, a.dtype.y, shape);
    operations.convolve(x, dy, operations.tensor(CudnnTensor::y, a.dtype.w, filter));
    return operations.graph(session);
  }
  const CudnnDescriptor w = operations.tensor(CudnnTensor::w, a.dtype.w, filter);
  const bool stores_sum = !form.fused && has_epilogue(a);
  const CudnnDescriptor y =
      operations.tensor(stores_sum ? CudnnTensor::sum : CudnnTensor::y, a.result_type(), shape);
  if (stores_sum || !has_epilogue(a)) {
    operations.convolve(x, w, y);
    return operations.graph(session);
  }
  // The one order, and always a bias: what precompiled engines fuse.
  std::vector<Step> steps;
  if (a.residual) steps.push_back(Step::residual);
  steps.push_back(Step::bias);
  if (a.activation != Activation::none) steps.push_back(Step::activation);
  const CudnnDescriptor sums = operations.between();
  operations.convolve(x, w, sums);
  operations.append(steps, sums, y);
  return operations.graph(session);
}

std::vector<CudnnGraph> epilogue_graphs(const ConvProblem& a, const CudnnForm& form,
                                        const CudnnSession& session) {
  std::vector<Step> steps;
  if (a.bias) steps.push_back(Step::bias);
  if (a.residual) steps.push_back(Step::residual);
  if (a.activation != Activation::none) steps.push_back(Step::activation);
  if (form.fused || steps.empty()) return {};

  std::vector<std::vector<Step>> parts = {steps};
  if (rounds_eagerly(a)) {
    parts.clear();
    for (const Step step : steps) parts.push_back({step});
  }
  const Shape shape = flat_output(a);
  std::vector<CudnnGraph> graphs;
  CudnnTensor from = CudnnTensor::sum, other = CudnnTensor::partial;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Operations operations(a, shape);
    const CudnnTensor to = i + 1 == parts.size() ? CudnnTensor::y : other;
    const CudnnDescriptor input = operations.tensor(from, a.result_type(), shape);
    const CudnnDescriptor result = operations.tensor(to, a.result_type(), shape);
    operations.append(parts[i], input, result);
    graphs.push_back(operations.graph(session));
    std::swap(from, other);
  }
  return graphs;
}

}  // namespace convtune::cuda
