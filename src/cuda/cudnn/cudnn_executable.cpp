// See cudnn_executable.h.
#include "cuda/cudnn/cudnn_executable.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "cuda/cudnn/cudnn_graph.h"
#include "cuda/device/driver.h"
#include "cuda/device/memory.h"
#include "cuda/device/workspace.h"
#include "cuda/launch/sum_pixels_step.h"
#include "cuda/launch/transpose.h"
#include "problem/rewrite.h"

namespace convtune::cuda {
namespace {

std::size_t bytes_of(std::int64_t elements, DType type) {
  return static_cast<std::size_t>(elements * size_of(type));
}

class CudnnExecutable final : public Executable {
 public:
  CudnnExecutable(const ConvProblem& problem, const DeviceInfo& device, const CudnnForm& form,
                  std::shared_ptr<const CudnnPlan> plan)
      : given_(problem),
        problem_(without_dbias(joined(problem))),
        form_(form),
        device_(device.device.index),
        session_(cudnn_session(device_)),
        plan_(std::move(plan)),
        filter_{problem.c / problem.groups, problem.t, problem.r, problem.s, problem.dtype.w},
        convert_weights_(conversion(device, form.channels_last, problem.k, filter_.channels, filter_.pixels(),
                                    filter_.type)),
        read_(read_side(problem_)),
        written_(written_side(problem)),
        convert_input_(conversion(device, moves(), problem.cache > 0 ? 1 : problem.n, read_.channels,
                                  read_side(problem).pixels(), read_.type)),
        convert_cache_(conversion(device, moves() && problem.cache > 0, 1, problem.c,
                                  problem.cache * problem.h * problem.w, problem.dtype.x)),
        convert_residual_(
            conversion(device, moves(), problem.n, written_.channels, written_.pixels(), written_.type)),
        convert_output_(gives_weights() ? conversion(device, form.channels_last, problem.k, filter_.pixels(),
                                                     filter_.channels, filter_.type)
                                        : conversion(device, moves(), problem.n, written_.pixels(),
                                                     written_.channels, written_.type)),
        workspace_(device_) {
    if (gives_weights() && given_.bias)
      bias_sums_.emplace(device, sums_of_dy(given_), given_.n * written_.pixels());
    workspace_.at_least(places_for({}).bytes, nullptr);  // if memory is short this is better than a run
  }

  std::size_t packed_bytes() const override { return bias_offset() + bias_bytes(); }
  std::optional<std::size_t> workspace_bytes() const override { return places_for({}).bytes; }

  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    if (gives_weights()) return;
    const DeviceScope scope(device_);
    convert_weights_.run(w, packed, stream);
    auto* const on = static_cast<CUstream>(stream);
    const auto to = reinterpret_cast<CUdeviceptr>(packed) + bias_offset();
    if (!problem_.bias) {
      if (bias_bytes() > 0) check(driver().cuMemsetD8Async(to, 0, bias_bytes(), on), "clearing the bias");
      return;
    }
    check(driver().cuMemcpyDtoDAsync(to, reinterpret_cast<CUdeviceptr>(bias), bias_bytes(), on),
          "copying the bias");
  }

  // Work is put on the stream under the session's mutex: cuDNN's handle serves one thread at a time.
  void run(const Tensors& tensors, const void* packed, Stream stream) const override {
    const DeviceScope scope(device_);
    const std::lock_guard lock(session_.mutex);
    const bool is_data = problem_.direction == Direction::backward_data;
    const void* const x = is_data ? tensors.dy : tensors.x;
    const void* const other = gives_weights() ? tensors.dy : tensors.residual;
    void* const y = gives_weights() ? tensors.dw : is_data ? tensors.dx : tensors.y;
    const Places places = places_for({.x = !aligned(x), .residual = !aligned(other), .y = !aligned(y)});
    const Workspace::Hold hold = workspace_.at_least(places.bytes, stream);
    auto* const memory = static_cast<unsigned char*>(hold.memory);
    const auto* const weights = static_cast<const unsigned char*>(packed);
    const Pointers pointers{.x = places.copied.x ? memory + places.x : x,
                            .w = weights,
                            .bias = weights + bias_offset(),
                            .residual = places.copied.residual ? memory + places.residual : other,
                            .y = places.copied.y ? memory + places.y : y,
                            .sum = memory + places.sum,
                            .partial = memory + places.partial};
    if (given_.cache > 0)
      join(tensors, memory + places.x, stream);
    else if (places.copied.x)
      convert_input_.run(x, memory + places.x, stream);
    if (places.copied.residual) convert_residual_.run(other, memory + places.residual, stream);
    check_cudnn(cudnn_functions().cudnnSetStream(session_.handle, stream), "set a stream");
    for (const auto& step : plan_->steps) execute(*step, pointers, memory);
    if (bias_sums_ && tensors.dbias != nullptr)
      bias_sums_->run(pointers.residual, memory + places.bias_sums, tensors.dbias, stream);
    if (places.copied.y) convert_output_.run(memory + places.y, y, stream);
  }

  // Most of its engines multiply padding, and some make 0 of NaN in ReLU.
  bool keeps_special_numbers() const override { return false; }
  bool rounds_sum() const override { return plan_->steps.size() > 1 && written_.type != DType::f32; }

 private:
  // Then dy comes as the residual does: a second tensor that is read and lies as y.
  bool gives_weights() const { return problem_.direction == Direction::backward_weights; }
  bool moves() const { return form_.channels_last && problem_.layout == Layout::nchw; }
  // Between channels first and last, or the copy that takes its place.
  static Transpose conversion(const DeviceInfo& device, bool moves, std::int64_t batch, std::int64_t rows,
                              std::int64_t cols, DType type) {
    const std::int64_t bytes = size_of(type);
    return {device, moves ? Transposition{batch, rows, cols, bytes}
                          : Transposition{1, 1, batch * rows * cols, bytes}};
  }
  // Some engines fail in a way that breaks the device for the process where a pointer is less aligned.
  static bool aligned(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % kCudnnAlignment == 0;
  }
  // The cache's frames and x's as one tensor, in cuDNN's layout.
  void join(const Tensors& tensors, unsigned char* to, Stream stream) const {
    const FrameRuns runs = frame_runs(given_);
    const auto bytes = [&](std::int64_t frames, std::int64_t elements) {
      return bytes_of(frames * elements, given_.dtype.x);
    };
    const auto take = [&](const void* from, std::int64_t frames, std::int64_t at, const Transpose& convert) {
      if (!moves())
        return move_rows(device_,
                         {.to = to + bytes(at, runs.frame),
                          .to_pitch = bytes(problem_.d, runs.frame),
                          .from = from,
                          .from_pitch = bytes(frames, runs.frame),
                          .bytes = bytes(frames, runs.frame),
                          .count = static_cast<std::size_t>(runs.count)},
                         stream);
      const std::int64_t frame = given_.c * given_.h * given_.w;
      for (std::int64_t image = 0; image < given_.n; ++image)
        convert.run(static_cast<const unsigned char*>(from) + bytes(image * frames, frame),
                    to + bytes(image * problem_.d + at, frame), stream);
    };
    take(tensors.cache, given_.cache, 0, convert_cache_);
    take(tensors.x, given_.d, given_.cache, convert_input_);
  }
  std::size_t bias_offset() const {
    if (gives_weights()) return in_lines(1);  // nothing, which has an address
    return in_lines(bytes_of(problem_.weight_elements(), problem_.dtype.w));
  }
  std::size_t bias_bytes() const {
    return static_cast<std::size_t>(cudnn_bias_elements(problem_, form_) *
                                    size_of(cudnn_bias_type(problem_)));
  }

  struct Pointers {
    const void *x, *w, *bias, *residual, *y, *sum, *partial;
    const void* operator[](CudnnTensor tensor) const {
      static constexpr float kThree = 3, kSixth = 1.0F / 6;
      switch (tensor) {
        case CudnnTensor::x:
          return x;
        case CudnnTensor::w:
          return w;
        case CudnnTensor::bias:
          return bias;
        case CudnnTensor::y:
          return y;
        case CudnnTensor::residual:
        case CudnnTensor::dy:
          return residual;
        case CudnnTensor::sum:
          return sum;
        case CudnnTensor::partial:
          return partial;
        case CudnnTensor::three:
          return &kThree;
        case CudnnTensor::sixth:
          return &kSixth;
      }
      return nullptr;
    }
  };
  void execute(const CudnnStep& step, const Pointers& pointers, void* scratch) const {
    std::vector<std::int64_t> ids;
    std::vector<void*> values;
    for (const CudnnTensor tensor : step.tensors) {
      ids.push_back(static_cast<std::int64_t>(tensor));
      values.push_back(const_cast<void*>(pointers[tensor]));
    }
    CudnnDescriptor pack(CudnnKind::variant_pack);
    pack.set(CudnnAttribute::variant_pack_unique_ids, ids);
    pack.set(CudnnAttribute::variant_pack_data_pointers, values);
    pack.set(CudnnAttribute::variant_pack_workspace, std::vector<void*>{scratch});
    pack.finalize();
    check_cudnn(cudnn_functions().cudnnBackendExecute(session_.handle, step.descriptor.get(), pack.get()),
                "run a convolution");
  }

  // The workspace holds cuDNN's own part, copies of the tensors in cuDNN's layout and alignment, then what
  // one step leaves for the next.
  struct Copied {
    bool x = false, residual = false, y = false;
  };
  struct Places {
    Copied copied;
    std::size_t x = 0, residual = 0, y = 0, sum = 0, partial = 0, bias_sums = 0, bytes = 0;
  };
  // `badly_aligned`: what must be copied though it lies right.
  Places places_for(const Copied& badly_aligned) const {
    Places places;
    places.copied = {.x = badly_aligned.x || given_.cache > 0 || !convert_input_.is_copy(),
                     .residual = (problem_.residual || gives_weights()) &&
                                 (badly_aligned.residual || !convert_residual_.is_copy()),
                     .y = badly_aligned.y || !convert_output_.is_copy()};
    std::size_t end = in_lines(plan_->workspace_bytes());
    const auto place = [&](bool wanted, std::int64_t elements, DType type) {
      const std::size_t at = end;
      if (wanted) end += in_lines(bytes_of(elements, type));
      return at;
    };
    const std::int64_t outputs = problem_.result_elements();
    const DType y = problem_.result_type();
    places.x = place(places.copied.x, problem_.n * read_.channels * read_.pixels(), read_.type);
    places.residual =
        place(places.copied.residual, problem_.n * written_.channels * written_.pixels(), written_.type);
    places.y = place(places.copied.y, outputs, y);
    places.sum = place(plan_->steps.size() > 1, outputs, y);
    places.partial = place(plan_->steps.size() > 2, outputs, y);
    places.bias_sums = end;
    if (bias_sums_) end += in_lines(bias_sums_->workspace_bytes());
    places.bytes = end;
    return places;
  }

  const ConvProblem given_, problem_;  // the second as cuDNN has it: without a cache, or a bias's gradient
  const CudnnForm form_;
  const int device_;
  CudnnSession& session_;
  const std::shared_ptr<const CudnnPlan> plan_;
  const CudnnSide filter_;  // a filter: one output channel's weights
  const Transpose convert_weights_;
  const CudnnSide read_, written_;
  const Transpose convert_input_, convert_cache_, convert_residual_, convert_output_;
  std::optional<PixelSums> bias_sums_;
  mutable Workspace workspace_;
};

}  // namespace

std::unique_ptr<Executable> cudnn_executable(const ConvProblem& problem, const DeviceInfo& device,
                                             const CudnnForm& form, std::shared_ptr<const CudnnPlan> plan) {
  const DeviceScope scope(device.device.index);
  return std::make_unique<CudnnExecutable>(problem, device, form, std::move(plan));
}

}  // namespace convtune::cuda
