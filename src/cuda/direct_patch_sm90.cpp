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
#include "cuda/forecast.h"
#include "cuda/kernel.h"
#include "cuda/tensor_map.h"

namespace convtune::cuda {
namespace {

constexpr const char* kFile = "direct_patch_sm90.cuh";
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

class DirectPatchExecutable final : public Executable {
 public:
  DirectPatchExecutable(const DirectPatchSm90& kernel, const DeviceInfo& device, const CompileJob& job)
      : DirectPatchExecutable(kernel, device, job, compile(job)) {}

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(config_.packed_floats()) * sizeof(float);
  }

  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    fill(device_, static_cast<float*>(packed) + config_.flag_at(), 0, 1, stream);
    constexpr unsigned kThreads = 256;
    const auto blocks = static_cast<unsigned>((config_.flag_at() + kThreads - 1) / kThreads);
    pack_.launch({blocks}, {kThreads}, 0, stream, static_cast<const float*>(w),
                 static_cast<const float*>(bias), static_cast<unsigned*>(packed));
  }

  void run(const void* x, const void* packed, void* y, Stream stream) const override {
    DirectPatchSm90Maps maps;
    const int input_boxes = make_input(maps, x), output_boxes = make_output(maps, y);
    run_.launch({blocks_}, {static_cast<unsigned>(config_.threads())},
                static_cast<std::size_t>(config_.smem_bytes()), stream, maps, input_boxes, output_boxes,
                static_cast<const float*>(x), static_cast<const float*>(packed), static_cast<float*>(y));
  }

 private:
  DirectPatchExecutable(const DirectPatchSm90& kernel, const DeviceInfo& device, const CompileJob& job,
                        const CompiledModule& module)
      : config_(kernel),
        device_(device.device.index),
        blocks_(static_cast<unsigned>(blocks_of(kernel, device.units))),
        run_(device_, module, job.kernels[0], static_cast<std::size_t>(kernel.smem_bytes())),
        pack_(device_, module, job.kernels[1]) {}

  // As the kernel has them (kernels/direct_patch_sm90.cuh).
  struct DirectPatchSm90Maps {
    std::array<TensorMap, DirectPatchSm90::kInputBoxes> x;
    TensorMap y;
    friend std::string to_cuda(const DirectPatchSm90Maps& maps) {
      std::string x;
      for (const TensorMap& map : maps.x) x += (x.empty() ? "" : ", ") + to_cuda(map);
      return fmt::format("convtune::DirectPatchSm90Maps{{{{{}}}, {}}}", x, to_cuda(maps.y));
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

  const DirectPatchSm90 config_;
  const int device_;
  const unsigned blocks_;
  const Kernel run_, pack_;
};

class DirectPatch final : public Algorithm {
 public:
  std::string_view name() const override { return "direct_patch_sm90"; }
  Device::Kind device_kind() const override { return Device::Kind::cuda; }

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
    std::vector<Config> configs;
    for (const DirectPatchConfig& config : configs_of(extents_of(a), device.units))
      configs.push_back(to_config(config));
    return configs;
  }

  double bound_us(const Conv2dProblem& a, const DeviceInfo&, const Config& config,
                  const Ceilings& ceilings) const override {
    const DirectPatchSm90 kernel = with(extents_of(a), from_config<DirectPatchConfig>(config));
    const double flops = 2.0 * static_cast<double>(kernel.position_tiles()) * kernel.block_positions() *
                         kernel.filter_blocks() * kernel.filters * kernel.conv.taps();
    return 1e6 * std::max(flops / ceilings.flops_per_second, a.bytes() / ceilings.bytes_per_second);
  }

  std::optional<double> estimated_us(const Conv2dProblem& a, const DeviceInfo& device,
                                     const Config& config) const override {
    return forecast_us(name(), a, device, config);
  }

  Support accepts(const Conv2dProblem& a, const DeviceInfo& device, const Config& config) const override {
    if (Support support = takes(a, device); !support) return support;
    try {
      const auto typed = from_config<DirectPatchConfig>(config);
      constexpr std::int64_t kMost = 1 << 20;
      for (const auto& [name, value] : config.values)
        if (value < 1 || value > kMost)
          return Support::no(fmt::format("{} must be 1 to {}, not {}", name, kMost, value));
      if (with(extents_of(a), typed).valid()) return Support::yes();
      return Support::no(fmt::format(
          "{} is not one of its configs for this problem: consumers 1 to 3, filters a multiple of 32 up to "
          "256 (192 with 3 consumers), rows that divide {} with at most {} numbers of a sum, a multiple of "
          "16, stages 2 to {}, and {} bytes of "
          "shared memory",
          to_string(config), a.r, DirectPatchSm90::kMostStageNumbers, DirectPatchSm90::kMostStages,
          DirectPatchSm90::kMostSmemBytes));
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }

  std::unique_ptr<Executable> build(const Conv2dProblem& a, const DeviceInfo& device,
                                    const Config& config) const override {
    if (const Support support = accepts(a, device, config); !support)
      throw Error(ErrorKind::unsupported, "direct_patch_sm90 cannot run this problem: " + support.reason());
    const DirectPatchSm90 kernel = direct_patch_sm90_kernel(a, config);
    return std::make_unique<DirectPatchExecutable>(kernel, device, direct_patch_sm90_job(kernel, device.isa));
  }

  std::optional<StageView> stage_view(const Conv2dProblem& a, const DeviceInfo&,
                                      const Config& config) const override {
    const auto typed = from_config<DirectPatchConfig>(config);
    StageView view;
    view.parameters.warps_name = "warps", view.parameters.stages_name = "stages";
    view.parameters.stages = {2, 3, 4, 5, 6, 7, 8};
    view.config = {with(extents_of(a), typed).threads() / 32, typed.stages};
    view.with = [typed](const StageConfig& wanted) {
      DirectPatchConfig other = typed;
      other.stages = wanted.stages;
      return to_config(other);
    };
    view.warps = {{},
                  fmt::format("warps stays {}: each warpgroup has positions or a role of its own, and a "
                              "block has a multiprocessor for itself",
                              view.config.warps)};
    return view;
  }

  std::string source_hash() const override { return kernel_source_hash(kFile); }

 private:
  // What can be said without its configs.
  static Support takes(const Conv2dProblem& a, const DeviceInfo& device) {
    if (device.isa != "sm_90a")
      return Support::no(fmt::format("it needs compute capability 9.0, and this is {}", device.isa));
    if (a.dtype != DType::f32) return Support::no("it is for f32 tensors only");
    if (a.layout != Layout::nchw) return Support::no("it is for NCHW only");
    if (a.precision == Precision::fp32)
      return Support::no("it multiplies in tf32, which is less than fp32 asks for");
    if (Support support = fits_extents(a); !support) return support;
    if (!DirectPatchSm90::takes(extents_of(a)))
      return Support::no(
          "it is for patches only: filters as wide and high as their stride, dense, with no padding and one "
          "group; 4, 8 or a multiple of 16 columns, in rows of a multiple of 32");
    return Support::yes();
  }

  // The best valid ones by the estimate, each with as many stages as there is room for.
  static std::vector<DirectPatchConfig> configs_of(const Conv2dExtents& extents, int multiprocessors) {
    struct Ranked {
      double cycles;
      DirectPatchConfig config;
    };
    std::vector<Ranked> ranked;
    for (const int consumers : {3, 2, 1})
      for (int filters = 256; filters >= 32; filters -= 32)
        for (const int rows : {1, 2, 4, 8, 16}) {
          if (filters >= extents.k + 32) continue;
          for (int stages = DirectPatchSm90::kMostStages; stages >= 2; --stages) {
            const DirectPatchConfig config{consumers, filters, rows, stages};
            const DirectPatchSm90 kernel = with(extents, config);
            if (!kernel.valid()) continue;
            ranked.push_back({estimated_cycles(kernel, multiprocessors), config});
            break;
          }
        }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const Ranked& one, const Ranked& other) { return one.cycles < other.cycles; });
    if (ranked.size() > kMostCandidates) ranked.resize(kMostCandidates);
    std::vector<DirectPatchConfig> configs;
    for (const Ranked& one : ranked) configs.push_back(one.config);
    return configs;
  }
};

}  // namespace

CompileJob direct_patch_sm90_job(const DirectPatchSm90& a, const std::string& arch) {
  const std::string config =
      fmt::format("convtune::DirectPatchSm90{{.conv={},.consumers={},.filters={},.rows={},.stages={}}}",
                  to_cuda(a.conv), a.consumers, a.filters, a.rows, a.stages);
  CompileJob job = kernel_job(kFile, fmt::format("convtune::direct_patch_sm90<{}>", config), arch);
  job.kernels.push_back(fmt::format("convtune::pack_direct_patch_sm90<{}>", config));
  return job;
}

DirectPatchSm90 direct_patch_sm90_kernel(const Conv2dProblem& problem, const Config& config) {
  return with(extents_of(problem), from_config<DirectPatchConfig>(config));
}

const Algorithm& direct_patch_sm90() {
  static const DirectPatch algorithm;
  return algorithm;
}

}  // namespace convtune::cuda
