// The vendor's answer on a CPU: oneDNN, when it was found at build. The incumbent of every contest.
// `blocked=0` takes and gives the problem's own layout; `blocked=1` lets oneDNN choose, and counts
// the conversions of input and output. Weights are in oneDNN's own order in both: packed once.
//
// Less strict than convtune's own kernels (seen with 2.6.3, on AVX-512): the ReLU of its JIT kernels
// turns NaN into 0, and its GEMM path multiplies padding, so an Inf weight makes NaN at the edges.
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

memory::desc input_desc(const Conv2dProblem& a, memory::format_tag tag) {
  return {{a.n, a.c, a.h, a.w}, memory::data_type::f32, tag};
}
memory::desc output_desc(const Conv2dProblem& a, memory::format_tag tag) {
  return {{a.n, a.k, a.p(), a.q()}, memory::data_type::f32, tag};
}
memory::desc weights_desc(const Conv2dProblem& a, bool plain) {
  using tag = memory::format_tag;
  if (a.groups == 1) return {{a.k, a.c, a.r, a.s}, memory::data_type::f32, plain ? tag::oihw : tag::any};
  return {{a.groups, a.k / a.groups, a.c / a.groups, a.r, a.s},
          memory::data_type::f32,
          plain ? tag::goihw : tag::any};
}
memory::desc bias_desc(const Conv2dProblem& a) {
  return a.bias ? memory::desc({a.k}, memory::data_type::f32, memory::format_tag::a) : memory::desc();
}
memory::format_tag plain_tag(const Conv2dProblem& a) {
  return a.layout == Layout::nchw ? memory::format_tag::nchw : memory::format_tag::nhwc;
}

// Scratch memory comes from us, so that one primitive may run on several threads at once; multiplies
// stay fp32 whatever the environment says.
dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attr;
}

using ConvolutionDesc = dnnl::convolution_forward::primitive_desc;

// Throws dnnl::error where oneDNN has no implementation. Direct convolution only: Winograd would
// answer with larger errors than fp32 fused multiply-adds make.
ConvolutionDesc describe(const Conv2dProblem& a, const OnednnConfig& config) {
  const auto tag = config.blocked ? memory::format_tag::any : plain_tag(a);
  const auto x = input_desc(a, tag), w = weights_desc(a, false), bias = bias_desc(a), y = output_desc(a, tag);
  const memory::dims strides = {a.stride_h, a.stride_w};
  const memory::dims dilations = {a.dilation_h - 1, a.dilation_w - 1};  // oneDNN counts from 0
  const memory::dims pad_before = {a.pad_top, a.pad_left}, pad_after = {a.pad_bottom, a.pad_right};
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto direct = dnnl::algorithm::convolution_direct, relu = dnnl::algorithm::eltwise_relu;
  dnnl::primitive_attr attr = attributes();
  dnnl::post_ops post_ops;
#if DNNL_VERSION_MAJOR >= 3
  if (a.activation == Activation::relu) post_ops.append_eltwise(relu, 0, 0);
  attr.set_post_ops(post_ops);
  if (!a.bias) return {engine(), kind, direct, x, w, y, strides, dilations, pad_before, pad_after, attr};
  return {engine(), kind, direct, x, w, bias, y, strides, dilations, pad_before, pad_after, attr};
#else
  if (a.activation == Activation::relu) post_ops.append_eltwise(1, relu, 0, 0);
  attr.set_post_ops(post_ops);
  // A bias of no dimensions means none.
  return {{kind, direct, x, w, bias, y, strides, dilations, pad_before, pad_after}, attr, engine()};
#endif
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
  memory x, y, weights, bias;
  Arguments convert_input, convolve, convert_output;
};

class OnednnExecutable final : public Executable {
 public:
  OnednnExecutable(const Conv2dProblem& problem, ConvolutionDesc desc, int threads)
      : threads_(threads),
        desc_(std::move(desc)),
        x_desc_(input_desc(problem, plain_tag(problem))),
        y_desc_(output_desc(problem, plain_tag(problem))),
        w_desc_(weights_desc(problem, true)),
        bias_desc_(bias_desc(problem)),
        convolution_(desc_),
        convert_weights_(w_desc_, desc_.weights_desc()),
        convert_input_(x_desc_, desc_.src_desc()),
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

  void run(const void* x, const void* packed, void* y, Stream) const override {
    const Execution scope(threads_);
    try {
      std::unique_ptr<Workspace> workspace = take();
      execute(*workspace, x, packed, y);
      give_back(std::move(workspace));
    } catch (const dnnl::error& error) {
      throw Error(ErrorKind::internal, std::string("oneDNN failed to run a convolution: ") + error.message);
    }
  }

 private:
  std::size_t bias_offset() const { return (desc_.weights_desc().get_size() + 63) / 64 * 64; }

  void execute(Workspace& workspace, const void* x, const void* packed, void* y) const {
    workspace.x.set_data_handle(const_cast<void*>(x));
    workspace.y.set_data_handle(y);
    // Only when they change: oneDNN 2 writes the zeros of a padded format at every call of this.
    if (workspace.weights.get_data_handle() != packed) {
      auto* bytes = static_cast<unsigned char*>(const_cast<void*>(packed));
      workspace.weights.set_data_handle(bytes);
      if (workspace.bias) workspace.bias.set_data_handle(bytes + bias_offset());
    }
    if (convert_input_) convert_input_.execute(workspace.stream, workspace.convert_input);
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
    if (bias_desc_.get_size() > 0) {
      made->bias = memory(bias_desc_, engine(), DNNL_MEMORY_NONE);
      made->convolve[DNNL_ARG_BIAS] = made->bias;
    }
    return made;
  }

  const int threads_;
  const ConvolutionDesc desc_;
  const memory::desc x_desc_, y_desc_, w_desc_, bias_desc_;
  const dnnl::convolution_forward convolution_;
  const Conversion convert_weights_, convert_input_, convert_output_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> idle_;
};

class Onednn final : public Algorithm {
 public:
  std::string_view name() const override { return "onednn"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }
  bool vendor() const override { return true; }

  Support supports(const Conv2dProblem& problem, const DeviceInfo& device) const override {
    const Support plain = can_create(problem, device, {.blocked = 0});
    return plain ? plain : can_create(problem, device, {.blocked = 1});
  }

  // NCHW is not oneDNN's own way to lie: converting mostly pays. NHWC mostly is.
  std::vector<ConfigField> fields() const override { return config_fields<OnednnConfig>(); }
  std::vector<Config> candidates(const Conv2dProblem& problem, const DeviceInfo& device) const override {
    std::vector<Config> configs;
    const std::int64_t first = problem.layout == Layout::nchw ? 1 : 0;
    for (const std::int64_t blocked : {first, 1 - first})
      if (can_create(problem, device, {.blocked = blocked}))
        configs.push_back(to_config(OnednnConfig{blocked}));
    return configs;
  }

  Support accepts(const Conv2dProblem& problem, const DeviceInfo& device,
                  const Config& config) const override {
    try {
      return can_create(problem, device, from_config<OnednnConfig>(config));
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }

  std::unique_ptr<Executable> build(const Conv2dProblem& problem, const DeviceInfo& device,
                                    const Config& config) const override {
    if (const Support support = accepts(problem, device, config); !support)
      throw Error(ErrorKind::unsupported, "onednn cannot run this problem: " + support.reason());
    const ThreadCount scope(device.units);
    try {
      const Conv2dProblem stand_in = not_empty(problem);
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
  static Conv2dProblem not_empty(Conv2dProblem problem) {
    problem.n = std::max<std::int64_t>(problem.n, 1);
    return problem;
  }

  static Support can_create(const Conv2dProblem& problem, const DeviceInfo& device,
                            const OnednnConfig& config) {
    if (problem.dtype != DType::f32)
      return Support::no("it is used for f32 tensors only, and these are " +
                         std::string(to_string(problem.dtype)));
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
