// The numbers of a convolution as device code wants them: a kernel is compiled for one of these, so that all
// of them are constants. Letters as in convtune/problem.h; tensors are dense, NCHW or NHWC.
#pragma once

namespace convtune {

// In the order of convtune/tensor.h, as PyTorch defines them (tile/epilogue.cuh). clip: between alpha and
// beta; leaky_relu: a slope of alpha.
enum class ConvActivation { none, relu, clip, silu, gelu_erf, gelu_tanh, hardswish, leaky_relu, sigmoid };

// Element type of a tensor in memory (tile/element.cuh).
enum class ElementType { f32, f16, bf16 };

constexpr int size_of(ElementType type) {  // bytes
  return type == ElementType::f32 ? 4 : 2;
}

// The place of outputs in a tensor of other extents, several residues of a stride between each other
// (problem/forward_parts.h): along an axis that of residue r at position i lies at i * stride + r * step -
// crop.
struct ConvLies {
  int residues_d = 1, residues_h = 1, residues_w = 1, stride_d = 1, stride_h = 1, stride_w = 1;
  int crop_d = 0, crop_h = 0, crop_w = 0, d = 0, h = 0, w = 0;  // the last: extents of the tensor
  int step_d = 1, step_h = 1, step_w = 1;
  int whole_h = 0, whole_w = 0;  // residues from this one on lack the filter's first row or column; 0: none
  static constexpr const char* kName = "ConvLies";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("residues_d", self.residues_d), field("residues_h", self.residues_h);
    field("residues_w", self.residues_w), field("stride_d", self.stride_d);
    field("stride_h", self.stride_h), field("stride_w", self.stride_w);
    field("crop_d", self.crop_d), field("crop_h", self.crop_h), field("crop_w", self.crop_w);
    field("d", self.d), field("h", self.h), field("w", self.w);
    field("step_d", self.step_d), field("step_h", self.step_h), field("step_w", self.step_w);
    field("whole_h", self.whole_h), field("whole_w", self.whole_w);
  }
  constexpr bool uneven() const { return whole_h > 0 || whole_w > 0; }
  constexpr bool lacks_row(int residue) const {
    return whole_h > 0 && residue / residues_w % residues_h >= whole_h;
  }
  constexpr bool lacks_column(int residue) const { return whole_w > 0 && residue % residues_w >= whole_w; }
  constexpr bool between() const { return w > 0; }  // else y is the tensor
  constexpr int residues() const { return residues_d * residues_h * residues_w; }
};

struct ConvExtents {
  int n = 1, c = 1, h = 1, w = 1, k = 1, r = 1, s = 1, groups = 1;
  int stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, pad_top = 0, pad_left = 0;
  int p = 1, q = 1;  // the output's height and width: padding below and to the right is in them
  // Frames of x, of the filter and of y, for the kernels that have a third dimension.
  int d = 1, t = 1, stride_d = 1, dilation_d = 1, pad_front = 0, z = 1;
  bool nhwc = false;
  ConvActivation activation = ConvActivation::none;
  float alpha = 0, beta = 0;  // the activation's
  bool residual = false;      // is added before the activation
  bool eager = false;         // rounds after each step of the epilogue
  ElementType x_type = ElementType::f32, y_type = ElementType::f32, bias_type = ElementType::f32;  // w: x's
  ConvLies lies{};  // for kernels that can store so
  static constexpr const char* kName = "ConvExtents";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("n", self.n), field("c", self.c), field("h", self.h), field("w", self.w);
    field("k", self.k), field("r", self.r), field("s", self.s), field("groups", self.groups);
    field("stride_h", self.stride_h), field("stride_w", self.stride_w);
    field("dilation_h", self.dilation_h), field("dilation_w", self.dilation_w);
    field("pad_top", self.pad_top), field("pad_left", self.pad_left);
    field("p", self.p), field("q", self.q);
    field("d", self.d), field("t", self.t), field("stride_d", self.stride_d);
    field("dilation_d", self.dilation_d), field("pad_front", self.pad_front), field("z", self.z);
    field("nhwc", self.nhwc);
    field("activation", self.activation), field("alpha", self.alpha), field("beta", self.beta);
    field("residual", self.residual), field("eager", self.eager);
    field("x_type", self.x_type), field("y_type", self.y_type), field("bias_type", self.bias_type);
    if (self.lies.between()) field("lies", self.lies);
  }

  constexpr int group_channels() const { return c / groups; }  // input channels of a group
  constexpr int group_filters() const { return k / groups; }
  constexpr int taps() const { return group_channels() * t * r * s; }  // products of a sum
  constexpr long long weights() const { return static_cast<long long>(k) * taps(); }

  // Tells whether offsets in `images` images and in an output are ints, with room for what is added to them.
  constexpr bool offsets_are_ints(int images = 1) const {
    return 1LL * images * h * w < (1LL << 30) / c && 1LL * p * q < (1LL << 30) / k;
  }
  // A single frame may be one of padding.
  constexpr bool has_depth() const { return d > 1 || t > 1 || z > 1 || pad_front > 0; }
  constexpr long long input_offset(int image, int channel, int row, int column) const {
    return nhwc ? ((static_cast<long long>(image) * h + row) * w + column) * c + channel
                : ((static_cast<long long>(image) * c + channel) * h + row) * w + column;
  }
  constexpr long long input_offset(int image, int channel, int frame, int row, int column) const {
    return nhwc ? input_offset(image * d + frame, channel, row, column)
                : (((static_cast<long long>(image) * c + channel) * d + frame) * h + row) * w + column;
  }
  constexpr long long output_offset(int image, int filter, int row, int column) const {
    return nhwc ? ((static_cast<long long>(image) * p + row) * q + column) * k + filter
                : ((static_cast<long long>(image) * k + filter) * p + row) * q + column;
  }
  constexpr long long output_offset(int image, int filter, int frame, int row, int column) const {
    return nhwc ? output_offset(image * z + frame, filter, row, column)
                : (((static_cast<long long>(image) * k + filter) * z + frame) * p + row) * q + column;
  }
  // Filters of a group that are channels of the tensor that outputs lie in.
  constexpr int group_results() const { return group_filters() / lies.residues(); }
  // Offset in that tensor, negative where it has no such element.
  constexpr long long stored_offset(int image, int filter, int frame, int row, int column) const {
    if (!lies.between()) return output_offset(image, filter, frame, row, column);
    const int results = group_results(), rest = filter % group_filters(), residue = rest / results;
    const int channel = filter / group_filters() * results + rest % results, channels = groups * results;
    const int at_w = column * lies.stride_w + residue % lies.residues_w * lies.step_w - lies.crop_w;
    const int at_h =
        row * lies.stride_h + residue / lies.residues_w % lies.residues_h * lies.step_h - lies.crop_h;
    const int at_d =
        frame * lies.stride_d + residue / (lies.residues_w * lies.residues_h) * lies.step_d - lies.crop_d;
    if (at_w < 0 || at_w >= lies.w || at_h < 0 || at_h >= lies.h || at_d < 0 || at_d >= lies.d) return -1;
    if (nhwc)
      return (((static_cast<long long>(image) * lies.d + at_d) * lies.h + at_h) * lies.w + at_w) * channels +
             channel;
    return (((static_cast<long long>(image) * channels + channel) * lies.d + at_d) * lies.h + at_h) * lies.w +
           at_w;
  }
};

}  // namespace convtune
