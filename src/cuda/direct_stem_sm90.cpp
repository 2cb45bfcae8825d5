// `direct_stem_sm90`: few input channels and a stride of 4 on compute capability 9.0
// (kernels/direct_stem_sm90.cuh). Which problems it takes, its search space, and what runs. `consumers`
// warpgroups multiply; `units` of input are kept at once; `filters` belong to a block.
#include "cuda/direct_stem_sm90.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "config.h"
#include "cuda/compiler.h"
#include "cuda/cuda.h"
#include "cuda/kernel_algorithm.h"
#include "cuda/tensor_map.h"

namespace convtune::cuda {
namespace {

constexpr std::int64_t kMostExtent = 1 << 20;  // so that no product of three overflows 64 bits

struct DirectStemConfig {
  std::int64_t consumers = 3, units = 5, filters = 96;
  template <class Self, class F>
  static void visit(Self& self, F&& field) {
    field("consumers", self.consumers);
    field("units", self.units);
    field("filters", self.filters);
  }
};

// The problem alone; the choices as they come. Its extents must be known to be small.
DirectStemSm90 kernel_of(const Conv2dProblem& a) {
  const auto small = [](std::int64_t value) { return static_cast<int>(value); };
  DirectStemSm90 kernel;
  kernel.n = small(std::max<std::int64_t>(a.n, 1));  // a batch of 0 is packed for, and never run
  kernel.c = small(a.c), kernel.h = small(a.h), kernel.w = small(a.w);
  kernel.k = small(a.k), kernel.r = small(a.r), kernel.s = small(a.s);
  kernel.stride_h = small(a.stride_h);
  kernel.pad_top = small(a.pad_top), kernel.pad_left = small(a.pad_left);
  kernel.p = small(a.p()), kernel.q = small(a.q());
  kernel.relu = a.activation == Activation::relu;
  return kernel;
}

DirectStemSm90 with(DirectStemSm90 kernel, const DirectStemConfig& config) {
  kernel.consumers = static_cast<int>(config.consumers);
  kernel.units = static_cast<int>(config.units), kernel.filters = static_cast<int>(config.filters);
  return kernel;
}

// Blocks beside each other: those of the filter blocks that share an image row, and one a multiprocessor.
int row_blocks(const DirectStemSm90& kernel, int multiprocessors) {
  return static_cast<int>(std::clamp<long long>(multiprocessors / kernel.filter_blocks(), 1, kernel.rows()));
}

// Clock cycles of the busiest block, roughly: what an output row takes of shared memory beside the tensor
// cores, and its stores of the copy engine.
double estimated_cycles(const DirectStemSm90& kernel, int multiprocessors) {
  constexpr double kStoredBytesACycle = 9, kLoadedBytesACycle = 14, kOneConsumerIdles = 0.1;
  const double columns = kernel.filters;
  const double product = std::max(columns / 2, 16 + columns / 4);  // 64 x columns x 8; its operands' bytes
  const double products = product * kernel.tiles() * kernel.k_steps() * 1.2;
  const double copies = columns * kernel.q * 4 / kStoredBytesACycle +
                        static_cast<double>(kernel.unit_bytes()) / kLoadedBytesACycle;
  const double idle = kernel.consumers < DirectStemSm90::kMostConsumers ? kOneConsumerIdles * products : 0;
  const double rows = std::ceil(static_cast<double>(kernel.rows()) / row_blocks(kernel, multiprocessors)) *
                      std::ceil(static_cast<double>(kernel.filter_blocks()) / multiprocessors);
  return rows * (std::max(products, copies) + 0.3 * std::min(products, copies) + idle);
}

class DirectStemExecutable final : public PackingExecutable<DirectStemSm90> {
 public:
  DirectStemExecutable(const DirectStemSm90& kernel, const DeviceInfo& device)
      : PackingExecutable(kernel, device, direct_stem_sm90_job(kernel, device.isa)),
        blocks_(static_cast<unsigned>(row_blocks(kernel, device.units))) {}

  void run(const void* x, const void* packed, void* y, Stream stream) const override {
    DirectStemSm90Maps maps;
    const int in_boxes = make(maps, y);
    launch({blocks_, static_cast<unsigned>(config_.filter_blocks())}, stream, maps, in_boxes,
           static_cast<const float*>(x), static_cast<const float*>(packed), static_cast<float*>(y));
  }

 private:
  // As the kernel has them (kernels/direct_stem_sm90_store.cuh).
  struct DirectStemSm90Maps {
    std::array<TensorMap, 3> y;
    friend std::string to_cuda(const DirectStemSm90Maps& maps) {
      return fmt::format("convtune::DirectStemSm90Maps{{{{{}, {}, {}}}}}", to_cuda(maps.y[0]),
                         to_cuda(maps.y[1]), to_cuda(maps.y[2]));
    }
  };
  // Whether they can be used.
  bool make(DirectStemSm90Maps& maps, void* y) const {
    if (!config_.has_boxes() || reinterpret_cast<std::uintptr_t>(y) % 16 != 0) return false;
    constexpr std::uint64_t kPlanes = DirectStemSm90::kPlanes, kFloat = sizeof(float);
    const auto n = static_cast<std::uint64_t>(config_.n), k = static_cast<std::uint64_t>(config_.k);
    const std::uint64_t image = static_cast<std::uint64_t>(config_.p) * static_cast<std::uint64_t>(config_.q);
    const int lengths[] = {std::max(config_.short_run(), DirectStemSm90::kSector),
                           config_.short_run() + DirectStemSm90::kSector, DirectStemSm90::kTile};
    for (std::size_t i = 0; i < maps.y.size(); ++i) {
      const auto map = tensor_map(
          device_, y, {kPlanes * image, k / kPlanes, n}, {kFloat * kPlanes * image, kFloat * k * image},
          {static_cast<std::uint32_t>(lengths[i]), static_cast<std::uint32_t>(config_.members()), 1});
      if (!map) return false;
      maps.y[i] = *map;
    }
    return true;
  }

  const unsigned blocks_;
};

class DirectStem final : public KernelAlgorithm {
 public:
  DirectStem() : KernelAlgorithm("direct_stem_sm90") {}

  Support supports(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (Support support = takes(a, device); !support) return support;
    if (configs_of(a).empty()) return Support::no(why_none(kernel_of(a)));
    return Support::yes();
  }

  std::vector<Config> candidates(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (!takes(a, device)) return {};
    std::vector<Ranked<DirectStemConfig>> ranked;
    const DirectStemSm90 kernel = kernel_of(a);
    for (const DirectStemConfig& config : configs_of(a))
      ranked.push_back({estimated_cycles(with(kernel, config), device.units), config});
    // configs_of() has the better first where the estimate sees no difference.
    return to_configs(best_of(std::move(ranked)));
  }

  double bound_us(const Conv2dProblem& a, const DeviceInfo&, const Config& config,
                  const Ceilings& ceilings) const override {
    const DirectStemSm90 kernel = with(kernel_of(a), from_config<DirectStemConfig>(config));
    const double flops = 2.0 * static_cast<double>(kernel.rows()) * kernel.tiles() * DirectStemSm90::kTile *
                         kernel.k_steps() * 8 * kernel.filter_blocks() * kernel.filters;
    return 1e6 * std::max(flops / ceilings.flops_per_second, a.bytes() / ceilings.bytes_per_second);
  }

  // Its stages are the units that it keeps beside those that a filter covers.
  std::optional<StageView> stage_view(const Conv2dProblem& a, const DeviceInfo&,
                                      const Config& config) const override {
    const auto typed = from_config<DirectStemConfig>(config);
    const int halo = kernel_of(a).halo();
    return stages_alone(4 * (typed.consumers + 2), typed.units - halo, [typed, halo](std::int64_t stages) {
      DirectStemConfig other = typed;
      other.units = halo + stages;
      return to_config(other);
    });
  }

 private:
  // What can be said without its configs.
  Support takes(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (Support support = needs_sm90(device); !support) return support;
    if (Support support = takes_tf32_nchw(a); !support) return support;
    if (a.groups != 1) return Support::no(fmt::format("it is for one group only, not {}", a.groups));
    if (a.stride_w != 4)
      return Support::no(fmt::format("it is for a stride of 4 columns only, not {}", a.stride_w));
    if (a.dilation_h != 1 || a.dilation_w != 1) return Support::no("it is for dense filters only");
    for (const std::int64_t extent :
         {a.n, a.c, a.h, a.w, a.k, a.r, a.s, a.stride_h, a.stride_w, a.pad_top, a.pad_left, a.p(), a.q()})
      if (extent > kMostExtent)
        return Support::no(fmt::format("an extent of {} is more than {}", extent, kMostExtent));
    constexpr std::int64_t kMostTaps = 8 * DirectStemSm90::kMostProducts;
    if (a.c > kMostTaps || a.r > kMostTaps || a.s > kMostTaps || a.c * a.r * a.s > kMostTaps)
      return Support::no(fmt::format("it is for few input channels: {}x{}x{} products a sum are more than {}",
                                     a.c, a.r, a.s, kMostTaps));
    return Support::yes();
  }

  Support takes_config(const Conv2dProblem& a, const DeviceInfo&, const Config& config) const override {
    const auto typed = from_config<DirectStemConfig>(config);
    if (Support support = within(config, 1, kMostExtent); !support) return support;
    const DirectStemSm90 kernel = with(kernel_of(a), typed);
    if (kernel.valid(sm90_smem_per_block())) return Support::yes();
    return Support::no(fmt::format(
        "{} is not one of its configs for this problem: consumers 2 or {}, units {} to {}, filters "
        "32, 64 or 96, at most {} bytes of shared memory (this: {})",
        to_string(config), DirectStemSm90::kMostConsumers, kernel.halo() + 2,
        kernel.halo() + DirectStemSm90::kMostUnitsBesideHalo, sm90_smem_per_block(), kernel.smem_bytes()));
  }

  std::unique_ptr<Executable> make(const Conv2dProblem& a, const DeviceInfo& device,
                                   const Config& config) const override {
    return std::make_unique<DirectStemExecutable>(direct_stem_sm90_kernel(a, config), device);
  }

  static std::string why_none(DirectStemSm90 kernel) {
    if (kernel.last_tile() < DirectStemSm90::kSector)
      return fmt::format("rows of {} outputs end with a tile of less than {}", kernel.q,
                         DirectStemSm90::kSector);
    kernel.consumers = 2, kernel.filters = 32;
    kernel.units = kernel.halo() + 2;
    return fmt::format(
        "{} products a tile and {} bytes of shared memory are the least that it needs here, and it has {} "
        "and {}",
        kernel.k_steps(), kernel.smem_bytes(), DirectStemSm90::kMostProducts, sm90_smem_per_block());
  }

  // Every valid one: three consumers and many units first.
  static std::vector<DirectStemConfig> configs_of(const Conv2dProblem& a) {
    const DirectStemSm90 kernel = kernel_of(a);
    std::vector<DirectStemConfig> configs;
    for (const int consumers : {3, 2})
      for (const int filters : {96, 64, 32})
        for (int units = kernel.halo() + DirectStemSm90::kMostUnitsBesideHalo; units >= kernel.halo() + 2;
             --units) {
          const DirectStemConfig config{consumers, units, filters};
          if (filters < kernel.k + 32 && with(kernel, config).valid(sm90_smem_per_block()))
            configs.push_back(config);
        }
    return configs;
  }
};

}  // namespace

CompileJob direct_stem_sm90_job(const DirectStemSm90& a, const std::string& arch) {
  const std::string config = fmt::format(
      "convtune::DirectStemSm90{{.n={},.c={},.h={},.w={},.k={},.r={},.s={},.stride_h={},.pad_top={},.pad_"
      "left={},"
      ".p={},.q={},.relu={},.consumers={},.units={},.filters={}}}",
      a.n, a.c, a.h, a.w, a.k, a.r, a.s, a.stride_h, a.pad_top, a.pad_left, a.p, a.q, a.relu, a.consumers,
      a.units, a.filters);
  return packing_job("direct_stem_sm90", config, arch);
}

DirectStemSm90 direct_stem_sm90_kernel(const Conv2dProblem& problem, const Config& config) {
  return with(kernel_of(problem), from_config<DirectStemConfig>(config));
}

const Algorithm& direct_stem_sm90() {
  static const DirectStem algorithm;
  return algorithm;
}

}  // namespace convtune::cuda
