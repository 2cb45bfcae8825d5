// See pair_executable.h. A run's weights come while the grid before it still works, since packing them ends
// with a step that no kernel overlaps: what wrote them has then ended before the grid before a run begins.
#include "cuda/pairs/pair_executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cuda/launch/extents.h"
#include "problem/config_fields.h"

namespace convtune {

static std::string field_to_cuda(PairSm90Activation value) {
  return fmt::format("convtune::PairSm90Activation({})", static_cast<int>(value));
}

}  // namespace convtune

namespace convtune::cuda {
namespace {

constexpr const char* kFile = "cuda/pairs/pair_sm90.cuh";
constexpr int kMostParts = 8;                                            // blocks of a cluster, on every GPU
constexpr long long kSmem = 227 << 10, kSmemOfTwo = (kSmem - 2048) / 2;  // bytes a block of an SM of 9.0

std::string kernel_name(const char* prefix, const PairSm90& kernel) {
  return fmt::format("convtune::pair_sm90::{}pair_sm90<{}>", prefix, to_cuda(kernel));
}

static_assert(static_cast<int>(PairActivation::leaky_relu) ==
                  static_cast<int>(PairSm90Activation::leaky_relu) &&
              static_cast<int>(PairActivation::snake) == static_cast<int>(PairSm90Activation::snake));

PairSm90 plain(const PairProblem& a) {
  return {.type = element_type_of(a.dtype),
          .activation = static_cast<PairSm90Activation>(a.activation),
          .channels = static_cast<int>(a.c),
          .first_taps = static_cast<int>(a.first_taps),
          .second_taps = static_cast<int>(a.second_taps),
          .snake = static_cast<int>(a.snake),
          .activated = a.activated ? 1 : 0};
}

long long tiles_of(const PairProblem& a, const PairSm90& kernel) {
  return a.n * ceil_div(a.t, static_cast<std::int64_t>(kernel.outputs()));
}

}  // namespace

double estimated_us(const PairProblem& a, const PairSm90& kernel, int multiprocessors) {
  // Cycles of a block, where the tensor cores take a product's operands from shared memory.
  const int dilation = static_cast<int>(a.dilation);
  const double taps = kernel.first_taps + kernel.second_taps;
  const double product = std::max(kernel.filters() / 2.0, kernel.filters() / 4.0 + 16);
  const double products = taps * kernel.channels / 16 * kernel.consumers * product;
  // Bytes a cycle: from L2 to all SMs at once, or of stages that are under way meanwhile.
  constexpr double kMostBytes = 60, kLatency = 650;
  const double ahead =
      1.0 * (kernel.weights_stay() ? kernel.stages : kernel.stages - 1) * kernel.stage_bytes();
  const double loaded = std::min(kMostBytes, ahead / kLatency);
  const double weights = 1.0 * kernel.all_steps() * kernel.stage_bytes() / loaded;
  constexpr double kPieceCycles = 80.0 / 128;  // instructions of a piece of x, by warps, on four schedulers
  const double x = kPieceCycles * kernel.x_rows(dilation) * kernel.channels / 8;
  const double stores = 24.0 * kernel.filters() / 8 * kernel.consumers;
  constexpr double kLaunch = 5200, kExchange = 900, kNextBlock = 1200, kCyclesOfUs = 1755, kStep = 40;
  const double cycles = kLaunch + kStep * kernel.all_steps() + x + std::max(products, weights) +
                        0.1 * std::min(products, weights) + stores + (kernel.parts > 1 ? kExchange : 0);
  const double blocks = static_cast<double>(tiles_of(a, kernel)) * kernel.parts;
  const bool two = kernel.smem_bytes(dilation) <= kSmemOfTwo;
  const double waves = std::ceil(blocks / multiprocessors);
  return (waves - 1) * (cycles - kLaunch + kNextBlock) / kCyclesOfUs * (two ? 0.9 : 1) +
         (cycles - (two ? 600 : 0)) / kCyclesOfUs;
}

Support supports_pair(const PairProblem& a, const DeviceInfo& device) {
  if (device.device.kind != Device::Kind::cuda || device.isa != "sm_90a")
    return Support::no("pairs are for GPUs of compute capability 9.0");
  if (a.dtype == DType::f32) return Support::no("pairs are in half precision");
  if (a.c % 32 != 0)
    return Support::no(fmt::format("pairs are for multiples of 32 channels, not for {}", a.c));
  struct Limit {
    const char* what;
    std::int64_t value, most;
  };
  for (const auto& [what, value, most] : {Limit{"channels", a.c, PairSm90::kMostLoading},
                                          {"a batch", a.n, 65535},
                                          {"positions", a.t, 1 << 26},
                                          {"taps of the first convolution", a.first_taps, 63},
                                          {"taps of the second convolution", a.second_taps, 31},
                                          {"a dilation", a.dilation, 256}})
    if (value > most) return Support::no(fmt::format("pairs are for {} up to {}, not {}", what, most, value));
  PairSm90 kernel = plain(a);
  const auto shared = [&] { return kernel.channels % (32 * kernel.parts) == 0 && kernel.filters() <= 256; };
  for (kernel.parts = 1; kernel.parts <= kMostParts && !shared();) ++kernel.parts;
  if (kernel.parts > kMostParts)
    return Support::no(fmt::format("up to {} blocks share channels in multiples of 32 up to 256, and not {}",
                                   kMostParts, a.c));
  if (pair_kernels(a, device).empty())
    return Support::no(
        fmt::format("a tile of {} channels with {} and {} taps and a dilation of {} does not "
                    "fit into shared memory",
                    a.c, a.first_taps, a.second_taps, a.dilation));
  return Support::yes();
}

std::vector<PairSm90> pair_kernels(const PairProblem& a, const DeviceInfo& device) {
  std::vector<std::pair<double, PairSm90>> timed;
  const int dilation = static_cast<int>(a.dilation);
  PairSm90 kernel = plain(a);
  constexpr int kMostConsumers = 4, kMostStages = 32;
  constexpr int kStageBytes = 16 << 10, kLargeStageBytes = 24 << 10;
  const auto add = [&] {
    for (kernel.consumers = 1; kernel.consumers <= kMostConsumers; ++kernel.consumers)
      for (const long long smem : {kSmemOfTwo, kSmem}) {
        PairSm90 one = kernel;
        one.stages = std::min(kernel.all_steps(), kMostStages);
        while (one.stages > 2 && !one.valid(dilation, smem)) --one.stages;
        if (!one.valid(dilation, smem)) continue;
        if (!timed.empty() && to_config(timed.back().second) == to_config(one)) continue;
        timed.emplace_back(estimated_us(a, one, device.units), one);
      }
  };
  for (kernel.parts = 1; kernel.parts <= kMostParts; ++kernel.parts) {
    if (kernel.channels % (32 * kernel.parts) != 0) continue;
    int before = 0;
    for (const int most : {kStageBytes, kLargeStageBytes}) {
      for (const int unit : {64, 32}) {  // channels of a stage, as many as make a large one
        kernel.depth = 0;
        for (int depth = unit; depth <= kernel.channels && 2 * depth * kernel.filters() <= most;
             depth += unit)
          if (kernel.channels % depth == 0) kernel.depth = depth;
        if (kernel.depth > 0) break;
      }
      if (kernel.depth > before) add();
      before = kernel.depth;
    }
  }
  std::ranges::stable_sort(timed, {}, &std::pair<double, PairSm90>::first);
  std::vector<PairSm90> kernels;
  constexpr double kNear = 1.6;  // times the best by estimate
  constexpr std::size_t kMost = 10;
  for (const auto& [us, one] : timed)
    if (kernels.size() < kMost && us <= kNear * timed.front().first) kernels.push_back(one);
  return kernels;
}

PairSm90 pair_kernel(const PairProblem& a, const Config& config) {
  const PairSm90 kernel = from_config(config, plain(a));
  if (!kernel.valid(static_cast<int>(a.dilation), kSmem))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("a pair's config '{}': parts of 32 to 256 channels, stages of a divisor of the "
                            "channels, and {} bytes of shared memory (here {})",
                            to_string(config), kSmem, kernel.smem_bytes(static_cast<int>(a.dilation))));
  return kernel;
}

CompileJob PairExecutable::job(const PairSm90& kernel, const std::string& arch) {
  CompileJob job = kernel_job(kFile, kernel_name("", kernel), arch);
  job.kernels.push_back(kernel_name("pack_", kernel));
  return job;
}

PairExecutable::PairExecutable(const PairProblem& problem, const PairSm90& kernel, const DeviceInfo& device)
    : problem_(problem),
      config_(kernel),
      device_(device.device.index),
      module_(compile(job(kernel, device.isa))),
      run_(device_, module_, kernel_name("", kernel),
           {.dynamic_smem_bytes =
                static_cast<std::size_t>(kernel.smem_bytes(static_cast<int>(problem.dilation))),
            .waits_for_earlier_grids = true}),
      pack_(device_, module_, kernel_name("pack_", kernel), {}) {}

std::size_t PairExecutable::packed_bytes() const {
  return static_cast<std::size_t>(config_.packed().words()) * sizeof(float);
}

void PairExecutable::pack(const PairWeights& weights, void* packed, Stream stream) const {
  const PackedPair at = config_.packed();
  auto* const words = static_cast<unsigned*>(packed);
  fill(device_, words + at.flag_at(), 0, 2, stream);
  constexpr unsigned kThreads = 256;
  pack_.launch({static_cast<unsigned>(ceil_div(at.threads(), 1LL * kThreads))}, {kThreads}, 0, stream,
               weights, packed);
  fill(device_, words + at.last_at(), 0, 1, stream);
}

void PairExecutable::run(const void* x, const void* packed, void* y, Stream stream) const {
  const auto tiles =
      static_cast<unsigned>(ceil_div(problem_.t, static_cast<std::int64_t>(config_.outputs())));
  const auto parts = static_cast<unsigned>(config_.parts);
  const int positions = static_cast<int>(problem_.t), dilation = static_cast<int>(problem_.dilation);
  run_.launch({tiles * parts, static_cast<unsigned>(problem_.n)}, {static_cast<unsigned>(config_.threads())},
              static_cast<std::size_t>(config_.smem_bytes(dilation)), stream, x, packed, y, positions,
              dilation, problem_.slope);
}

}  // namespace convtune::cuda
