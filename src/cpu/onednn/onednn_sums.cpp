// See onednn_sums.h.
#include "cpu/onednn/onednn_sums.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/base/parallel.h"
#include "cpu/model/cpu_costs.h"
#include "cpu/model/store_work.h"
#include "cpu/onednn/onednn.h"
#include "cpu/onednn/onednn_execution.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/tensor_kernels.h"
#include "problem/element.h"

namespace convtune::cpu {
namespace {

// The problem that oneDNN is asked for: sums and bias, as f32. A residual of another type is added by the
// pass.
ConvProblem sums_of(const ConvProblem& problem) {
  ConvProblem sums = problem;
  sums.activation = Activation::none;
  sums.residual = problem.residual && problem.dtype.y == DType::f32;
  sums.dtype.y = DType::f32;
  return sums;
}

// Elements that the pass takes as a pixel's channels, and such pixels of a task.
constexpr std::int64_t kRow = 32, kRows = 64;
constexpr std::array<std::int64_t, kRows> kPlaces = [] {
  std::array<std::int64_t, kRows> places{};
  for (std::int64_t i = 0; i < kRows; ++i) places[i] = i * kRow;
  return places;
}();
constexpr std::array<float, kRow> kNoBias{};

class OnednnSumsExecutable final : public Executable {
 public:
  OnednnSumsExecutable(const ConvProblem& problem, std::unique_ptr<Executable> sums, const DeviceInfo& device)
      : problem_(problem),
        sums_(std::move(sums)),
        threads_(device.units),
        elements_(problem.output_elements()),
        finish_(tensor_kernels(widest_vector_bits(device))
                    ->finish_pixels[static_cast<std::size_t>(problem.activation)]),
        by_instruction_(widest_vector_bits(device) == 512 && rounds_by_instruction(problem)) {}

  std::size_t packed_bytes() const override { return sums_->packed_bytes(); }
  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    sums_->pack(w, bias, packed, stream);
  }
  void give_way() override { sums_->give_way(); }

  void run(const Tensors& tensors, const void* packed, Stream stream) const override {
    if (problem_.dtype.y == DType::f32) {
      sums_->run(tensors, packed, stream);
      return finish(static_cast<const float*>(tensors.y), nullptr, tensors.y);
    }
    auto memory = idle_.take([&] {
      return std::make_unique<Memory>(
          backend().allocate(static_cast<std::size_t>(elements_) * sizeof(float)));
    });
    Tensors of_sums = tensors;
    of_sums.residual = nullptr, of_sums.y = memory->get();
    sums_->run(of_sums, packed, stream);
    finish(static_cast<const float*>(memory->get()), tensors.residual, tensors.y);
    idle_.give_back(std::move(memory));
  }

 private:
  using Memory = std::shared_ptr<void>;

  void finish(const float* sums, const void* residual, void* y) const {
    constexpr std::int64_t kTask = kRow * kRows;
    parallel_for(threads_, (elements_ + kTask - 1) / kTask, [&](std::int64_t task, std::int64_t end) {
      for (; task < end; ++task)
        finish_some(task * kTask, std::min(elements_ - task * kTask, kTask), sums, residual, y);
    });
  }
  void finish_some(std::int64_t first, std::int64_t count, const float* sums, const void* residual,
                   void* y) const {
    const std::int64_t begin = first * element_row(problem_.dtype.y).bytes;
    FinishArgs args{.sums = sums + first,
                    .sums_step = kRow,
                    .pixels = count / kRow,
                    .channels = kRow,
                    .bias = kNoBias.data(),
                    .residual = residual ? static_cast<const char*>(residual) + begin : nullptr,
                    .y = static_cast<char*>(y) + begin,
                    .places = kPlaces.data(),
                    .place = 0,
                    .plane = 0,
                    .problem = &problem_,
                    .by_instruction = by_instruction_};
    finish_(args);
    if (count % kRow == 0) return;
    // The last ones from a copy, since sums are read in whole vectors.
    float last[kRow] = {};
    args.channels = count % kRow;
    std::copy_n(args.sums + args.pixels * kRow, args.channels, last);
    args.sums = last, args.places += args.pixels, args.pixels = 1;
    finish_(args);
  }

  const ConvProblem problem_;
  const std::unique_ptr<Executable> sums_;
  const int threads_;
  const std::int64_t elements_;
  const Finish finish_;
  const bool by_instruction_;
  mutable Idle<Memory> idle_;
};

class OnednnSums final : public Algorithm {
 public:
  std::string_view name() const override { return "onednn_sums"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }

  Support supports(const ConvProblem& problem, const DeviceInfo& device) const override {
    const Support support = takes(problem, device);
    return support ? onednn()->supports(sums_of(problem), device) : support;
  }
  std::vector<ConfigField> fields() const override { return onednn()->fields(); }
  std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& device) const override {
    return takes(problem, device) ? onednn()->candidates(sums_of(problem), device) : std::vector<Config>();
  }
  // Nobody knows oneDNN's time: 1.6 times what products take with a group's filters in lanes, outputs stored
  // four times, and what is converted. So it is tried early, and is a first guess only where all of ours take
  // longer than that.
  std::optional<double> estimated_us(const ConvProblem& problem, const DeviceInfo& device,
                                     const Config&) const override {
    constexpr double kIdle = 1.6, kStores = 4;
    const int bits = widest_vector_bits(device), lanes = bits / 32;
    const bool pairs = problem.dtype.x == DType::bf16 && bits == 512 && multiplies_bf16();
    const auto outputs = static_cast<double>(problem.output_elements());
    const bool converts = problem.layout == Layout::nchw;
    const double moved = outputs + (converts ? outputs + static_cast<double>(problem.input_elements()) : 0);
    const double products = outputs * static_cast<double>(problem.weight_elements() / problem.k);
    const double busy = std::min<double>(lanes, static_cast<double>(problem.k / problem.groups));
    const double cycles = kIdle * cpu_costs().multiply_add * products / busy / (pairs ? 2 : 1) +
                          kStores * cpu_costs().store_in_caches * moved / lanes +
                          activation_cycles(problem, bits);
    return cycles / (3000.0 * device.units);
  }
  Support accepts(const ConvProblem& problem, const DeviceInfo& device, const Config& config) const override {
    const Support support = takes(problem, device);
    return support ? onednn()->accepts(sums_of(problem), device, config) : support;
  }
  std::unique_ptr<Executable> build(const ConvProblem& problem, const DeviceInfo& device,
                                    const Config& config) const override {
    if (const Support support = accepts(problem, device, config); !support)
      throw Error(ErrorKind::unsupported, "onednn_sums cannot run this problem: " + support.reason());
    return std::make_unique<OnednnSumsExecutable>(problem, onednn()->build(sums_of(problem), device, config),
                                                  device);
  }
  std::string source_hash() const override { return "1-" + onednn()->source_hash(); }

 private:
  static Support takes(const ConvProblem& problem, const DeviceInfo& device) {
    if (widest_vector_bits(device) == 0) return Support::no("its activations are of vectors");
    return within(
        {.types = {DType::f32, DType::f16, DType::bf16},
         .mixed_types = true,
         .activations = {Activation::silu, Activation::gelu_erf, Activation::gelu_tanh, Activation::sigmoid},
         .residual = true,
         .depth = true,
         .cache = true},
        problem);
  }
};

}  // namespace

const Algorithm* onednn_sums() {
  return onednn() ? &once([] { return OnednnSums(); }) : nullptr;
}

}  // namespace convtune::cpu
