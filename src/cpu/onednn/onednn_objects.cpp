// See onednn_objects.h.
#include "cpu/onednn/onednn_objects.h"

#include <array>
#include <cstddef>

#include "base/fork_gate.h"

namespace convtune::cpu {
namespace {

constexpr int kForwardInference = 96;  // dnnl_forward_inference
constexpr int kDirect = 1;             // dnnl_convolution_direct
constexpr int kTransposed = 10;        // dnnl_deconvolution_direct
constexpr int kBinaryAdd = 0x1fff0;    // dnnl_binary_add
constexpr int kAnyFormat = 1;          // dnnl_format_tag_any
constexpr int kUserScratchpad = 1;     // dnnl_scratchpad_mode_user
constexpr int kStrictMath = 0;         // dnnl_fpmath_mode_strict
constexpr int kCpu = 1;                // dnnl_cpu
constexpr unsigned kInOrder = 1;       // dnnl_stream_default_flags
// More than version 2's structs, of 696 and 5976 bytes in 2.6.
constexpr std::size_t kDescBytes = 1024, kConvolutionBytes = 8192;

bool version2() {
  return onednn_numbers().major == 2;
}

OnednnHandle owned(OnednnObject object, OnednnStatus (*destroy)(OnednnObject)) {
  return {object, [destroy](OnednnObject one) { destroy(one); }};
}

// Made once, and never destroyed: executables may outlive any order of destruction.
OnednnObject engine() {
  return once([] {
    OnednnObject made = nullptr;
    check_onednn(onednn_functions().dnnl_engine_create(&made, kCpu, 0), "create its engine");
    return made;
  });
}

int data_type(DType type) {  // dnnl_data_type_t
  switch (type) {
    case DType::f32:
      return 3;
    case DType::f16:
      return 1;
    case DType::bf16:
      break;
  }
  return 2;
}

// dnnl_alg_kind_t: each version has numbers of its own.
struct Eltwise {
  int version2, version3;
};
Eltwise eltwise(Activation activation) {
  switch (activation) {
    case Activation::clip:
      return {0xff, 0x2e};
    case Activation::silu:
      return {0xdf, 0x2c};
    case Activation::gelu_erf:
      return {0x30, 0x31};
    case Activation::gelu_tanh:
      return {0xcf, 0x2b};
    case Activation::hardswish:
      return {0x70, 0x34};
    case Activation::sigmoid:
      return {0xaf, 0x29};
    default:  // relu, which may be leaky
      return {0x1f, 0x20};
  }
}

int number_of(OnednnArgument argument) {
  constexpr int kSecondSource = 2;                           // DNNL_ARG_SRC_1
  const int first_post_op = version2() ? 1 << 14 : 1 << 15;  // ..._ATTR_MULTIPLE_POST_OP(0)
  return argument == OnednnArgument::added ? first_post_op | kSecondSource : static_cast<int>(argument);
}

}  // namespace

OnednnDesc::OnednnDesc(const OnednnDims& dims, DType type, const OnednnDims& strides) {
  const OnednnFunctions& f = onednn_functions();
  const int axes = static_cast<int>(dims.size()), of = data_type(type);
  constexpr std::string_view kDoing = "describe a tensor";
  if (version2()) {
    const auto made = std::make_shared<std::array<std::max_align_t, kDescBytes / sizeof(std::max_align_t)>>();
    check_onednn(strides.empty()
                     ? f.v2.memory_desc_init_by_tag(made.get(), axes, dims.data(), of, kAnyFormat)
                     : f.v2.memory_desc_init_by_strides(made.get(), axes, dims.data(), of, strides.data()),
                 kDoing);
    desc_ = made;
  } else {
    OnednnObject made = nullptr;
    check_onednn(strides.empty()
                     ? f.v3.memory_desc_create_with_tag(&made, axes, dims.data(), of, kAnyFormat)
                     : f.v3.memory_desc_create_with_strides(&made, axes, dims.data(), of, strides.data()),
                 kDoing);
    desc_ = owned(made, f.v3.memory_desc_destroy);
  }
}

OnednnDesc::OnednnDesc(const OnednnHandle& owner, OnednnDescPointer desc) {
  if (desc != nullptr) desc_ = {owner, desc};
}

OnednnMemory::OnednnMemory(const OnednnDesc& desc, void* handle) {
  OnednnObject made = nullptr;
  check_onednn(onednn_functions().dnnl_memory_create(&made, desc.get(), engine(), handle), "make a tensor");
  memory_ = owned(made, onednn_functions().dnnl_memory_destroy);
}

OnednnMemory OnednnMemory::allocated(const OnednnDesc& desc) {
  return {desc, reinterpret_cast<void*>(~std::uintptr_t{0})};  // DNNL_MEMORY_ALLOCATE
}

OnednnMemory OnednnMemory::of(const OnednnDesc& desc, const void* data) {
  return {desc, const_cast<void*>(data)};
}

void OnednnMemory::set(const void* data) const {
  check_onednn(onednn_functions().dnnl_memory_set_data_handle(get(), const_cast<void*>(data)),
               "take a tensor");
}

OnednnAttributes::OnednnAttributes() {
  const OnednnFunctions& f = onednn_functions();
  OnednnObject attributes = nullptr, post_ops = nullptr;
  check_onednn(f.dnnl_primitive_attr_create(&attributes), "create attributes");
  attributes_ = owned(attributes, f.dnnl_primitive_attr_destroy);
  check_onednn(f.dnnl_post_ops_create(&post_ops), "create post-operations");
  post_ops_ = owned(post_ops, f.dnnl_post_ops_destroy);
  check_onednn(f.dnnl_primitive_attr_set_scratchpad_mode(attributes, kUserScratchpad), "set attributes");
  check_onednn(f.dnnl_primitive_attr_set_fpmath_mode(attributes, kStrictMath), "set attributes");
}

void OnednnAttributes::add(const OnednnDesc& residual) {
  const OnednnFunctions& f = onednn_functions();
  check_onednn(f.dnnl_post_ops_append_binary(post_ops_.get(), kBinaryAdd, residual.get()), "add a residual");
  check_onednn(f.dnnl_primitive_attr_set_post_ops(get(), post_ops_.get()), "set post-operations");
}

void OnednnAttributes::apply(Activation activation, float alpha, float beta) {
  const OnednnFunctions& f = onednn_functions();
  const Eltwise numbers = eltwise(activation);
  check_onednn(version2() ? f.v2.append_eltwise(post_ops_.get(), 1, numbers.version2, alpha, beta)
                          : f.v3.append_eltwise(post_ops_.get(), numbers.version3, alpha, beta),
               "apply an activation");
  check_onednn(f.dnnl_primitive_attr_set_post_ops(get(), post_ops_.get()), "set post-operations");
}

OnednnPrimitiveDesc::OnednnPrimitiveDesc(OnednnObject made)
    : desc_(owned(made, onednn_functions().dnnl_primitive_desc_destroy)) {}

OnednnDesc OnednnPrimitiveDesc::query(OnednnQuery what) const {
  return {desc_, onednn_functions().dnnl_primitive_desc_query_md(get(), static_cast<int>(what), 0)};
}

OnednnPrimitiveDesc onednn_convolution(const OnednnDesc& x, const OnednnDesc& w, const OnednnDesc& bias,
                                       const OnednnDesc& y, const OnednnGeometry& geometry,
                                       const OnednnAttributes& attributes, bool transposed) {
  const OnednnFunctions& f = onednn_functions();
  const int algorithm = transposed ? kTransposed : kDirect;
  const auto& [strides, dilations, pad_before, pad_after] = geometry;
  const NoForks while_locked;  // oneDNN has locks of its own, of a cache of what it has made
  constexpr std::string_view kDoing = "create a convolution";
  OnednnObject made = nullptr;
  if (version2()) {
    alignas(std::max_align_t) std::array<std::byte, kConvolutionBytes> operation{};
    const auto init = transposed ? f.v2.dilated_deconvolution_forward_desc_init
                                 : f.v2.dilated_convolution_forward_desc_init;
    check_onednn(init(operation.data(), kForwardInference, algorithm, x.get(), w.get(), bias.get(), y.get(),
                      strides.data(), dilations.data(), pad_before.data(), pad_after.data()),
                 kDoing);
    check_onednn(f.v2.primitive_desc_create(&made, operation.data(), attributes.get(), engine(), nullptr),
                 kDoing);
  } else {
    const auto create = transposed ? f.v3.deconvolution_forward_primitive_desc_create
                                   : f.v3.convolution_forward_primitive_desc_create;
    check_onednn(
        create(&made, engine(), kForwardInference, algorithm, x.get(), w.get(), bias.get(), y.get(),
               strides.data(), dilations.data(), pad_before.data(), pad_after.data(), attributes.get()),
        kDoing);
  }
  return OnednnPrimitiveDesc(made);
}

OnednnPrimitiveDesc onednn_wgrad(const OnednnDesc& x, const OnednnDesc& dw, const OnednnDesc& dbias,
                                 const OnednnDesc& dy, const OnednnGeometry& geometry,
                                 const OnednnPrimitiveDesc& forward) {
  const OnednnFunctions& f = onednn_functions();
  const auto& [strides, dilations, pad_before, pad_after] = geometry;
  const OnednnAttributes attributes;
  const NoForks while_locked;
  constexpr std::string_view kDoing = "create a gradient of weights";
  OnednnObject made = nullptr;
  if (version2()) {
    alignas(std::max_align_t) std::array<std::byte, kConvolutionBytes> operation{};
    check_onednn(f.v2.dilated_convolution_backward_weights_desc_init(
                     operation.data(), kDirect, x.get(), dw.get(), dbias.get(), dy.get(), strides.data(),
                     dilations.data(), pad_before.data(), pad_after.data()),
                 kDoing);
    check_onednn(
        f.v2.primitive_desc_create(&made, operation.data(), attributes.get(), engine(), forward.get()),
        kDoing);
  } else {
    check_onednn(f.v3.convolution_backward_weights_primitive_desc_create(
                     &made, engine(), kDirect, x.get(), dw.get(), dbias.get(), dy.get(), strides.data(),
                     dilations.data(), pad_before.data(), pad_after.data(), forward.get(), attributes.get()),
                 kDoing);
  }
  return OnednnPrimitiveDesc(made);
}

OnednnPrimitiveDesc onednn_reorder(const OnednnDesc& from, const OnednnDesc& to) {
  const NoForks while_locked;
  OnednnObject made = nullptr;
  check_onednn(onednn_functions().dnnl_reorder_primitive_desc_create(&made, from.get(), engine(), to.get(),
                                                                     engine(), OnednnAttributes().get()),
               "create a conversion");
  return OnednnPrimitiveDesc(made);
}

OnednnStream::OnednnStream() {
  OnednnObject made = nullptr;
  check_onednn(onednn_functions().dnnl_stream_create(&made, engine(), kInOrder), "create a stream");
  stream_ = owned(made, onednn_functions().dnnl_stream_destroy);
}

void OnednnStream::wait() const {
  check_onednn(onednn_functions().dnnl_stream_wait(get()), "finish");
}

OnednnPrimitive::OnednnPrimitive(const OnednnPrimitiveDesc& desc) {
  const NoForks while_locked;
  OnednnObject made = nullptr;
  check_onednn(onednn_functions().dnnl_primitive_create(&made, desc.get()), "make its code");
  primitive_ = owned(made, onednn_functions().dnnl_primitive_destroy);
}

void OnednnPrimitive::execute(const OnednnStream& stream, const OnednnArguments& arguments) const {
  std::array<OnednnExecArgument, 8> raw{};
  int count = 0;
  for (const auto& [argument, memory] : arguments) raw.at(count++) = {number_of(argument), memory.get()};
  check_onednn(onednn_functions().dnnl_primitive_execute(primitive_.get(), stream.get(), count, raw.data()),
               "run");
}

}  // namespace convtune::cpu
