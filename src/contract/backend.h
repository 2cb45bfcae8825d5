// Declares the interface of a backend to the folders above it: devices with memory and a stopwatch, and
// algorithms that refuse with a reason, list their configs, and build something that runs.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "contract/micro_tuning.h"
#include "contract/rows.h"
#include "convtune/ceilings.h"
#include "convtune/config.h"
#include "convtune/contest.h"
#include "convtune/device.h"
#include "convtune/error.h"
#include "convtune/problem.h"
#include "problem/config_fields.h"

namespace convtune {

// At most so much memory is used in turn by what measures, so that caches do not hold it: a virtual machine
// reports the cache of a whole server, of which it has a share.
constexpr std::int64_t kMostFlushedBytes = std::int64_t{256} << 20;

// One device of one backend. Shared by everything planned on it; thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const DeviceInfo& info() const = 0;

  // Device memory, 64-byte aligned at least, freed by the shared_ptr.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  // Either ends when the bytes are there.
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  // Queued on the stream; on a CPU done.
  virtual void move_rows(const Rows& rows, Stream stream);
  virtual void synchronize(Stream stream) = 0;
  // Single elements of a tensor on the device, by their offsets in elements; `element`: the bytes of one.
  virtual void fill_at(void* tensor, const std::vector<std::int64_t>& offsets,
                       const std::vector<unsigned char>& element);
  // Returns the bytes of the elements at `offsets`, one element after the other.
  virtual std::vector<unsigned char> read_at(const void* tensor, const std::vector<std::int64_t>& offsets,
                                             std::size_t element_bytes);

  // Microseconds that `work` takes on the device, started from a cold state as far as the device
  // needs that for an honest number (a GPU flushes its L2; for a CPU tensors that do not stay in the
  // caches are rotated, and `work` is called again where other processes took its threads' time).
  virtual double time_us(const std::function<void()>& work) = 0;
  // Witness of the threads for the last time that time_us() gave to this thread. A GPU's times have none.
  virtual Witness witness() const { return {}; }
  // Load of the machine, at this moment. Nothing for a GPU: its times have no part of it.
  virtual Load load() const { return {}; }
  // Clock drift: why the device's clock is lower at this moment than it could be, in words, where heat or its
  // power supply is the reason; empty where neither is or nobody can tell.
  virtual std::string clock_drift() { return {}; }
  virtual Ceilings measure_ceilings() = 0;
  // Precision that Precision::automatic stands for with f32 tensors on this backend.
  virtual Precision default_precision() const = 0;
};

// A kernel ready for one problem. Immutable: run() may be called by several threads at once.
// Owned by a Convolution, which checks pointers and batch 0 before it calls. Backward weights packs nothing:
// pack() is not called, and `packed` is null.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual std::size_t packed_bytes() const = 0;  // at least 1
  // Bytes of the device's memory that a run takes beside its tensors and packed weights; runs of one stream
  // share them. Nothing where nobody counts them: a CPU's threads keep what they need.
  virtual std::optional<std::size_t> workspace_bytes() const { return std::nullopt; }
  virtual void pack(const void* w, const void* bias, void* packed, Stream stream) const = 0;
  virtual void run(const Tensors& tensors, const void* packed, Stream stream) const = 0;
  // Tells whether the sum is rounded to the output's type before the epilogue, as a vendor's sequence of
  // kernels does that stores it: such an answer is judged by the oracle's of a rounded sum.
  virtual bool rounds_sum() const { return false; }
  // Tells whether sums of products of small integers come out exact. Where not, they are judged as real
  // numbers are.
  virtual bool exact_on_integers() const { return true; }
  // True where NaN and infinities are where the oracle has them, and denormal numbers count. Where not, it is
  // checked on other numbers alone.
  virtual bool keeps_special_numbers() const { return true; }
  // Called before the first run of a way that the planner chose, not of one that is measured or was named: a
  // way whose threads wait for each other may then go on with one thread where others take its processors.
  virtual void give_way() {}
  // Tells whether run() takes Tensors::dw_last.
  virtual bool can_lay_dw_last() const { return false; }
};

// A config as the last stage of a search sees it: its values of the two parameters that the stage may change.
struct StageView {
  StageParameters parameters;
  StageConfig config;
  // The config with other values of the two and the same grid and tiles. accepts() may say no to it.
  std::function<Config(const StageConfig&)> with;
  std::optional<WarpsAnswer> warps;  // R1's answer, where it does not follow from a GPU's occupancy
};

// One row of the table in algorithms.cpp. Stateless.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual std::string_view name() const = 0;
  virtual Device::Kind device_kind() const = 0;
  virtual bool vendor() const { return false; }       // the incumbent of every contest
  virtual std::string library() const { return {}; }  // a vendor's, with its version: "oneDNN 3.2.0"
  virtual bool reference() const { return false; }    // an oracle: right, slow, never a candidate to win

  virtual Support supports(const ConvProblem&, const DeviceInfo&) const = 0;
  // In words what it does beside its kernel, where that is something to know: conversions of layout.
  virtual std::string remark(const ConvProblem&) const { return {}; }
  // Returns the meaning of each field of a config.
  virtual std::vector<ConfigField> fields() const { return {}; }
  // Every valid config, most promising first: the first is the answer when nothing was measured.
  virtual std::vector<Config> candidates(const ConvProblem&, const DeviceInfo&) const = 0;
  // No config of this problem can take less time than this (microseconds), whatever the kernel's
  // quality: the work that it must do over the device's ceilings. 0 where nothing is known.
  virtual double bound_us(const ConvProblem&, const DeviceInfo&, const Config&, const Ceilings&) const {
    return 0;
  }
  // Returns the time by the model (microseconds): first guesses of several algorithms are compared
  // by it. Nothing where there is no model.
  virtual std::optional<double> estimated_us(const ConvProblem&, const DeviceInfo&, const Config&) const {
    return std::nullopt;
  }
  // Tells whether build() would take this config: records and command lines come from outside.
  virtual Support accepts(const ConvProblem&, const DeviceInfo&, const Config&) const = 0;
  // Tells whether build() compiles a kernel for this problem alone: half a second that is not always at hand.
  virtual bool compiles(const Config&) const { return device_kind() == Device::Kind::cuda && !vendor(); }
  // Compiles what build() would and leaves it in a cache, without touching the device: child processes do so
  // ahead of a trial. Throws as build() does.
  virtual void precompile(const ConvProblem&, const DeviceInfo&, const Config&) const {}
  virtual std::unique_ptr<Executable> build(const ConvProblem&, const DeviceInfo&, const Config&) const = 0;
  // The config must be one that accepts() takes. Nothing where an algorithm has no such parameters.
  virtual std::optional<StageView> stage_view(const ConvProblem&, const DeviceInfo&, const Config&) const {
    return std::nullopt;
  }
  // Changes when the code that build() compiles changes: a record of another hash is a miss.
  virtual std::string source_hash() const = 0;
};

}  // namespace convtune
