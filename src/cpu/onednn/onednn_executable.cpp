// See onednn_executable.h.
#include "cpu/onednn/onednn_executable.h"

#include <algorithm>

#include "cpu/onednn/onednn_execution.h"

namespace convtune::cpu {

namespace {

// Everything that a run writes to besides y: one for each thread that is inside run().
struct Workspace {
  OnednnStream stream;
  OnednnMemory x, residual, y, weights, bias;
  const void* packed = nullptr;  // what weights and bias are set to
  OnednnArguments convert_input, convert_residual, convolve, convert_output;
  std::vector<unsigned char> kept_residual;  // of a run whose residual is y itself
};

class OnednnExecutable final : public OnednnConvolution {
 public:
  OnednnExecutable(const ConvProblem& problem, OnednnPrimitiveDesc desc, int threads)
      : threads_(threads),
        desc_(std::move(desc)),
        x_desc_(onednn_input(problem)),
        y_desc_(onednn_output(problem)),
        w_desc_(onednn_weights(problem)),
        bias_desc_(onednn_bias(problem)),
        packed_desc_(desc_.query(OnednnQuery::weights)),
        input_desc_(desc_.query(OnednnQuery::src)),
        output_desc_(desc_.query(OnednnQuery::dst)),
        transposed_(problem.direction == Direction::backward_data),
        residual_(problem.residual),
        convolution_(desc_),
        convert_weights_(w_desc_, packed_desc_),
        convert_input_(x_desc_, input_desc_),
        convert_residual_(y_desc_, residual_ ? output_desc_ : y_desc_),
        convert_output_(output_desc_, y_desc_) {}

  // The weights in oneDNN's order, then the bias on the next cache line.
  std::size_t packed_bytes() const override { return bias_offset() + bias_desc_.bytes(); }

  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    const Execution scope(threads_);
    auto* bytes = static_cast<unsigned char*>(packed);
    if (convert_weights_) {
      const OnednnStream stream;
      convert_weights_.execute(stream, convert_weights_.arguments(OnednnMemory::of(w_desc_, w),
                                                                  OnednnMemory::of(packed_desc_, packed)));
      stream.wait();
    } else {
      std::copy_n(static_cast<const unsigned char*>(w), w_desc_.bytes(), bytes);
    }
    std::copy_n(static_cast<const unsigned char*>(bias), bias_desc_.bytes(), bytes + bias_offset());
  }

  void unpack(const void* packed, void* w, void* bias) const override {
    const Execution scope(threads_);
    const auto* const bytes = static_cast<const unsigned char*>(packed);
    if (const Conversion back(packed_desc_, w_desc_); back) {
      const OnednnStream stream;
      back.execute(stream,
                   back.arguments(OnednnMemory::of(packed_desc_, packed), OnednnMemory::of(w_desc_, w)));
      stream.wait();
    } else {
      std::copy_n(bytes, w_desc_.bytes(), static_cast<unsigned char*>(w));
    }
    std::copy_n(bytes + bias_offset(), bias_desc_.bytes(), static_cast<unsigned char*>(bias));
  }

  // Nothing surrounds a deconvolution as onednn_special.h does a convolution.
  bool keeps_special_numbers() const override { return !transposed_; }

  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const Execution scope(threads_);
    std::unique_ptr<Workspace> workspace = idle_.take([this] { return make_workspace(); });
    execute(*workspace,
            transposed_ ? Tensors{.x = tensors.dy, .residual = tensors.residual, .y = tensors.dx} : tensors,
            packed);
    idle_.give_back(std::move(workspace));
  }

 private:
  std::size_t bias_offset() const { return (packed_desc_.bytes() + 63) / 64 * 64; }

  // Not y itself, where partial sums would be written over it.
  const void* residual_of(Workspace& workspace, const Tensors& tensors) const {
    if (tensors.residual != tensors.y || convert_residual_) return tensors.residual;
    const auto* const bytes = static_cast<const unsigned char*>(tensors.residual);
    workspace.kept_residual.assign(bytes, bytes + y_desc_.bytes());
    return workspace.kept_residual.data();
  }

  void execute(Workspace& workspace, const Tensors& tensors, const void* packed) const {
    workspace.x.set(tensors.x);
    workspace.y.set(tensors.y);
    if (residual_) workspace.residual.set(residual_of(workspace, tensors));
    // Only when they change: oneDNN 2 writes the zeros of a padded format at every call of this.
    if (workspace.packed != packed) {
      workspace.weights.set(packed);
      if (workspace.bias) workspace.bias.set(static_cast<const unsigned char*>(packed) + bias_offset());
      workspace.packed = packed;
    }
    if (convert_input_) convert_input_.execute(workspace.stream, workspace.convert_input);
    if (convert_residual_) convert_residual_.execute(workspace.stream, workspace.convert_residual);
    convolution_.execute(workspace.stream, workspace.convolve);
    if (convert_output_) convert_output_.execute(workspace.stream, workspace.convert_output);
    workspace.stream.wait();
  }

  std::unique_ptr<Workspace> make_workspace() const {
    auto made = std::make_unique<Workspace>();
    made->x = OnednnMemory::of(x_desc_, nullptr);
    made->y = OnednnMemory::of(y_desc_, nullptr);
    made->weights = OnednnMemory::of(packed_desc_, nullptr);
    OnednnMemory input = made->x, output = made->y;
    if (convert_input_) {
      input = OnednnMemory::allocated(input_desc_);
      made->convert_input = convert_input_.arguments(made->x, input);
    }
    if (convert_output_) {
      output = OnednnMemory::allocated(output_desc_);
      made->convert_output = convert_output_.arguments(output, made->y);
    }
    made->convolve = {{OnednnArgument::src, input},
                      {OnednnArgument::weights, made->weights},
                      {OnednnArgument::dst, output}};
    add_scratchpad(made->convolve, desc_);
    if (residual_) {
      OnednnMemory added = made->residual = OnednnMemory::of(y_desc_, nullptr);
      if (convert_residual_) {
        added = OnednnMemory::allocated(output_desc_);
        made->convert_residual = convert_residual_.arguments(made->residual, added);
      }
      made->convolve.emplace_back(OnednnArgument::added, added);
    }
    if (bias_desc_.bytes() > 0) {
      made->bias = OnednnMemory::of(bias_desc_, nullptr);
      made->convolve.emplace_back(OnednnArgument::bias, made->bias);
    }
    return made;
  }

  const int threads_;
  const OnednnPrimitiveDesc desc_;
  const OnednnDesc x_desc_, y_desc_, w_desc_, bias_desc_;    // as the problem has them
  const OnednnDesc packed_desc_, input_desc_, output_desc_;  // as oneDNN does
  const bool transposed_, residual_;
  const OnednnPrimitive convolution_;
  const Conversion convert_weights_, convert_input_, convert_residual_, convert_output_;
  mutable Idle<Workspace> idle_;
};

}  // namespace

std::unique_ptr<OnednnConvolution> onednn_executable(const ConvProblem& problem, OnednnPrimitiveDesc desc,
                                                     int threads) {
  return std::make_unique<OnednnExecutable>(problem, std::move(desc), threads);
}

}  // namespace convtune::cpu
