// The vendor's answer on a CPU: oneDNN, when it was found at build. The incumbent of every contest.
// `blocked=0` takes and gives the problem's own layout; `blocked=1` lets oneDNN choose, and counts
// the conversions of input and output. Weights are in oneDNN's own order in both: packed once.
//
// Less strict than convtune's own kernels (seen with 2.6.3, on AVX-512): the ReLU of its JIT kernels
// turns NaN into 0, and its GEMM path multiplies padding, so an Inf weight makes NaN at the edges. Where a
// window is longer than the image, or sees nothing of it, its JIT kernels add another image's residual
// (binary post-op) or crash (sum).
#include "contract/abilities.h"
#include "cpu/cpu.h"

#if CONVTUNE_HAS_ONEDNN

#include <omp.h>

#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "cpu/parallel.h"
#include "problem/config.h"

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer sees neither oneDNN's code nor the forks and joins of its loops, only the memset
// and malloc that they call, and takes those for races.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libdnnl.so\n";
}
#endif

namespace convtune::cpu {
namespace {

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;

struct OnednnConfig {
  std::int64_t blocked = 0;
  template <class Self, class F>
  static void visit(Self& self, F&& field) {
    field("blocked", self.blocked, 0, 1, "oneDNN chooses the layout, and both conversions are counted");
  }
};

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

// oneDNN asks OpenMP for the number of threads when it plans and again when it runs, and expects
// the same answer; OpenMP keeps that number per calling thread. So it is set around both.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(omp_get_max_threads()) {
    if (before_ != threads) omp_set_num_threads(threads);
    changed_ = before_ != threads;
  }
  ~ThreadCount() {
    if (changed_) omp_set_num_threads(before_);
  }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
  bool changed_ = false;
};

// Its generated code does not survive the handler of a signal on its thread: the heap is damaged, or the
// result wrong (2.6.3; with a signal every 100 us each time, at Ctrl-C one time in ten).
class Execution {
 public:
  explicit Execution(int threads) : threads_(threads), signals_(threads) {}

 private:
  const ThreadCount threads_;
  const SignalsHeld signals_;
};

// ---- The problem in oneDNN's words -------------------------------------------------------------

memory::data_type data_type(DType type) {
  switch (type) {
    case DType::f16:
      return memory::data_type::f16;
    case DType::bf16:
      return memory::data_type::bf16;
    default:
      return memory::data_type::f32;
  }
}

// Of two spatial axes, or of three.
memory::dims with_depth(const ConvProblem& a, memory::dims front, std::int64_t depth, memory::dims plane) {
  if (a.has_depth()) front.push_back(depth);
  front.insert(front.end(), plane.begin(), plane.end());
  return front;
}
memory::format_tag plain_tag(const ConvProblem& a) {
  using tag = memory::format_tag;
  if (a.has_depth()) return a.layout == Layout::nchw ? tag::ncdhw : tag::ndhwc;
  return a.layout == Layout::nchw ? tag::nchw : tag::nhwc;
}

memory::desc input_desc(const ConvProblem& a, memory::format_tag tag) {
  return {with_depth(a, {a.n, a.c}, a.d, {a.h, a.w}), data_type(a.dtype.x), tag};
}
// Of the residual too.
memory::desc output_desc(const ConvProblem& a, memory::format_tag tag) {
  return {with_depth(a, {a.n, a.k}, a.z(), {a.p(), a.q()}), data_type(a.dtype.y), tag};
}
memory::desc weights_desc(const ConvProblem& a, bool plain) {
  using tag = memory::format_tag;
  const bool grouped = a.groups > 1;
  const tag order = a.has_depth() ? (grouped ? tag::goidhw : tag::oidhw) : (grouped ? tag::goihw : tag::oihw);
  const memory::dims filters =
      grouped ? memory::dims{a.groups, a.k / a.groups, a.c / a.groups} : memory::dims{a.k, a.c};
  return {with_depth(a, filters, a.t, {a.r, a.s}), data_type(a.dtype.w), plain ? order : tag::any};
}
memory::desc bias_desc(const ConvProblem& a) {
  return a.bias ? memory::desc({a.k}, data_type(a.dtype.bias), memory::format_tag::a) : memory::desc();
}

// Scratch memory comes from us, so that one primitive may run on several threads at once; multiplies
// stay fp32 whatever the environment says.
dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attr;
}

void append(dnnl::post_ops& post_ops, dnnl::algorithm function, float alpha, float beta) {
#if DNNL_VERSION_MAJOR >= 3
  post_ops.append_eltwise(function, alpha, beta);
#else
  post_ops.append_eltwise(1, function, alpha, beta);
#endif
}

void append(dnnl::post_ops& post_ops, const ConvProblem& a) {
  using function = dnnl::algorithm;
  switch (a.activation) {
    case Activation::none:
      return;
    case Activation::relu:
      return append(post_ops, function::eltwise_relu, 0, 0);
    case Activation::leaky_relu:
      return append(post_ops, function::eltwise_relu, a.alpha, 0);
    case Activation::clip:
      return append(post_ops, function::eltwise_clip, a.alpha, a.beta);
    case Activation::silu:
      return append(post_ops, function::eltwise_swish, 1, 0);
    case Activation::gelu_erf:
      return append(post_ops, function::eltwise_gelu_erf, 0, 0);
    case Activation::gelu_tanh:
      return append(post_ops, function::eltwise_gelu_tanh, 0, 0);
    case Activation::hardswish:
      return append(post_ops, function::eltwise_hardswish, 1.0F / 6, 0.5F);  // oneDNN 2 has no others
    case Activation::sigmoid:
      return append(post_ops, function::eltwise_logistic, 0, 0);
  }
}

using ConvolutionDesc = dnnl::convolution_forward::primitive_desc;

// Throws dnnl::error where oneDNN has no implementation. Direct convolution only: Winograd would
// answer with larger errors than fp32 fused multiply-adds make. `residual`: null, or how it lies.
ConvolutionDesc describe(const ConvProblem& a, const memory::desc& x, const memory::desc& y,
                         const memory::desc* residual) {
  const auto w = weights_desc(a, false), bias = bias_desc(a);
  const memory::dims strides = with_depth(a, {}, a.stride_d, {a.stride_h, a.stride_w});
  const memory::dims dilations =  // oneDNN counts from 0
      with_depth(a, {}, a.dilation_d - 1, {a.dilation_h - 1, a.dilation_w - 1});
  const memory::dims pad_before = with_depth(a, {}, a.pad_front, {a.pad_top, a.pad_left});
  const memory::dims pad_after = with_depth(a, {}, a.pad_back, {a.pad_bottom, a.pad_right});
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto direct = dnnl::algorithm::convolution_direct;
  dnnl::primitive_attr attr = attributes();
  dnnl::post_ops post_ops;
  if (residual != nullptr) post_ops.append_binary(dnnl::algorithm::binary_add, *residual);
  append(post_ops, a);
  attr.set_post_ops(post_ops);
#if DNNL_VERSION_MAJOR >= 3
  if (!a.bias) return {engine(), kind, direct, x, w, y, strides, dilations, pad_before, pad_after, attr};
  return {engine(), kind, direct, x, w, bias, y, strides, dilations, pad_before, pad_after, attr};
#else
  // A bias of no dimensions means none.
  return {{kind, direct, x, w, bias, y, strides, dilations, pad_before, pad_after}, attr, engine()};
#endif
}

// A residual lies as the output does, so where oneDNN chooses that, it is asked twice.
ConvolutionDesc describe(const ConvProblem& a, const OnednnConfig& config) {
  const auto tag = config.blocked ? memory::format_tag::any : plain_tag(a);
  memory::desc x = input_desc(a, tag), y = output_desc(a, tag);
  if (!a.residual) return describe(a, x, y, nullptr);
  if (config.blocked) {
    const ConvolutionDesc chosen = describe(a, x, y, nullptr);
    x = chosen.src_desc();
    y = chosen.dst_desc();
  }
  return describe(a, x, y, &y);
}

// Whether a window along one axis is longer than the image, or one of them sees nothing of it.
bool mostly_padding(std::int64_t outputs, std::int64_t size, std::int64_t filter, std::int64_t stride,
                    std::int64_t dilation, std::int64_t padding) {
  if ((filter - 1) * dilation >= size) return true;
  for (std::int64_t output = 0; output < outputs; ++output) {
    bool sees = false;
    for (std::int64_t tap = 0; tap < filter; ++tap) {
      const std::int64_t at = output * stride + tap * dilation - padding;
      sees = sees || (at >= 0 && at < size);
    }
    if (!sees) return true;
  }
  return false;
}
bool mostly_padding(const ConvProblem& a) {
  return mostly_padding(a.z(), a.d, a.t, a.stride_d, a.dilation_d, a.pad_front) ||
         mostly_padding(a.p(), a.h, a.r, a.stride_h, a.dilation_h, a.pad_top) ||
         mostly_padding(a.q(), a.w, a.s, a.stride_w, a.dilation_w, a.pad_left);
}

// ---- What runs ---------------------------------------------------------------------------------

// A change of format, or nothing where both sides are the same.
class Conversion {
 public:
  Conversion(const memory::desc& from, const memory::desc& to) {
    if (from == to) return;
    desc_ = dnnl::reorder::primitive_desc(engine(), from, engine(), to, attributes());
    reorder_ = dnnl::reorder(desc_);
  }
  explicit operator bool() const { return static_cast<bool>(reorder_); }
  Arguments arguments(const memory& from, const memory& to) const {
    return {{DNNL_ARG_FROM, from},
            {DNNL_ARG_TO, to},
            {DNNL_ARG_SCRATCHPAD, memory(desc_.scratchpad_desc(), engine())}};
  }
  void execute(const dnnl::stream& stream, const Arguments& arguments) const {
    reorder_.execute(stream, arguments);
  }

 private:
  dnnl::reorder::primitive_desc desc_;
  dnnl::reorder reorder_;
};

// Everything that a run writes to besides y: one for each thread that is inside run().
struct Workspace {
  dnnl::stream stream{engine()};
  memory x, residual, y, weights, bias;
  Arguments convert_input, convert_residual, convolve, convert_output;
  std::vector<unsigned char> kept_residual;  // of a run whose residual is y itself
};

class OnednnExecutable final : public Executable {
 public:
  OnednnExecutable(const ConvProblem& problem, ConvolutionDesc desc, int threads)
      : threads_(threads),
        desc_(std::move(desc)),
        x_desc_(input_desc(problem, plain_tag(problem))),
        y_desc_(output_desc(problem, plain_tag(problem))),
        w_desc_(weights_desc(problem, true)),
        bias_desc_(bias_desc(problem)),
        residual_(problem.residual),
        convolution_(desc_),
        convert_weights_(w_desc_, desc_.weights_desc()),
        convert_input_(x_desc_, desc_.src_desc()),
        convert_residual_(y_desc_, residual_ ? desc_.dst_desc() : y_desc_),
        convert_output_(desc_.dst_desc(), y_desc_) {}

  // The weights in oneDNN's order, then the bias on the next cache line.
  std::size_t packed_bytes() const override { return bias_offset() + bias_desc_.get_size(); }

  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    const Execution scope(threads_);
    auto* bytes = static_cast<unsigned char*>(packed);
    if (convert_weights_) {
      dnnl::stream stream(engine());
      const memory from(w_desc_, engine(), const_cast<void*>(w));
      const memory to(desc_.weights_desc(), engine(), packed);
      convert_weights_.execute(stream, convert_weights_.arguments(from, to));
      stream.wait();
    } else {
      std::copy_n(static_cast<const unsigned char*>(w), w_desc_.get_size(), bytes);
    }
    std::copy_n(static_cast<const unsigned char*>(bias), bias_desc_.get_size(), bytes + bias_offset());
  }

  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const Execution scope(threads_);
    try {
      std::unique_ptr<Workspace> workspace = take();
      execute(*workspace, tensors, packed);
      give_back(std::move(workspace));
    } catch (const dnnl::error& error) {
      throw Error(ErrorKind::internal, std::string("oneDNN failed to run a convolution: ") + error.message);
    }
  }

 private:
  std::size_t bias_offset() const { return (desc_.weights_desc().get_size() + 63) / 64 * 64; }

  // Not y itself, where partial sums would be written over it.
  void* residual_of(Workspace& workspace, const Tensors& tensors) const {
    if (tensors.residual != tensors.y || convert_residual_) return const_cast<void*>(tensors.residual);
    const auto* const bytes = static_cast<const unsigned char*>(tensors.residual);
    workspace.kept_residual.assign(bytes, bytes + y_desc_.get_size());
    return workspace.kept_residual.data();
  }

  void execute(Workspace& workspace, const Tensors& tensors, const void* packed) const {
    workspace.x.set_data_handle(const_cast<void*>(tensors.x));
    workspace.y.set_data_handle(tensors.y);
    if (residual_) workspace.residual.set_data_handle(residual_of(workspace, tensors));
    // Only when they change: oneDNN 2 writes the zeros of a padded format at every call of this.
    if (workspace.weights.get_data_handle() != packed) {
      auto* bytes = static_cast<unsigned char*>(const_cast<void*>(packed));
      workspace.weights.set_data_handle(bytes);
      if (workspace.bias) workspace.bias.set_data_handle(bytes + bias_offset());
    }
    if (convert_input_) convert_input_.execute(workspace.stream, workspace.convert_input);
    if (convert_residual_) convert_residual_.execute(workspace.stream, workspace.convert_residual);
    convolution_.execute(workspace.stream, workspace.convolve);
    if (convert_output_) convert_output_.execute(workspace.stream, workspace.convert_output);
    workspace.stream.wait();
  }

  std::unique_ptr<Workspace> take() const {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Workspace> workspace = std::move(idle_.back());
        idle_.pop_back();
        return workspace;
      }
    }
    return make_workspace();
  }
  void give_back(std::unique_ptr<Workspace> workspace) const {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(workspace));
  }

  std::unique_ptr<Workspace> make_workspace() const {
    auto made = std::make_unique<Workspace>();
    made->x = memory(x_desc_, engine(), DNNL_MEMORY_NONE);
    made->y = memory(y_desc_, engine(), DNNL_MEMORY_NONE);
    made->weights = memory(desc_.weights_desc(), engine(), DNNL_MEMORY_NONE);
    memory input = made->x, output = made->y;
    if (convert_input_) {
      input = memory(desc_.src_desc(), engine());
      made->convert_input = convert_input_.arguments(made->x, input);
    }
    if (convert_output_) {
      output = memory(desc_.dst_desc(), engine());
      made->convert_output = convert_output_.arguments(output, made->y);
    }
    made->convolve = {{DNNL_ARG_SRC, input},
                      {DNNL_ARG_WEIGHTS, made->weights},
                      {DNNL_ARG_DST, output},
                      {DNNL_ARG_SCRATCHPAD, memory(desc_.scratchpad_desc(), engine())}};
    if (residual_) {
      memory added = made->residual = memory(y_desc_, engine(), DNNL_MEMORY_NONE);
      if (convert_residual_) {
        added = memory(desc_.dst_desc(), engine());
        made->convert_residual = convert_residual_.arguments(made->residual, added);
      }
      made->convolve[DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1] = added;
    }
    if (bias_desc_.get_size() > 0) {
      made->bias = memory(bias_desc_, engine(), DNNL_MEMORY_NONE);
      made->convolve[DNNL_ARG_BIAS] = made->bias;
    }
    return made;
  }

  const int threads_;
  const ConvolutionDesc desc_;
  const memory::desc x_desc_, y_desc_, w_desc_, bias_desc_;
  const bool residual_;
  const dnnl::convolution_forward convolution_;
  const Conversion convert_weights_, convert_input_, convert_residual_, convert_output_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> idle_;
};

class Onednn final : public Algorithm {
 public:
  std::string_view name() const override { return "onednn"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }
  bool vendor() const override { return true; }

  Support supports(const ConvProblem& problem, const DeviceInfo& device) const override {
    const Support plain = can_create(problem, device, {.blocked = 0});
    return plain ? plain : can_create(problem, device, {.blocked = 1});
  }

  // NCHW is not oneDNN's own way to lie: converting mostly pays. NHWC mostly is.
  std::vector<ConfigField> fields() const override { return config_fields<OnednnConfig>(); }
  std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& device) const override {
    std::vector<Config> configs;
    const std::int64_t first = problem.layout == Layout::nchw ? 1 : 0;
    for (const std::int64_t blocked : {first, 1 - first})
      if (can_create(problem, device, {.blocked = blocked}))
        configs.push_back(to_config(OnednnConfig{blocked}));
    return configs;
  }

  Support accepts(const ConvProblem& problem, const DeviceInfo& device, const Config& config) const override {
    try {
      return can_create(problem, device, from_config<OnednnConfig>(config));
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }

  std::unique_ptr<Executable> build(const ConvProblem& problem, const DeviceInfo& device,
                                    const Config& config) const override {
    if (const Support support = accepts(problem, device, config); !support)
      throw Error(ErrorKind::unsupported, "onednn cannot run this problem: " + support.reason());
    const ThreadCount scope(device.units);
    try {
      const ConvProblem stand_in = not_empty(problem);
      return std::make_unique<OnednnExecutable>(
          stand_in, describe(stand_in, from_config<OnednnConfig>(config)), device.units);
    } catch (const dnnl::error& error) {
      throw Error(ErrorKind::unsupported,
                  std::string("oneDNN cannot create a convolution for this problem: ") + error.message);
    }
  }

  std::string source_hash() const override { return "onednn-" + onednn_version(); }

 private:
  // A batch of 0 is never run, but its weights are packed: as for a batch of 1.
  static ConvProblem not_empty(ConvProblem problem) {
    problem.n = std::max<std::int64_t>(problem.n, 1);
    return problem;
  }

  static Support can_create(const ConvProblem& problem, const DeviceInfo& device,
                            const OnednnConfig& config) {
    const Abilities abilities{
        .types = {DType::f32, DType::f16, DType::bf16},
        .mixed_types = true,
        .activations = {Activation::none, Activation::relu, Activation::clip, Activation::silu,
                        Activation::gelu_erf, Activation::gelu_tanh, Activation::hardswish,
                        Activation::leaky_relu, Activation::sigmoid},
        .residual = true,
        .depth = true};
    if (Support support = within(abilities, problem); !support) return support;
    if (problem.residual && mostly_padding(problem))
      return Support::no("beside a residual, it is wrong where a window sees little but padding");
    if (problem.residual && problem.groups > 1 && problem.groups == problem.c)
      return Support::no("beside a residual, its depthwise kernels are wrong at the image's edge");
    const ThreadCount scope(device.units);
    try {
      describe(not_empty(problem), config);
      return Support::yes();
    } catch (const dnnl::error& error) {
      return Support::no("oneDNN " + onednn_version() + " has no implementation: " + error.message);
    }
  }
};

}  // namespace

const Algorithm* onednn() {
  static const Onednn algorithm;
  return &algorithm;
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

}  // namespace convtune::cpu

#else

namespace convtune::cpu {

const Algorithm* onednn() {
  return nullptr;
}

std::string onednn_version() {
  return "not found when convtune was built";
}

}  // namespace convtune::cpu

#endif
