// Base of the CPU's algorithms. Each says what differs, as data; everything that an Algorithm
// answers follows from that.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/backend.h"
#include "cpu/base/joined_frames.h"
#include "cpu/launch/frame_images.h"
#include "cpu/launch/parts_executable.h"
#include "cpu/launch/source_hashes.h"
#include "cpu/model/store_work.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/memory_plan.h"
#include "problem/config_fields.h"
#include "problem/rewrite.h"

namespace convtune::cpu {

// Refusals in words: of a processor without vectors that this build has code for; of vectors that the
// processor or this build has not; of a task whose working memory is too much.
Support has_code(const DeviceInfo& device);
Support has_vectors(int bits, const DeviceInfo& device);
Support has_memory(std::string_view task, const MemoryPlan& memory);

// The problems that an algorithm computes for a problem: it, with the cache's frames as x's and in two
// dimensions where it can be (problem/rewrite.h), or the forward parts of backward data, the largest first.
std::vector<ConvProblem> computed(const ConvProblem& problem);
// Cycles over all threads in which outputs of forward parts are copied to where they lie.
double spread_cycles(const ConvProblem& problem);

// An algorithm whose config is the struct `Typed`. Its functions are pure, and asked for 3-D problems that
// are 2-D ones in the same memory as those, and for those with a cache as if that were x's first frames
// (problem/rewrite.h). Unless it has frames, it is asked for other 3-D problems as images (frame_images.h).
template <class Typed>
struct CpuAlgorithmParts {
  std::string_view name;  // its folder's
  // Asked only on processors that this build has code for. Memory is not its matter.
  Support (*supports)(const ConvProblem&, const DeviceInfo&);
  // A thread's working memory, and the config that takes the least. It is asked for any problem that
  // `supports` takes, whose extents may be of any size.
  MemoryPlan (*memory)(const ConvProblem&, const Typed&);
  Typed (*smallest)(const ConvProblem&, const DeviceInfo&);
  // The rest are asked only for problems that it supports; all but `accepts`, which is asked for configs
  // whose vectors the processor has, only for configs that it accepts.
  Support (*accepts)(const ConvProblem&, const DeviceInfo&, const Typed&);
  std::vector<Typed> (*candidates)(const ConvProblem&, const DeviceInfo&);  // best first
  // An estimate of its time, in core cycles over all threads.
  double (*cycles)(const ConvProblem&, const DeviceInfo&, const Typed&);
  std::unique_ptr<Executable> (*executable)(const ConvProblem&, const DeviceInfo&, const Typed&);
  // The multiply-adds of f32 that its vectors issue, junk included; null where no bound is known.
  double (*multiply_adds)(const ConvProblem&, const Typed&) = nullptr;
  bool has_frames = false;  // a third dimension of its own
  // Tells whether of a problem that is images to all others `executable` takes the volumes. Null: of none.
  bool (*reads_frames)(const ConvProblem& volume) = nullptr;
};

class CpuAlgorithm : public Algorithm {
 public:
  // The working memory of a thread that runs a config which it accepts.
  virtual MemoryPlan memory(const ConvProblem& problem, const Config& config) const = 0;
};

template <class Typed>
class CpuAlgorithmOf : public CpuAlgorithm {
 public:
  explicit CpuAlgorithmOf(const CpuAlgorithmParts<Typed>& parts) : parts_(parts) {}
  std::string_view name() const final { return parts_.name; }
  Device::Kind device_kind() const final { return Device::Kind::cpu; }
  std::string source_hash() const final { return std::string(source_hash_of(parts_.name)); }
  std::vector<ConfigField> fields() const final { return config_fields<Typed>(); }

  Support supports(const ConvProblem& problem, const DeviceInfo& device) const final {
    const Support support = takes(problem, device);
    if (support && computed(problem).size() > 1 && candidates(problem, device).empty())
      return Support::no("no config of its largest part serves the others of this gradient");
    return support;
  }
  MemoryPlan memory(const ConvProblem& problem, const Config& config) const final {
    return memory_of(computed(problem).front(), from_config<Typed>(config));
  }
  std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& device) const final {
    if (!takes(problem, device)) return {};
    const std::vector<ConvProblem> all = computed(problem);
    std::vector<Typed> some = parts_.candidates(seen(all.front()), device);
    if (all.front() != seen(all.front()))
      std::erase_if(some, [&](const Typed& typed) { return !takes_config(all.front(), device, typed); });
    // Outputs that are copied from there stay in the caches.
    if constexpr (requires(Typed typed) { typed.stream; })
      if (spread_cycles(problem) > 0)
        std::ranges::stable_partition(some, [](const Typed& typed) { return typed.stream == 0; });
    for (std::size_t i = 1; i < all.size(); ++i)
      std::erase_if(some, [&](const Typed& typed) { return !takes_config(all[i], device, typed); });
    return to_configs(some);
  }
  Support accepts(const ConvProblem& problem, const DeviceInfo& device, const Config& config) const final {
    try {
      if (Support support = takes(problem, device); !support) return support;
      const auto typed = from_config<Typed>(config);
      if constexpr (requires { typed.vector_bits; })
        if (Support support = has_vectors(typed.vector_bits, device); !support) return support;
      Support support = Support::yes();
      for (const ConvProblem& one : computed(problem))
        if (support) support = takes_config(one, device, typed);
      return support;
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }
  // Counts at the measured peak, or at half or a quarter of it with narrower vectors than the processor has.
  double bound_us(const ConvProblem& problem, const DeviceInfo& device, const Config& config,
                  const Ceilings& ceilings) const final {
    if (!parts_.multiply_adds) return 0;
    const auto typed = from_config<Typed>(config);
    double share = 1;
    if constexpr (requires { typed.vector_bits; })
      share = static_cast<double>(typed.vector_bits) / widest_vector_bits(device);
    double multiply_adds = 0;
    for (const ConvProblem& one : computed(problem)) multiply_adds += parts_.multiply_adds(seen(one), typed);
    return 2e6 * multiply_adds / (ceilings.flops_per_second * share);
  }
  std::optional<double> estimated_us(const ConvProblem& problem, const DeviceInfo& device,
                                     const Config& config) const final {
    const auto typed = from_config<Typed>(config);
    int bits = widest_vector_bits(device);
    if constexpr (requires { typed.vector_bits; }) bits = typed.vector_bits;
    double cycles = spread_cycles(problem);
    for (const ConvProblem& one : computed(problem))
      cycles += parts_.cycles(seen(one), device, typed) + activation_cycles(one, bits) + images_cycles(one);
    // Only the ratios of cycles over all threads count, and a clock of 3 GHz is near any processor's.
    return cycles / (3000.0 * device.units);
  }
  std::unique_ptr<Executable> build(const ConvProblem& problem, const DeviceInfo& device,
                                    const Config& config) const final {
    if (const Support support = accepts(problem, device, config); !support)
      throw Error(ErrorKind::unsupported,
                  std::string(name()) + " cannot run with '" + to_string(config) + "': " + support.reason());
    const auto typed = from_config<Typed>(config);
    const std::vector<ConvProblem> all = computed(problem);
    if (problem.direction != Direction::backward_data)
      return joining_frames(problem, executable_of(all.front(), device, typed));
    std::vector<ForwardPart> parts = parts_of(problem);
    std::vector<BuiltPart> built;
    for (std::size_t i = 0; i < parts.size(); ++i)
      built.push_back({std::move(parts[i]), executable_of(all[i], device, typed)});
    return parts_executable(problem, std::move(built), device.units);
  }

 private:
  // Checks that do not depend on the config.
  Support takes(const ConvProblem& problem, const DeviceInfo& device) const {
    Support support = has_code(device);
    for (const ConvProblem& one : computed(problem)) {
      if (support) support = parts_.supports(seen(one), device);
      if (support)
        support = has_memory("the smallest task", memory_of(one, parts_.smallest(seen(one), device)));
    }
    return support;
  }
  Support takes_config(const ConvProblem& one, const DeviceInfo& device, const Typed& typed) const {
    const Support support = parts_.accepts(seen(one), device, typed);
    return support ? has_memory("a task", memory_of(one, typed)) : support;
  }

  // A problem as the algorithm sees it, what that takes, and its executable.
  ConvProblem seen(const ConvProblem& one) const { return parts_.has_frames ? one : frame_images(one); }
  MemoryPlan memory_of(const ConvProblem& one, const Typed& typed) const {
    MemoryPlan memory = parts_.memory(parts_.has_frames ? one : built_images(one), typed);
    if (!reads_frames(one)) take_frame_images(one, memory);
    return memory;
  }
  bool reads_frames(const ConvProblem& one) const {
    return parts_.has_frames || (parts_.reads_frames && are_gathered(one) && parts_.reads_frames(one));
  }
  double images_cycles(const ConvProblem& one) const {
    return reads_frames(one) ? 0 : frame_image_cycles(one);
  }
  std::unique_ptr<Executable> executable_of(const ConvProblem& one, const DeviceInfo& device,
                                            const Typed& typed) const {
    if (reads_frames(one)) return parts_.executable(one, device, typed);
    const auto make = [&](const ConvProblem& images, int threads) {
      DeviceInfo some = device;
      some.units = threads;
      return parts_.executable(images, some, typed);
    };
    return frame_images_executable(one, make, device.units);
  }

  const CpuAlgorithmParts<Typed> parts_;
};

}  // namespace convtune::cpu
