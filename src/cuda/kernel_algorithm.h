// What the algorithms with kernels of our own have in common: answers that are the same for all, refusals,
// the order of candidates, and an executable that packs its weights.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend.h"
#include "config.h"
#include "cuda/aligned_kernel.h"
#include "cuda/compiler.h"
#include "cuda/kernel.h"

namespace convtune::cuda {

// Named after its kernel's file, src/cuda/kernels/NAME.cuh.
class KernelAlgorithm : public Algorithm {
 public:
  explicit KernelAlgorithm(std::string name) : name_(std::move(name)) {}
  std::string_view name() const final { return name_; }
  Device::Kind device_kind() const final { return Device::Kind::cuda; }
  std::string source_hash() const final;
  std::optional<double> estimated_us(const Conv2dProblem&, const DeviceInfo&, const Config&) const final;
  Support accepts(const Conv2dProblem&, const DeviceInfo&, const Config&) const final;
  std::unique_ptr<Executable> build(const Conv2dProblem&, const DeviceInfo&, const Config&) const final;

 protected:
  // What can be said without its configs.
  virtual Support takes(const Conv2dProblem&, const DeviceInfo&) const = 0;
  // For a problem that it takes. May throw, as from_config() does of a config that is not its own.
  virtual Support takes_config(const Conv2dProblem&, const DeviceInfo&, const Config&) const = 0;
  // For a config that it accepts.
  virtual std::unique_ptr<Executable> make(const Conv2dProblem&, const DeviceInfo&, const Config&) const = 0;

 private:
  const std::string name_;
};

// Refusals that several of them share.
Support takes_f32(const Conv2dProblem& problem, Layout layout);
Support takes_tf32_nchw(const Conv2dProblem& problem);
Support needs_sm80(const DeviceInfo& device);                                 // or newer
Support needs_sm90(const DeviceInfo& device);                                 // and no other
Support within(const Config& config, std::int64_t least, std::int64_t most);  // every value of it

// Shared memory that a block may have where needs_sm90() is satisfied.
std::int64_t sm90_smem_per_block();

// A config and what an estimate says that it takes, in whatever unit.
template <class Typed>
struct Ranked {
  double cost;
  Typed config;
};
// The best, best first: at most so many, and none that is estimated at more than `hopeless` times the best.
// Those that are equal stay in their order.
template <class Typed>
std::vector<Typed> best_of(std::vector<Ranked<Typed>> ranked,
                           std::size_t most = std::numeric_limits<std::size_t>::max(),
                           double hopeless = std::numeric_limits<double>::max()) {
  std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked<Typed>& one, const Ranked<Typed>& other) {
    return one.cost < other.cost;
  });
  std::vector<Typed> best;
  for (const Ranked<Typed>& one : ranked)
    if (best.size() < most && one.cost <= hopeless * ranked.front().cost) best.push_back(one.config);
  return best;
}

template <class Typed>
std::vector<Config> to_configs(const std::vector<Typed>& typed) {
  std::vector<Config> configs;
  for (const Typed& one : typed) configs.push_back(to_config(one));
  return configs;
}

// Warps that only the kernel's own roles decide, and 2 to 8 stages.
StageView stages_alone(std::int64_t warps, std::int64_t stages,
                       std::function<Config(std::int64_t stages)> with_stages);

// The job of a kernel and of the one that packs its weights, NAME and pack_NAME in NAME.cuh. `config`: the
// argument of both templates, as C++ writes it.
CompileJob packing_job(const std::string& name, const std::string& config, const std::string& arch);

// The job of the same kernel for pointers of any alignment, for AlignedKernel; nothing where it would be the
// same.
template <class KernelConfig>
std::function<CompileJob()> job_for_any_pointer(KernelConfig kernel, const std::string& arch,
                                                CompileJob (*job)(const KernelConfig&, const std::string&)) {
  if (!kernel.asks_alignment()) return {};
  kernel.aligned = false;
  return [kernel, arch, job] { return job(kernel, arch); };
}

// The two of such a job. `KernelConfig` is that argument's type (src/cuda/kernels/NAME.h), whose flag_at() is
// where packing notes that a weight is not finite; `Word` is what the packing kernel takes for packed
// weights.
template <class KernelConfig, class Word = unsigned>
class PackingExecutable : public Executable {
 public:
  std::size_t packed_bytes() const final {
    return static_cast<std::size_t>(config_.packed_floats()) * sizeof(float);
  }
  void pack(const void* w, const void* bias, void* packed, Stream stream) const final {
    fill(device_, static_cast<float*>(packed) + config_.flag_at(), 0, 1, stream);
    constexpr unsigned kThreads = 256;
    const auto blocks = static_cast<unsigned>((config_.flag_at() + kThreads - 1) / kThreads);
    pack_.launch({blocks}, {kThreads}, 0, stream, static_cast<const float*>(w),
                 static_cast<const float*>(bias), static_cast<Word*>(packed));
  }

 protected:
  // `any`: the job of the same kernel for pointers that are aligned badly, where this one is not for them
  // (aligned_kernel.h).
  PackingExecutable(const KernelConfig& config, const DeviceInfo& device, const CompileJob& job,
                    std::function<CompileJob()> any = {})
      : PackingExecutable(config, device, job, compile(job), std::move(any)) {}
  PackingExecutable(const KernelConfig& config, const DeviceInfo& device, const CompileJob& job,
                    const CompiledModule& module, std::function<CompileJob()> any = {})
      : config_(config),
        device_(device.device.index),
        run_(device_, module, job.kernels[0], static_cast<std::size_t>(config.smem_bytes()), std::move(any)),
        pack_(device_, module, job.kernels[1]) {}

  template <class... Args>
  void launch(Extent3 grid, Stream stream, const Args&... args) const {
    run_.launch(grid, {static_cast<unsigned>(config_.threads())},
                static_cast<std::size_t>(config_.smem_bytes()), stream, args...);
  }

  const KernelConfig config_;
  const int device_;

 private:
  const AlignedKernel run_;
  const Kernel pack_;
};

}  // namespace convtune::cuda
