// `general_sm80`: every problem there is, on CUDA cores, compute capability 8.0 and up (general_sm80.cuh).
// It is slow, says so, and stands last in the table: for what nothing else takes.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/fork_gate.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/general_sm80/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "model/target_of.h"
#include "model/time_model.h"
#include "problem/epilogue.h"

namespace convtune {

static std::string field_to_cuda(ConvDirection direction) {
  return fmt::format("convtune::ConvDirection({})", static_cast<int>(direction));
}

namespace cuda {
namespace {

constexpr std::size_t kMostCandidates = 3;
constexpr int kResident = 2;  // blocks: the kernel's launch bound

bool gives_bias_gradient(const ConvProblem& a) {
  return a.direction == Direction::backward_weights && a.bias;
}

double results_of(const ConvProblem& a) {
  switch (a.direction) {
    case Direction::backward_data:
      return static_cast<double>(a.input_elements());
    case Direction::backward_weights:
      return static_cast<double>(a.weight_elements());
    default:
      return static_cast<double>(a.output_elements());
  }
}

// Returns the kernel's config for the problem, without the choices.
GeneralSm80 plain_of(const ConvProblem& a) {
  const bool data = a.direction == Direction::backward_data, forward = a.direction == Direction::forward;
  const ConvNumbers numbers = numbers_of(a);
  GeneralSm80 kernel;
  kernel.direction = forward ? ConvDirection::forward
                     : data  ? ConvDirection::backward_data
                             : ConvDirection::backward_weights;
  kernel.nhwc = a.layout == Layout::nhwc;
  kernel.in_type = element_type_of(data ? a.dtype.y : a.dtype.x);
  kernel.w_type = element_type_of(a.dtype.w);
  kernel.out_type = element_type_of(data ? a.dtype.x : a.dtype.y);
  kernel.bias_type = element_type_of(a.dtype.bias);
  kernel.activation = activation_of(a.activation);
  kernel.residual = a.residual;
  kernel.eager = rounds_each_step(a);
  kernel.cached = static_cast<int>(a.cache);
  // A counter goes beyond the last by a grid.
  constexpr std::int64_t kMost = std::int64_t{1} << 30, kMostExtent = 1 << 20;
  kernel.wide = !fits_extents(a) ||
                std::max({a.d, a.t, a.stride_d, a.dilation_d, a.pad_front, a.pad_back}) > kMostExtent ||
                std::max({numbers.inputs(), numbers.outputs(), numbers.weights(),
                          GeneralSm80::kThreads * kernel.blocks(numbers, gives_bias_gradient(a))}) >= kMost;
  return kernel;
}

// Every number is loaded for itself, and few of them are on their way at once.
TileWork work_of(const GeneralSm80& a, const ConvProblem& problem) {
  const ConvNumbers numbers = numbers_of(problem);
  const double warps = GeneralSm80::kThreads / 32.0;
  TileWork work;
  work.tiles = static_cast<double>(a.blocks(numbers, gives_bias_gradient(problem)));
  work.cuda_cores = true;
  const bool of_weights = a.direction == ConvDirection::backward_weights;
  const double taps = of_weights ? 0 : static_cast<double>(numbers.taps());
  const double terms = of_weights ? static_cast<double>(problem.n * problem.z() * problem.p() * problem.q()) /
                                        (a.rows_abreast() * a.columns_abreast())
                                  : taps * static_cast<double>(a.terms(numbers));
  const double loads = of_weights ? 2 : a.filters + a.pixels;
  work.load.instructions = warps * (300 + taps * a.pixels * 25 + terms * loads * 3);
  work.multiply.instructions = warps * terms * (a.filters * a.pixels + 3);
  work.load.l2_bytes = 128 * warps * terms * loads;
  work.in_flight_bytes = 128 * warps * loads * 4;
  const double results = results_of(problem) / work.tiles;
  work.store.instructions = warps * a.filters * a.pixels * 8;
  work.stored_bytes = 4 * results;
  work.pieces = results / 8;
  return work;
}

class General final : public KernelAlgorithm {
 public:
  General() : KernelAlgorithm("general_sm80") {}

  Support supports(const ConvProblem& problem, const DeviceInfo& device) const override {
    if (problem.snake != Snake::none) return Support::no("it has no snake behind its sums");
    return needs_sm80(device);
  }
  std::vector<ConfigField> fields() const override { return config_fields<GeneralSm80>(); }
  bool has_depth() const override { return true; }
  bool compiles(const Config&) const override { return false; }
  std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& device) const override {
    if (!needs_sm80(device)) return {};
    const Target target = target_of(device);
    std::vector<Ranked<GeneralSm80>> ranked;
    for (const int filters : {4, 2, 1})
      for (const int pixels : {4, 2, 1}) {
        GeneralSm80 kernel = plain_of(problem);
        kernel.filters = filters, kernel.pixels = pixels;
        if (!kernel.valid() || (filters > 1 && kernel.group_results(numbers_of(problem)) < filters)) continue;
        const TileWork work = work_of(kernel, problem);
        ranked.push_back(
            {estimate_time(target, work, {GeneralSm80::kThreads, 0, work.tiles, kResident}).us, kernel});
      }
    return to_configs(best_of(std::move(ranked), kMostCandidates));
  }
  double bound_us(const ConvProblem& problem, const DeviceInfo&, const Config&,
                  const Ceilings& ceilings) const override {
    return 1e6 *
           std::max(problem.flops() / ceilings.flops_per_second, problem.bytes() / ceilings.bytes_per_second);
  }

 private:
  // All precisions: products are exact, sums fp32.
  Support takes(const Computed& problem, const DeviceInfo& device) const override {
    return supports(problem, device);
  }
  Support takes_config(const Computed& problem, const DeviceInfo&, const Config& config) const override {
    if (from_config(config, plain_of(problem)).valid()) return Support::yes();
    return Support::no(to_string(config) + ": filters and pixels are 1, 2 or 4, and 1 in backward weights");
  }
  LaunchPlan launch_plan(const Computed& problem, const DeviceInfo& device,
                         const Config& config) const override {
    const GeneralSm80 kernel = from_config(config, plain_of(problem));
    const ConvNumbers numbers = numbers_of(problem);
    const Packed packed = kernel.packed(numbers);
    const auto grid = [](std::int64_t blocks) -> Extent3 {
      constexpr std::int64_t kMost = std::numeric_limits<int>::max();
      return {static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, kMost))};
    };
    const auto pointer = [](Operand operand, const char* type = "const void*") -> Argument {
      return Pointer{operand, type};
    };
    LaunchPlan plan;
    plan.name = name(), plan.arch = device.isa;
    plan.configs = {to_cuda(kernel)};
    plan.serves_every_problem = true;
    plan.packed = packed;
    if (packed.words() > 0)
      plan.pack.emplace_back(KernelLaunch{
          LaunchPlan::kPack,
          grid(ceil_div(packed.words(), GeneralSm80::kThreads)),
          {GeneralSm80::kThreads},
          0,
          {pointer(Operand::w), pointer(Operand::bias), pointer(Operand::packed, "unsigned*"), numbers}});
    struct Used {
      Operand in, out, more;
    };
    const Used used = kernel.forward() ? Used{Operand::x, Operand::y, Operand::residual}
                      : problem.direction == Direction::backward_data
                          ? Used{Operand::dy, Operand::dx, Operand::residual}
                          : Used{Operand::x, Operand::dw, Operand::dy};
    plan.run.emplace_back(
        KernelLaunch{LaunchPlan::kRun,
                     grid(kernel.blocks(numbers, gives_bias_gradient(problem))),
                     {GeneralSm80::kThreads},
                     static_cast<std::size_t>(kernel.smem_bytes()),
                     {pointer(used.in), pointer(Operand::packed, "const float*"), pointer(used.out, "void*"),
                      pointer(used.more),
                      pointer(problem.cache > 0 ? Operand::cache : Operand::dbias, "void*"), numbers}});
    hold_resident(plan, kResident);
    return plan;
  }
  TileWork tile_work(const Computed& problem, const DeviceInfo&, const Config& config) const override {
    return work_of(from_config(config, plain_of(problem)), problem);
  }
};

}  // namespace

const Algorithm& general_sm80() {
  return once([] { return General(); });
}

}  // namespace cuda
}  // namespace convtune
