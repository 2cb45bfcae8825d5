// `implicit_gemm_sm80`: any problem on tensor cores of compute capability 8.0 and up
// (kernels/implicit_gemm_sm80.cuh). Its search space, and what runs. Where `specialized` is 0 the kernel
// serves every problem of its layout: compiled once, it answers at once.
#include "cuda/implicit_gemm_sm80.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "config.h"
#include "cuda/aligned_kernel.h"
#include "cuda/compiler.h"
#include "cuda/cuda.h"
#include "cuda/driver.h"
#include "cuda/extents.h"
#include "cuda/kernel_algorithm.h"
#include "cuda/rehearsal.h"
#include "target.h"

namespace convtune::cuda {
namespace {

struct ImplicitGemmConfig {
  std::int64_t block_m = 64, block_n = 128, block_k = 16, warps_m = 1, warps_n = 4, stages = 4;
  std::int64_t chunked = 0, specialized = 1;
  template <class Self, class F>
  static void visit(Self& self, F&& field) {
    field("block_m", self.block_m);
    field("block_n", self.block_n);
    field("block_k", self.block_k);
    field("warps_m", self.warps_m);
    field("warps_n", self.warps_n);
    field("stages", self.stages);
    field("chunked", self.chunked);
    field("specialized", self.specialized);
  }
};

// A block's tile and the warps that share it.
struct Shape {
  int block_m, block_n, warps_m, warps_n;
};
// The last: for problems whose kernel is not compiled for them.
constexpr Shape kShapes[] = {
    {128, 256, 2, 4}, {256, 128, 4, 2}, {192, 128, 4, 2}, {128, 128, 2, 4}, {128, 128, 2, 2}, {96, 256, 2, 4},
    {96, 128, 2, 4},  {96, 128, 2, 2},  {64, 256, 2, 4},  {64, 256, 1, 4},  {64, 128, 2, 4},  {64, 128, 1, 4},
    {64, 128, 2, 2},  {128, 64, 4, 2},  {128, 64, 2, 2},  {64, 64, 2, 2},   {48, 128, 1, 4},  {48, 256, 1, 8},
    {32, 256, 1, 8},  {32, 256, 1, 4},  {32, 128, 1, 4},  {64, 32, 4, 1},   {32, 64, 2, 2},   {16, 128, 1, 4},
    {16, 256, 1, 8},  {16, 64, 1, 2}};
constexpr Shape kGeneralShapes[] = {{128, 128, 2, 4}, {96, 128, 2, 4}, {64, 128, 2, 4}, {64, 64, 2, 2},
                                    {32, 128, 1, 4},  {32, 64, 2, 2},  {16, 128, 1, 4}};

Multiply multiply_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return Multiply::fp32;
    case Precision::fp16:
      return Multiply::f16;
    case Precision::bf16:
      return Multiply::bf16;
    default:
      return Multiply::tf32;
  }
}

const char* to_cuda(Multiply multiply) {
  switch (multiply) {
    case Multiply::fp32:
      return "convtune::Multiply::fp32";
    case Multiply::f16:
      return "convtune::Multiply::f16";
    case Multiply::bf16:
      return "convtune::Multiply::bf16";
    default:
      return "convtune::Multiply::tf32";
  }
}

ImplicitGemmSm80 with(const Conv2dProblem& a, const ImplicitGemmConfig& config) {
  const auto small = [](std::int64_t value) { return static_cast<int>(value); };
  return {.problem = extents_of(a),
          .multiply = multiply_of(a.precision),
          .block_m = small(config.block_m),
          .block_n = small(config.block_n),
          .block_k = small(config.block_k),
          .warps_m = small(config.warps_m),
          .warps_n = small(config.warps_n),
          .stages = small(config.stages),
          .chunked = config.chunked != 0,
          .specialized = config.specialized != 0};
}

// Blocks that a multiprocessor holds at once, by registers and shared memory.
int resident_blocks(const ImplicitGemmSm80& kernel, const Target& target) {
  const std::int64_t by_smem = target.smem_per_multiprocessor / (kernel.smem_bytes() + target.smem_reserved);
  return static_cast<int>(std::clamp<std::int64_t>(by_smem, 1, kernel.blocks_per_unit()));
}

// Clock cycles of the busiest multiprocessor, roughly: of products, shared memory, copies and the L2 the
// slowest and a part of the others, for every block of terms; then what a block begins and ends with.
double estimated_cycles(const ImplicitGemmSm80& kernel, const Target& target) {
  constexpr double kMultiplyAddsACycle = 640, kSmemBytesACycle = 128, kL2BytesACycle = 22;
  constexpr double kOverlap = 0.2, kBarrier = 40, kStart = 1500, kStoredBytesACycle = 12;
  const Conv2dExtents& a = kernel.problem;
  const double m = kernel.block_m, n = kernel.block_n, k = kernel.block_k;
  const double speed = kernel.is_half() ? 2 : kernel.multiply == Multiply::fp32 ? 0.3 : 1;
  const double weight_bytes = 4.0 * kernel.weight_words(), input_bytes = n * k * 4;
  const double products = m * n * k / kMultiplyAddsACycle / speed;
  const double smem =
      (weight_bytes * (1 + kernel.warps_n) + input_bytes * (1 + kernel.warps_m)) / kSmemBytesACycle;
  const bool wide = a.nhwc ? kernel.chunked && a.c % 4 == 0 && a.group_channels() % 4 == 0
                           : kernel.chunked && a.r * a.s * a.stride_h * a.stride_w == 1 &&
                                 static_cast<long long>(a.p) * a.q % 4 == 0;
  const double copies = n * k / 32 * (wide ? 2 : kernel.chunked ? 4.5 : 8) + weight_bytes / 64;
  const double reuse = kernel.chunked && a.r * a.s > 1 ? 0.5 : 1;  // of what is in L1
  const double l2 = (weight_bytes + reuse * input_bytes) / kL2BytesACycle;
  const int resident = resident_blocks(kernel, target);
  const double blocks = std::ceil(static_cast<double>(kernel.blocks(a)) / target.multiprocessors);  // each
  const double together = std::min<double>(resident, blocks);
  const double slowest = std::max({products, smem, copies, l2});
  const double step = slowest + kOverlap * (products + smem + copies + l2 - slowest) + kBarrier / together;
  // Copies through L1 need lines of it while they are on their way, and shared memory leaves it few.
  const double used = together * kernel.smem_bytes() / static_cast<double>(target.smem_per_block);
  const double small_l1 = 1 + 0.5 * std::max(0.0, used - 0.6);
  const double few_warps = 1 + 0.6 * std::max(0.0, 1 - together * kernel.threads() / 256);
  const double ends =
      (kStart + m * n * 4 / kStoredBytesACycle * 0.5) / together + m * n * 4 / kStoredBytesACycle * 0.5;
  return blocks * (kernel.k_blocks(a) * step * few_warps * small_l1 + ends);
}

// Loaded once in a process and device where it serves every problem, else once a plan.
struct Kernels {
  Kernels(const ImplicitGemmSm80& kernel, const DeviceInfo& device, const CompileJob& job,
          const CompiledModule& module)
      : run(device.device.index, module, job.kernels[0], static_cast<std::size_t>(kernel.smem_bytes()),
            job_for_any_pointer(kernel, device.isa, implicit_gemm_sm80_job)),
        pack(device.device.index, module, job.kernels[1]) {}
  AlignedKernel run;
  Kernel pack;
};
std::shared_ptr<const Kernels> load(const ImplicitGemmSm80& kernel, const DeviceInfo& device) {
  const auto compile_and_load = [&](const CompileJob& job) {
    return std::make_shared<const Kernels>(kernel, device, job, compile(job));
  };
  const CompileJob job = implicit_gemm_sm80_job(kernel, device.isa);
  if (kernel.specialized || Rehearsal::current()) return compile_and_load(job);  // not for others to find
  struct Slot {
    std::mutex mutex;
    std::shared_ptr<const Kernels> kernels;
  };
  static std::mutex mutex;
  static auto& slots = *new std::map<std::string, Slot>;  // never destroyed: at exit the driver may be gone
  Slot* slot = nullptr;
  {
    const std::lock_guard lock(mutex);
    slot = &slots[fmt::format("{} {}", device.device.index, job.kernels[0])];
  }
  const std::lock_guard lock(slot->mutex);  // others compile meanwhile
  if (!slot->kernels) slot->kernels = compile_and_load(job);
  return slot->kernels;
}

class ImplicitGemmExecutable final : public Executable {
 public:
  ImplicitGemmExecutable(const ImplicitGemmSm80& kernel, const DeviceInfo& device)
      : kernel_(kernel), kernels_(load(kernel, device)) {}

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(kernel_.packed_words(kernel_.problem)) * 4;
  }

  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    constexpr unsigned kThreads = 256;
    const auto blocks =
        static_cast<unsigned>((kernel_.packed_words(kernel_.problem) + kThreads - 1) / kThreads);
    kernels_->pack.launch({blocks}, {kThreads}, 0, stream, static_cast<const float*>(w),
                          static_cast<const float*>(bias), static_cast<unsigned*>(packed), kernel_.problem);
  }

  void run(const void* x, const void* packed, void* y, Stream stream) const override {
    kernels_->run.launch({static_cast<unsigned>(kernel_.blocks(kernel_.problem))},
                         {static_cast<unsigned>(kernel_.threads())},
                         static_cast<std::size_t>(kernel_.smem_bytes()), stream, static_cast<const float*>(x),
                         static_cast<const unsigned*>(packed), static_cast<float*>(y), kernel_.problem);
  }

 private:
  const ImplicitGemmSm80 kernel_;
  const std::shared_ptr<const Kernels> kernels_;
};

class ImplicitGemm final : public KernelAlgorithm {
 public:
  ImplicitGemm() : KernelAlgorithm("implicit_gemm_sm80") {}

  Support supports(const Conv2dProblem& a, const DeviceInfo& device) const override {
    return takes(a, device);
  }

  std::vector<Config> candidates(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (!supports(a, device)) return {};
    std::vector<Config> configs;
    const Target target = target_of(device);
    for (const ImplicitGemmConfig& config : ranked(a, target, true)) configs.push_back(to_config(config));
    for (const ImplicitGemmConfig& config : ranked(a, target, false)) configs.push_back(to_config(config));
    return configs;
  }

  double bound_us(const Conv2dProblem& a, const DeviceInfo&, const Config& config,
                  const Ceilings& ceilings) const override {
    const ImplicitGemmSm80 kernel = with(a, from_config<ImplicitGemmConfig>(config));
    const Conv2dExtents& e = kernel.problem;
    const double flops = 2.0 * static_cast<double>(kernel.blocks(e)) * kernel.block_m * kernel.block_n *
                         kernel.k_blocks(e) * kernel.block_k;
    const double speed = kernel.is_half() ? 2 : kernel.multiply == Multiply::fp32 ? 1.0 / 3 : 1;
    return 1e6 * std::max(flops / (speed * ceilings.flops_per_second), a.bytes() / ceilings.bytes_per_second);
  }

  bool compiles(const Config& config) const override { return config.at("specialized") != 0; }

  // Twice the warps share the same tile along its warps' longer side.
  std::optional<StageView> stage_view(const Conv2dProblem&, const DeviceInfo&,
                                      const Config& config) const override {
    const auto typed = from_config<ImplicitGemmConfig>(config);
    StageView view;
    view.parameters.warps_name = "warps", view.parameters.stages_name = "stages";
    view.parameters.stages = {2, 3, 4, 5, 6, 7, 8};
    view.config = {typed.warps_m * typed.warps_n, typed.stages};
    view.with = [typed](const StageConfig& wanted) {
      ImplicitGemmConfig other = typed;
      other.stages = wanted.stages;
      if (wanted.warps == 2 * typed.warps_m * typed.warps_n) {
        const bool along_m = typed.block_m / typed.warps_m >= typed.block_n / typed.warps_n &&
                             typed.block_m % (32 * typed.warps_m) == 0;
        (along_m ? other.warps_m : other.warps_n) *= 2;
      }
      return to_config(other);
    };
    return view;
  }

 private:
  Support takes(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (Support support = needs_sm80(device); !support) return support;
    if (a.dtype != DType::f32) return Support::no("it is for f32 tensors only");
    if (Support support = fits_extents(a); !support) return support;
    if (!with(a, {}).fits(extents_of(a)))
      return Support::no(
          "its sums have too many terms, or its output is too large, to be counted in 31 bits");
    return Support::yes();
  }

  Support takes_config(const Conv2dProblem& a, const DeviceInfo& device,
                       const Config& config) const override {
    const auto typed = from_config<ImplicitGemmConfig>(config);
    for (const auto& [name, value] : config.values) {
      const bool flag = name == "chunked" || name == "specialized";
      if (value < (flag ? 0 : 1) || value > (flag ? 1 : 256))
        return Support::no(fmt::format("{} must be {}, not {}", name, flag ? "0 or 1" : "1 to 256", value));
    }
    const ImplicitGemmSm80 kernel = with(a, typed);
    const std::int64_t most_smem_bytes = target_of(device).smem_per_block;
    if (!kernel.valid(most_smem_bytes))
      return Support::no(
          fmt::format("{} is none of its configs: block_n 32, 64, 128 or 256; block_k 16 or 32; 2 to 8 "
                      "warps, powers of "
                      "2, each with a multiple of 16 x 32 of the tile and at most {} registers of sums "
                      "(this: {}); 2 to "
                      "{} stages in {} bytes of shared memory (this: {})",
                      to_string(config), ImplicitGemmSm80::kMostSums, kernel.sums(),
                      ImplicitGemmSm80::kMostStages, most_smem_bytes, kernel.smem_bytes()));
    if (!kernel.fits(kernel.problem))
      return Support::no("with this tile its blocks are too many to be counted in 31 bits");
    return Support::yes();
  }

  std::unique_ptr<Executable> make(const Conv2dProblem& a, const DeviceInfo& device,
                                   const Config& config) const override {
    return std::make_unique<ImplicitGemmExecutable>(with(a, from_config<ImplicitGemmConfig>(config)), device);
  }

  // The configs that make sense, best estimate first: those that need no more than twice the best's.
  static std::vector<ImplicitGemmConfig> ranked(const Conv2dProblem& a, const Target& target,
                                                bool specialized) {
    constexpr double kHopeless = 2;
    constexpr std::size_t kMostCandidates = 64;
    std::vector<Ranked<ImplicitGemmConfig>> all;
    const auto add = [&](const Shape& shape, int block_k, int stages, bool chunked) {
      if (shape.block_m > 16 && shape.block_m / 2 >= a.k / a.groups) return;  // half of it or more is idle
      const ImplicitGemmConfig config{shape.block_m, shape.block_n, block_k, shape.warps_m,
                                      shape.warps_n, stages,        chunked, specialized};
      const ImplicitGemmSm80 kernel = with(a, config);
      if (!kernel.valid(target.smem_per_block) || !kernel.fits(kernel.problem)) return;
      all.push_back({estimated_cycles(kernel, target), config});
    };
    for (const bool chunked : {true, false}) {
      if (!specialized)
        for (const Shape& shape : kGeneralShapes) add(shape, 16, 3, chunked);
      else
        for (const Shape& shape : kShapes)
          for (const int block_k : {16, 32})
            for (const int stages : {3, 4}) add(shape, block_k, stages, chunked);
    }
    return best_of(std::move(all), kMostCandidates, kHopeless);
  }
};

}  // namespace

CompileJob implicit_gemm_sm80_job(const ImplicitGemmSm80& a, const std::string& arch) {
  const Conv2dExtents problem = a.specialized ? a.problem : Conv2dExtents{.nhwc = a.problem.nhwc};
  const std::string config = fmt::format(
      "convtune::ImplicitGemmSm80{{.problem={},.multiply={},.block_m={},.block_n={},.block_k={},.warps_m={},"
      ".warps_n={},.stages={},.chunked={},.specialized={},.aligned={}}}",
      to_cuda(problem), to_cuda(a.multiply), a.block_m, a.block_n, a.block_k, a.warps_m, a.warps_n, a.stages,
      a.chunked, a.specialized, a.aligned);
  return packing_job("implicit_gemm_sm80", config, arch);
}

ImplicitGemmSm80 implicit_gemm_sm80_kernel(const Conv2dProblem& problem, const Config& config) {
  return with(problem, from_config<ImplicitGemmConfig>(config));
}

const Algorithm& implicit_gemm_sm80() {
  static const ImplicitGemm algorithm;
  return algorithm;
}

}  // namespace convtune::cuda
