// `direct_patch_sm90`: filters that neither overlap nor leave gaps, on compute capability 9.0
// (kernels/direct_patch_sm90.cuh). Which problems it takes, its search space, and what runs.
#include "cuda/direct_patch_sm90.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "config.h"
#include "cuda/compiler.h"
#include "cuda/cuda.h"
#include "cuda/extents.h"
#include "cuda/kernel_algorithm.h"
#include "cuda/tensor_map.h"

namespace convtune::cuda {
namespace {

constexpr int kMostCandidates = 32;

struct DirectPatchConfig {
  std::int64_t consumers = 3, filters = 192, rows = 1, stages = 4;
  template <class Self, class F>
  static void visit(Self& self, F&& field) {
    field("consumers", self.consumers);
    field("filters", self.filters);
    field("rows", self.rows);
    field("stages", self.stages);
  }
};

DirectPatchSm90 with(const Conv2dExtents& extents, const DirectPatchConfig& config) {
  const auto small = [](std::int64_t value) { return static_cast<int>(value); };
  return {.conv = extents,
          .consumers = small(config.consumers),
          .filters = small(config.filters),
          .rows = small(config.rows),
          .stages = small(config.stages)};
}

// One a multiprocessor.
long long blocks_of(const DirectPatchSm90& kernel, int multiprocessors) {
  return std::clamp<long long>(kernel.tiles(), 1, std::max(multiprocessors, 1));
}

// Clock cycles of the busiest multiprocessor, roughly: of products, of the copy engine and of what a stage
// waits for its loads the slowest, then the outputs, which memory takes from all multiprocessors at once.
double estimated_cycles(const DirectPatchSm90& kernel, int multiprocessors) {
  constexpr double kCopyCycles = 100, kCopiedBytes = 75;  // to begin a copy; in a cycle
  constexpr double kLatency = 1500, kStoredBytes = 10.5, kTileCycles = 1000, kMemoryBytes = 13;
  const Conv2dExtents& a = kernel.conv;
  const double products = 1.0 * kernel.steps() * kernel.consumers * kernel.filters / 2;
  const double copies = 2 + (kernel.patch_rows() - 1) / kernel.most_box_rows();
  const double engine = kCopyCycles * copies + static_cast<double>(kernel.stage_bytes()) / kCopiedBytes;
  const double idle = kernel.consumers == 1 ? 0.5 * products : 0;  // between a warpgroup's products
  const double stage = std::max({products + idle, engine, (kLatency + engine) / (kernel.stages - 1)});
  const double outputs = 4.0 * kernel.block_positions() * kernel.filters / kStoredBytes;
  const double waves = std::ceil(static_cast<double>(kernel.tiles()) /
                                 static_cast<double>(blocks_of(kernel, multiprocessors)));
  const double all = waves * (stage * kernel.sum_stages() + outputs + kTileCycles);
  const double bytes =
      4.0 * a.n * (static_cast<double>(a.c) * a.h * a.w + static_cast<double>(a.k) * a.p * a.q);
  return std::max(all, bytes / kMemoryBytes / multiprocessors);
}

class DirectPatchExecutable final : public PackingExecutable<DirectPatchSm90> {
 public:
  DirectPatchExecutable(const DirectPatchSm90& kernel, const DeviceInfo& device)
      : PackingExecutable(kernel, device, direct_patch_sm90_job(kernel, device.isa)),
        blocks_(static_cast<unsigned>(blocks_of(kernel, device.units))) {}

  void run(const void* x, const void* packed, void* y, Stream stream) const override {
    DirectPatchSm90Maps maps;
    const int input_boxes = make_input(maps, x), output_boxes = make_output(maps, y);
    launch({blocks_}, stream, maps, input_boxes, output_boxes, static_cast<const float*>(x),
           static_cast<const float*>(packed), static_cast<float*>(y));
  }

 private:
  // As the kernel has them (kernels/direct_patch_sm90.cuh).
  struct DirectPatchSm90Maps {
    std::array<TensorMap, DirectPatchSm90::kInputBoxes> x;
    TensorMap y;
    friend std::string to_cuda(const DirectPatchSm90Maps& maps) {
      std::string inputs;
      for (const TensorMap& map : maps.x) inputs += (inputs.empty() ? "" : ", ") + to_cuda(map);
      return fmt::format("convtune::DirectPatchSm90Maps{{{{{}}}, {}}}", inputs, to_cuda(maps.y));
    }
  };
  // Whether they can be used. x as [image and channel][row of patches][filter row][piece][column].
  bool make_input(DirectPatchSm90Maps& maps, const void* x) const {
    if (reinterpret_cast<std::uintptr_t>(x) % 16 != 0) return false;
    const auto wide = [](int value) { return static_cast<std::uint64_t>(value); };
    const Conv2dExtents& a = config_.conv;
    const int columns = config_.box_columns(), pieces = a.w / columns;
    const std::uint64_t row = sizeof(float) * wide(a.w);
    for (std::size_t i = 0; i < static_cast<std::size_t>(config_.most_box_rows()); ++i) {
      const auto map =
          tensor_map(device_, x, {wide(columns), wide(pieces), wide(a.r), wide(a.p), wide(a.n) * wide(a.c)},
                     {sizeof(float) * wide(columns), row, row * wide(a.r), row * wide(a.h)},
                     {static_cast<std::uint32_t>(columns), static_cast<std::uint32_t>(pieces),
                      static_cast<std::uint32_t>(config_.rows), static_cast<std::uint32_t>(i + 1), 1});
      if (!map) return false;
      maps.x[i] = *map;
    }
    return true;
  }
  bool make_output(DirectPatchSm90Maps& maps, void* y) const {
    if (!config_.has_boxes() || reinterpret_cast<std::uintptr_t>(y) % 16 != 0) return false;
    const auto n = static_cast<std::uint64_t>(config_.conv.n), k = static_cast<std::uint64_t>(config_.conv.k);
    const std::uint64_t image =
        static_cast<std::uint64_t>(config_.conv.p) * static_cast<std::uint64_t>(config_.conv.q);
    const auto map = tensor_map(device_, y, {image, k, n}, {sizeof(float) * image, sizeof(float) * k * image},
                                {32, DirectPatchSm90::kStagedFilters, 1}, Swizzle::bytes_128);
    if (!map) return false;
    maps.y = *map;
    return true;
  }

  const unsigned blocks_;
};

class DirectPatch final : public KernelAlgorithm {
 public:
  DirectPatch() : KernelAlgorithm("direct_patch_sm90") {}

  Support supports(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (Support support = takes(a, device); !support) return support;
    if (configs_of(extents_of(a), device.units).empty())
      return Support::no(
          fmt::format("two stages of its rows of {} columns are more than shared memory, or its offsets are "
                      "more than an int",
                      a.w));
    return Support::yes();
  }

  std::vector<Config> candidates(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (!takes(a, device)) return {};
    return to_configs(configs_of(extents_of(a), device.units));
  }

  double bound_us(const Conv2dProblem& a, const DeviceInfo&, const Config& config,
                  const Ceilings& ceilings) const override {
    const DirectPatchSm90 kernel = with(extents_of(a), from_config<DirectPatchConfig>(config));
    const double flops = 2.0 * static_cast<double>(kernel.position_tiles()) * kernel.block_positions() *
                         kernel.filter_blocks() * kernel.filters * kernel.conv.taps();
    return 1e6 * std::max(flops / ceilings.flops_per_second, a.bytes() / ceilings.bytes_per_second);
  }

  std::optional<StageView> stage_view(const Conv2dProblem& a, const DeviceInfo&,
                                      const Config& config) const override {
    const auto typed = from_config<DirectPatchConfig>(config);
    return stages_alone(with(extents_of(a), typed).threads() / 32, typed.stages,
                        [typed](std::int64_t stages) {
                          DirectPatchConfig other = typed;
                          other.stages = stages;
                          return to_config(other);
                        });
  }

 private:
  // What can be said without its configs.
  Support takes(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (Support support = needs_sm90(device); !support) return support;
    if (Support support = takes_tf32_nchw(a); !support) return support;
    if (Support support = fits_extents(a); !support) return support;
    if (!DirectPatchSm90::takes(extents_of(a)))
      return Support::no(
          "it is for patches only: filters as wide and high as their stride, dense, with no padding and one "
          "group; 4, 8 or a multiple of 16 columns, in rows of a multiple of 32");
    return Support::yes();
  }

  Support takes_config(const Conv2dProblem& a, const DeviceInfo&, const Config& config) const override {
    const auto typed = from_config<DirectPatchConfig>(config);
    constexpr std::int64_t kMost = 1 << 20;
    if (Support support = within(config, 1, kMost); !support) return support;
    if (with(extents_of(a), typed).valid(sm90_smem_per_block())) return Support::yes();
    return Support::no(fmt::format(
        "{} is not one of its configs for this problem: consumers 1 to 3, filters a multiple of 32 up to "
        "256 (192 with 3 consumers), rows that divide {} with at most {} numbers of a sum, a multiple of "
        "16, stages 2 to {}, and {} bytes of "
        "shared memory",
        to_string(config), a.r, DirectPatchSm90::kMostStageNumbers, DirectPatchSm90::kMostStages,
        sm90_smem_per_block()));
  }

  std::unique_ptr<Executable> make(const Conv2dProblem& a, const DeviceInfo& device,
                                   const Config& config) const override {
    return std::make_unique<DirectPatchExecutable>(direct_patch_sm90_kernel(a, config), device);
  }

  // The best valid ones by the estimate, each with as many stages as there is room for.
  static std::vector<DirectPatchConfig> configs_of(const Conv2dExtents& extents, int multiprocessors) {
    std::vector<Ranked<DirectPatchConfig>> ranked;
    for (const int consumers : {3, 2, 1})
      for (int filters = 256; filters >= 32; filters -= 32)
        for (const int rows : {1, 2, 4, 8, 16}) {
          if (filters >= extents.k + 32) continue;
          for (int stages = DirectPatchSm90::kMostStages; stages >= 2; --stages) {
            const DirectPatchConfig config{consumers, filters, rows, stages};
            const DirectPatchSm90 kernel = with(extents, config);
            if (!kernel.valid(sm90_smem_per_block())) continue;
            ranked.push_back({estimated_cycles(kernel, multiprocessors), config});
            break;
          }
        }
    return best_of(std::move(ranked), kMostCandidates);
  }
};

}  // namespace

CompileJob direct_patch_sm90_job(const DirectPatchSm90& a, const std::string& arch) {
  const std::string config =
      fmt::format("convtune::DirectPatchSm90{{.conv={},.consumers={},.filters={},.rows={},.stages={}}}",
                  to_cuda(a.conv), a.consumers, a.filters, a.rows, a.stages);
  return packing_job("direct_patch_sm90", config, arch);
}

DirectPatchSm90 direct_patch_sm90_kernel(const Conv2dProblem& problem, const Config& config) {
  return with(extents_of(problem), from_config<DirectPatchConfig>(config));
}

const Algorithm& direct_patch_sm90() {
  static const DirectPatch algorithm;
  return algorithm;
}

}  // namespace convtune::cuda
