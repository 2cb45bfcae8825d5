// See onednn_faults.h.
#include "cpu/onednn/onednn_faults.h"

#include <algorithm>
#include <array>

namespace convtune::cpu {
namespace {

struct Axis {
  std::int64_t outputs, size, filter, stride, dilation, padding;

  bool window_is_longer() const { return (filter - 1) * dilation >= size; }
  bool windows_may_step_over() const { return filter > 1 && dilation > size; }
  // True where the first window or the last sees only padding, and where taps are farther apart than the
  // image is long, so that any window may.
  bool some_window_sees_nothing() const {
    if (windows_may_step_over()) return true;
    return (filter - 1) * dilation < padding || (outputs - 1) * stride - padding >= size;
  }
  // A stride longer than the image: taps of some remainder by it meet no column of the image, ever.
  bool stride_steps_over_taps() const {
    for (std::int64_t tap = 0; size < stride && tap < std::min(filter, stride); ++tap)
      if (((tap * dilation - padding) % stride + stride) % stride >= size) return true;
    return false;
  }
};

std::array<Axis, 3> axes(const ConvProblem& a) {
  return {{{a.z(), a.d, a.t, a.stride_d, a.dilation_d, a.pad_front},
           {a.p(), a.h, a.r, a.stride_h, a.dilation_h, a.pad_top},
           {a.q(), a.w, a.s, a.stride_w, a.dilation_w, a.pad_left}}};
}

bool some_window_sees_nothing(const ConvProblem& a) {
  return std::ranges::any_of(axes(a), &Axis::some_window_sees_nothing);
}

bool mostly_padding(const ConvProblem& a) {
  return std::ranges::any_of(axes(a), &Axis::window_is_longer) || some_window_sees_nothing(a);
}

bool depthwise(const ConvProblem& a) {
  return a.groups > 1 && a.groups == a.c;
}

// Both layouts are the same where tensors have one channel.
bool channels_last(const ConvProblem& a) {
  return a.layout == Layout::nhwc || (a.c == 1 && a.k == 1);
}

// Both layouts may be one where x has one channel.
bool strided_1x1_of_channels_last(const ConvProblem& a) {
  return (channels_last(a) || a.c == 1) && a.groups == 1 && a.t == 1 && a.r == 1 && a.s == 1 &&
         (a.stride_h > 1 || a.stride_w > 1);
}

bool in_16_bits(const ConvProblem& a) {
  return a.dtype.x != DType::f32;
}

struct Fault {
  const char* what;
  bool (*concerns)(const ConvProblem&);
  int from_major, until_major;  // versions, the second not included
};

constexpr Fault kFaults[] = {
    // The JIT kernels add another image's residual (binary post-op), or crash (sum).
    {"beside a residual, it is wrong where a window sees little but padding",
     [](const ConvProblem& a) { return a.residual && mostly_padding(a); }, 2, 3},
    // Another output's residual: seen at strides of 5 and 13, and not at 1 and 2.
    {"beside a residual, it is wrong where wide strides meet padding on the left",
     [](const ConvProblem& a) { return a.residual && a.stride_w > 2 && a.pad_left > 0; }, 2, 3},
    {"beside a residual, its depthwise kernels are wrong at the image's edge",
     [](const ConvProblem& a) { return a.residual && depthwise(a); }, 2, 3},
    // Its GEMM adds another pixel's where its JIT kernels do not take a problem (wide padding, groups of few
    // channels): seen of 2.6.3 with AVX2.
    {"beside a residual, its kernels for channels last add another pixel's",
     [](const ConvProblem& a) { return a.residual && channels_last(a); }, 2, 3},
    // dnnl_primitive_create() of its AMX kernels reads a null pointer where outputs have nothing but bias and
    // post-ops: of 1,176 random problems with bf16 five ended the process with 3.2, all of this kind. Without
    // either, four of 6,400 did, whose taps are farther apart than the image is long.
    {"in bf16 it ends the process where a window sees only padding",
     [](const ConvProblem& a) {
       const bool has_more = a.residual || a.activation != Activation::none;
       if (has_more) return a.dtype.x == DType::bf16 && some_window_sees_nothing(a);
       return a.dtype.x == DType::bf16 && a.direction == Direction::forward &&
              std::ranges::any_of(axes(a), &Axis::windows_may_step_over);
     },
     3, 4},
    // Five gradients of weights of 2.6.3 were wrong in 140,000 random problems on a processor with AMX; in
    // two sweeps of 20,000 its forward kernels (brgconv:avx512_core_amx_bf16) wrote behind memory whose size
    // oneDNN itself had given, and read a null pointer.
    {"its kernels for 16 bits damage the heap and are wrong; version 3 is asked", in_16_bits, 2, 3},
    // Its AVX-512 kernels sort x's columns by their remainder by the stride, in memory that they do not clear
    // where a remainder has no column (jit_trans_iw_ic_int16_t::transpose() of 0 rows; in 3.2, too).
    {"its gradient of weights in 16 bits is wrong where the stride is longer than the image is wide",
     [](const ConvProblem& a) {
       return a.direction == Direction::backward_weights && a.dtype.x != DType::f32 &&
              axes(a)[2].stride_steps_over_taps();
     },
     3, 4},
    // The pixels that a stride leaves are copied to a scratchpad whose offsets are rounded up to 8 or 16
    // channels and whose size is not (rtus_space of the 1x1 kernels; in 3.8, too): the heap is damaged, and
    // threads write over each other's pixels.
    {"its gradient of weights by a 1x1 filter with a stride writes behind its memory in NHWC",
     [](const ConvProblem& a) {
       return a.direction == Direction::backward_weights && strided_1x1_of_channels_last(a);
     },
     2, 4},
};

}  // namespace

std::string onednn_fault(const ConvProblem& problem, const OnednnVersion& version) {
  for (const Fault& fault : kFaults)
    if (version.major >= fault.from_major && version.major < fault.until_major && fault.concerns(problem))
      return fault.what;
  return {};
}

}  // namespace convtune::cpu
