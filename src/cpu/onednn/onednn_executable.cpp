// See onednn_executable.h.
#include "cpu/onednn/onednn_executable.h"

#include <algorithm>

#include "cpu/onednn/onednn_execution.h"
#include "cpu/onednn/onednn_patience.h"

namespace convtune::cpu {

namespace {

using Clock = OnednnPatience::Clock;

// A convolution between conversions, made for a number of threads.
struct Steps {
  Steps(OnednnPrimitiveDesc made, const OnednnDesc& x, const OnednnDesc& y, bool residual)
      : desc(std::move(made)),
        input(desc.query(OnednnQuery::src)),
        output(desc.query(OnednnQuery::dst)),
        convolution(desc),
        convert_input(x, input),
        convert_residual(y, residual ? output : y),
        convert_output(output, y) {}

  OnednnPrimitiveDesc desc;
  OnednnDesc input, output;  // as oneDNN has them
  OnednnPrimitive convolution;
  Conversion convert_input, convert_residual, convert_output;
};

// Arguments of the steps: what each of them reads and writes.
struct StepArguments {
  OnednnArguments convert_input, convert_residual, convolve, convert_output;
};

// Everything that a run writes to besides y: one for each thread that is inside run().
struct Workspace {
  OnednnStream stream;
  OnednnMemory x, residual, y, weights, bias;
  OnednnMemory input, added, output;  // as oneDNN has them: the same objects where that is as they lie
  const void* packed = nullptr;       // what weights and bias are set to
  StepArguments arguments;
  std::vector<unsigned char> kept_residual;  // copy of a residual that is y itself
  // Steps on one thread, from the first time on that the team was late.
  std::unique_ptr<Steps> alone;
  StepArguments alone_arguments;
  bool never_alone = false;  // oneDNN has no way of one thread for tensors that lie so
  OnednnPatience::Runs runs;
};

class OnednnExecutable final : public OnednnConvolution {
 public:
  OnednnExecutable(const ConvProblem& problem, OnednnPrimitiveDesc desc, int threads)
      : problem_(problem),
        threads_(threads),
        x_desc_(onednn_input(problem)),
        y_desc_(onednn_output(problem)),
        w_desc_(onednn_weights(problem)),
        bias_desc_(onednn_bias(problem)),
        packed_desc_(desc.query(OnednnQuery::weights)),
        transposed_(problem.direction == Direction::backward_data),
        residual_(problem.residual),
        steps_(std::move(desc), x_desc_, y_desc_, residual_),
        convert_weights_(w_desc_, packed_desc_) {}

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

  void give_way() override { gives_way_ = threads_ > 1; }

  void run(const Tensors& tensors, const void* packed, Stream) const override {
    std::unique_ptr<Workspace> workspace = idle_.take([this] {
      const Execution scope(threads_);
      return make_workspace();
    });
    OnednnPatience& patience = OnednnPatience::of_this_thread();
    OnednnPatience::Runs& runs = workspace->runs;
    if (gives_way_ && patience.leaves_team(runs, Clock::now()) && can_run_alone(*workspace)) {
      const Execution scope(1);
      const auto began = Clock::now();
      execute(*workspace, *workspace->alone, workspace->alone_arguments, tensors, packed);
      patience.ran_alone(runs, began, Clock::now());
    } else {
      const Execution scope(threads_);
      const auto began = Clock::now();
      execute(*workspace, steps_, workspace->arguments, tensors, packed);
      if (gives_way_) patience.ran_on_all(runs, began, Clock::now());
    }
    idle_.give_back(std::move(workspace));
  }

 private:
  std::size_t bias_offset() const { return (packed_desc_.bytes() + 63) / 64 * 64; }

  // Not y itself, where partial sums would be written over it.
  const void* residual_of(Workspace& workspace, const Tensors& tensors) const {
    if (tensors.residual != tensors.y || steps_.convert_residual) return tensors.residual;
    const auto* const bytes = static_cast<const unsigned char*>(tensors.residual);
    workspace.kept_residual.assign(bytes, bytes + y_desc_.bytes());
    return workspace.kept_residual.data();
  }

  void execute(Workspace& workspace, const Steps& steps, const StepArguments& arguments, const Tensors& given,
               const void* packed) const {
    const Tensors tensors =
        transposed_ ? Tensors{.x = given.dy, .residual = given.residual, .y = given.dx} : given;
    workspace.x.set(tensors.x);
    workspace.y.set(tensors.y);
    if (residual_) workspace.residual.set(residual_of(workspace, tensors));
    // Only when they change: oneDNN 2 writes the zeros of a padded format at every call of this.
    if (workspace.packed != packed) {
      workspace.weights.set(packed);
      if (workspace.bias) workspace.bias.set(static_cast<const unsigned char*>(packed) + bias_offset());
      workspace.packed = packed;
    }
    if (steps.convert_input) steps.convert_input.execute(workspace.stream, arguments.convert_input);
    if (steps.convert_residual) steps.convert_residual.execute(workspace.stream, arguments.convert_residual);
    steps.convolution.execute(workspace.stream, arguments.convolve);
    if (steps.convert_output) steps.convert_output.execute(workspace.stream, arguments.convert_output);
    workspace.stream.wait();
  }

  std::unique_ptr<Workspace> make_workspace() const {
    auto made = std::make_unique<Workspace>();
    made->runs.threads = threads_;
    made->input = made->x = OnednnMemory::of(x_desc_, nullptr);
    made->output = made->y = OnednnMemory::of(y_desc_, nullptr);
    made->weights = OnednnMemory::of(packed_desc_, nullptr);
    if (steps_.convert_input) made->input = OnednnMemory::allocated(steps_.input);
    if (steps_.convert_output) made->output = OnednnMemory::allocated(steps_.output);
    if (residual_) made->added = made->residual = OnednnMemory::of(y_desc_, nullptr);
    if (steps_.convert_residual) made->added = OnednnMemory::allocated(steps_.output);
    if (bias_desc_.bytes() > 0) made->bias = OnednnMemory::of(bias_desc_, nullptr);
    made->arguments = arguments_of(steps_, *made);
    return made;
  }

  StepArguments arguments_of(const Steps& steps, const Workspace& in) const {
    StepArguments made;
    if (steps.convert_input) made.convert_input = steps.convert_input.arguments(in.x, in.input);
    if (steps.convert_output) made.convert_output = steps.convert_output.arguments(in.output, in.y);
    if (steps.convert_residual)
      made.convert_residual = steps.convert_residual.arguments(in.residual, in.added);
    made.convolve = {{OnednnArgument::src, in.input},
                     {OnednnArgument::weights, in.weights},
                     {OnednnArgument::dst, in.output}};
    add_scratchpad(made.convolve, steps.desc);
    if (residual_) made.convolve.emplace_back(OnednnArgument::added, in.added);
    if (in.bias) made.convolve.emplace_back(OnednnArgument::bias, in.bias);
    return made;
  }

  bool can_run_alone(Workspace& workspace) const {
    if (workspace.alone || workspace.never_alone) return !workspace.never_alone;
    const ThreadCount scope(1);
    try {
      auto alone = std::make_unique<Steps>(describe_like(problem_, steps_.desc), x_desc_, y_desc_, residual_);
      workspace.alone_arguments = arguments_of(*alone, workspace);
      workspace.alone = std::move(alone);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported) throw;
      workspace.never_alone = true, workspace.runs.tries_alone = false;
    }
    return !workspace.never_alone;
  }

  const ConvProblem problem_;
  const int threads_;
  const OnednnDesc x_desc_, y_desc_, w_desc_, bias_desc_;  // as the problem has them
  const OnednnDesc packed_desc_;                           // as oneDNN does
  const bool transposed_, residual_;
  const Steps steps_;
  const Conversion convert_weights_;
  bool gives_way_ = false;
  mutable Idle<Workspace> idle_;
};

}  // namespace

std::unique_ptr<OnednnConvolution> onednn_executable(const ConvProblem& problem, OnednnPrimitiveDesc desc,
                                                     int threads) {
  return std::make_unique<OnednnExecutable>(problem, std::move(desc), threads);
}

}  // namespace convtune::cpu
