// See cudnn_executable.h.
#include "cuda/cudnn/cudnn_executable.h"

#include <cstdint>

#include "cuda/device/driver.h"
#include "cuda/device/workspace.h"
#include "cuda/launch/transpose.h"

namespace convtune::cuda {
namespace {

class CudnnExecutable final : public Executable {
 public:
  CudnnExecutable(const Conv2dProblem& problem, const DeviceInfo& device, bool channels_last,
                  std::shared_ptr<const CudnnPlan> plan)
      : problem_(problem),
        device_(device.device.index),
        session_(cudnn_session(device_)),
        plan_(std::move(plan)),
        convert_weights_(
            conversion(device, channels_last, problem.k, problem.c / problem.groups, problem.r * problem.s)),
        convert_input_(conversion(device, channels_last && problem.layout == Layout::nchw, problem.n,
                                  problem.c, problem.h * problem.w)),
        convert_output_(conversion(device, channels_last && problem.layout == Layout::nchw, problem.n,
                                   problem.p() * problem.q(), problem.k)),
        workspace_(device_) {
    workspace_.at_least(needs(false, false).bytes,
                        nullptr);  // where memory is short this is better than a run
  }

  std::size_t packed_bytes() const override {
    return bias_offset() + (has_cudnn_bias(problem_) ? bias_bytes() : 0);
  }

  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    const DeviceScope scope(device_);
    convert_weights_.run(w, packed, stream);
    const auto packed_bias = reinterpret_cast<CUdeviceptr>(packed) + bias_offset();
    auto* const on = static_cast<CUstream>(stream);
    if (problem_.bias)
      check(driver().cuMemcpyDtoDAsync(packed_bias, reinterpret_cast<CUdeviceptr>(bias), bias_bytes(), on),
            "copying the bias");
    else if (has_cudnn_bias(problem_))
      check(driver().cuMemsetD32Async(packed_bias, 0, bias_bytes() / sizeof(float), on), "clearing the bias");
  }

  // Work is put on the stream under the session's mutex: cuDNN's handle serves one thread at a time, and
  // the parts of two runs on one stream, which share their workspace, must not mix.
  void run(const void* x, const void* packed, void* y, Stream stream) const override {
    const DeviceScope scope(device_);
    const std::lock_guard lock(session_.mutex);
    const Needs needed = needs(!aligned(x), !aligned(y));
    auto* const memory = static_cast<unsigned char*>(workspace_.at_least(needed.bytes, stream));
    const void* const input = needed.copies_x ? memory + needed.x_at : x;
    void* const output = needed.copies_y ? memory + needed.y_at : y;
    if (needed.copies_x) convert_input_.run(x, memory + needed.x_at, stream);
    execute(input, packed, output, memory, stream);
    if (needed.copies_y) convert_output_.run(output, y, stream);
  }

 private:
  // Between channels first and last, or the copy that takes its place.
  static Transpose conversion(const DeviceInfo& device, bool moves, std::int64_t batch, std::int64_t rows,
                              std::int64_t cols) {
    return moves ? Transpose(device, batch, rows, cols) : Transpose(device, 1, 1, batch * rows * cols);
  }
  // Some engines fail in a way that breaks the device for the process where a pointer is less aligned.
  static bool aligned(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % kCudnnAlignment == 0;
  }
  std::size_t bias_offset() const {
    const auto bytes = static_cast<std::size_t>(problem_.weight_elements()) * sizeof(float);
    return (bytes + 255) / 256 * 256;
  }
  std::size_t bias_bytes() const { return static_cast<std::size_t>(problem_.k) * sizeof(float); }

  void execute(const void* x, const void* packed, void* y, void* scratch, Stream stream) const {
    auto* weights = static_cast<unsigned char*>(const_cast<void*>(packed));
    std::vector<std::int64_t> ids;
    std::vector<void*> pointers;
    const auto bind = [&](CudnnTensor tensor, const void* pointer) {
      ids.push_back(static_cast<std::int64_t>(tensor));
      pointers.push_back(const_cast<void*>(pointer));
    };
    bind(CudnnTensor::x, x);
    bind(CudnnTensor::w, weights);
    bind(CudnnTensor::y, y);
    if (has_cudnn_bias(problem_)) bind(CudnnTensor::bias, weights + bias_offset());
    CudnnDescriptor pack(CudnnKind::variant_pack);
    pack.set(CudnnAttribute::variant_pack_unique_ids, ids);
    pack.set(CudnnAttribute::variant_pack_data_pointers, pointers);
    pack.set(CudnnAttribute::variant_pack_workspace, std::vector<void*>{scratch});
    pack.finalize();
    check_cudnn(cudnn_functions().cudnnSetStream(session_.handle, stream), "set a stream");
    check_cudnn(cudnn_functions().cudnnBackendExecute(session_.handle, plan_->descriptor.get(), pack.get()),
                "run a convolution");
  }

  // Of the workspace: cuDNN's own part, then copies of x and y in cuDNN's layout and alignment.
  struct Needs {
    bool copies_x, copies_y;
    std::size_t x_at, y_at, bytes;
  };
  Needs needs(bool moves_x, bool moves_y) const {
    Needs needed{moves_x || !convert_input_.is_copy(), moves_y || !convert_output_.is_copy(), 0, 0, 0};
    const auto room = [](bool wanted, std::int64_t bytes) {
      return wanted ? (static_cast<std::size_t>(bytes) + 255) / 256 * 256 : 0;
    };
    constexpr std::int64_t kBytes = sizeof(float);
    needed.x_at = room(true, plan_->workspace_bytes);
    needed.y_at = needed.x_at + room(needed.copies_x, problem_.input_elements() * kBytes);
    needed.bytes = needed.y_at + room(needed.copies_y, problem_.output_elements() * kBytes);
    return needed;
  }

  const Conv2dProblem problem_;
  const int device_;
  CudnnSession& session_;
  const std::shared_ptr<const CudnnPlan> plan_;
  const Transpose convert_weights_, convert_input_, convert_output_;
  mutable Workspace workspace_;  // guarded by the session's mutex
};

}  // namespace

std::unique_ptr<Executable> cudnn_executable(const Conv2dProblem& problem, const DeviceInfo& device,
                                             bool channels_last, std::shared_ptr<const CudnnPlan> plan) {
  const DeviceScope scope(device.device.index);
  return std::make_unique<CudnnExecutable>(problem, device, channels_last, std::move(plan));
}

}  // namespace convtune::cuda
