// Convolution: planned once for a problem, run many times.
//
//   auto problem = convtune::parse_problem("mb1ic3ih224oc96kh11sh4ph2");
//   auto conv = convtune::plan(problem);
//   auto weights = conv.pack(w, bias);   // once, and again when the weights change
//   conv.run({.x = x, .y = y}, weights);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convtune/config.h"
#include "convtune/device.h"
#include "convtune/problem.h"

namespace convtune {

// Names the origin of a plan, best first.
enum class PlanSource {
  tuned,     // measured on this device for this problem, just now or in a record of the user's
  unproven,  // the same, but the contest with the vendor is not decided, or left some of its ways out
  nearest,   // a record of this device for the nearest problem
  estimate,  // no record: of the algorithms' first guesses the one that a model finds fastest
  forced,    // the caller named algorithm and config
};
std::string_view to_string(PlanSource);

// Describes the chosen algorithm and config, and the reason. A value: printed, stored and compared as it
// stands.
struct Plan {
  std::string algorithm;
  Config config;
  PlanSource source = PlanSource::estimate;
  std::string why;  // one sentence
};

// Weights and bias in the order that one Convolution's kernel reads. Belongs to the Convolution
// that made it; cheap to copy (shared, never changed).
class PackedWeights {
 public:
  PackedWeights() = default;
  explicit operator bool() const { return data_ != nullptr; }

 private:
  friend class Convolution;
  std::shared_ptr<void> data_;
  const void* owner_ = nullptr;
};

// Returns the alignment in bytes that packed weights in the caller's memory need: cudaMalloc's own on a GPU.
constexpr std::size_t packed_alignment(Device::Kind kind) {
  return kind == Device::Kind::cuda ? 256 : 64;
}

// Immutable after plan(): copies share one executable, and any number of threads may run it. The last copy
// may go while work that it queued waits on a stream, but not while a CUDA graph that recorded it may be
// replayed. x, dx: n*c*d*h*w and y, dy: n*k*z*p*q elements in the problem's layout, the residual as many as y
// or, in backward data, dx; a result with snake=beside has twice as many, the Snakes behind the rest; w, dw:
// [K][C/groups][T][R][S]; bias: [problem().bias_elements()], dbias: [K], null when problem().bias is false.
// All need the alignment of their element type only, but a CPU stores y fastest where it begins at a multiple
// of 64 bytes (convtune/aligned.h); what is written must not overlap what is read, but for y (or dx) and a
// residual that are the same tensor. On a GPU the first run with a tensor that does not begin at a multiple
// of 16 bytes may compile a kernel for such: half a second, once, and Error{unsupported} where NVRTC is gone.
class Convolution {
 public:
  const ConvProblem& problem() const;  // precision resolved to the device's default
  const DeviceInfo& device() const;
  const Plan& plan() const;

  // Reads w and bias on `stream` and keeps a reordered copy; they may be freed once that work is done.
  PackedWeights pack(const void* w, const void* bias, Stream stream = nullptr) const;

  // Throws Error{invalid_argument} on a null pointer or on weights packed by another Convolution.
  // A batch of 0 returns at once (backward weights: with gradients of 0). Never tunes; allocates device
  // memory, if any, in the first call for a stream (of CU_STREAM_PER_THREAD: in each thread), and in the
  // first of each capture, whose graph has it until it and all that was instantiated of it are gone. Backward
  // weights reads no weights: PackedWeights() will do.
  void run(const Tensors& tensors, const PackedWeights& weights, Stream stream = nullptr) const;
  // pack, then run: for weights that change at every call.
  void run(const Tensors& tensors, const void* w, const void* bias, Stream stream = nullptr) const;

  // Packs and runs with packed weights in memory of the caller's, where another allocator owns the device:
  // packed_bytes() of it, aligned to packed_alignment(). The caller keeps it until the work that
  // reads it is done. Nobody can check whose weights they are; they serve any Convolution of this process
  // with an equal problem(), plan() and device(). Throws Error{invalid_argument} as run(), and for memory
  // that is not aligned.
  std::size_t packed_bytes() const;  // at least 1
  // Bytes that a run takes beside its tensors and packed weights, of memory that the runs of a stream share.
  // Nothing where nobody counts them: on a CPU, where threads keep what they need.
  std::optional<std::size_t> workspace_bytes() const;
  // Names the order of packed weights; "" where it is not known. Weights that were packed by another
  // Convolution of this process with the same name on the same device serve this one, too: those of one layer
  // on frames with a cache and without. "krsc": they are the filter, channels last, which may lie anywhere
  // that is aligned so.
  std::string packed_order() const;
  // Tells whether run() takes Tensors::dw_last: backward weights by kernels that store dw in either order.
  bool can_lay_dw_last() const;
  void pack_into(const void* w, const void* bias, void* packed, Stream stream = nullptr) const;
  void run_packed(const Tensors& tensors, const void* packed, Stream stream = nullptr) const;

  // A few lines: the problem, the plan, where it came from, what the other algorithms answered.
  std::string explain() const;
  // The fields of the plan's config, a line each: value, range and meaning.
  std::string explain_config() const;

 private:
  friend struct ConvolutionAccess;
  struct State;
  std::shared_ptr<const State> state_;
};

// Chooses from records and estimates; never measures. Throws Error for a bad problem or device.
Convolution plan(const ConvProblem& problem, Device device = best_device());

// Plans with the choice made by the caller. Throws Error{invalid_argument} for an unknown
// algorithm or config, Error{unsupported} with the algorithm's own reason. An empty config means
// the algorithm's first guess. kOurs chooses as plan() does among convtune's own algorithms, without the
// vendor's. kRecorded takes one of them that a record proves, kRecordedBatch one that a record of this batch
// does: both throw Error{unsupported} before anything is compiled where there is none. kAnyBatch chooses as
// plan() does, and compiles a kernel that can be had so for every batch up to the problem's: the config then
// ends with "most_images", and is a smaller batch's, too.
inline constexpr std::string_view kOurs = "ours", kRecorded = "recorded", kRecordedBatch = "recorded batch",
                                  kAnyBatch = "any batch";
Convolution plan(const ConvProblem& problem, Device device, const std::string& algorithm,
                 const Config& config = {});

// Every algorithm for this kind of device, in the order of the table.
std::vector<std::string> algorithm_names(Device::Kind kind);

// Each algorithm's answer for a problem, in the order of the table.
struct AlgorithmAnswer {
  std::string algorithm;
  bool vendor = false;  // the vendor's library: the incumbent of every contest
  bool chosen = false;
  bool supported = false;
  std::string reason;           // why chosen, or why it stepped aside
  Config config;                // its first guess, where it supports the problem
  std::int64_t candidates = 0;  // size of its search space for this problem
};
std::vector<AlgorithmAnswer> answers(const ConvProblem& problem, Device device = best_device());

}  // namespace convtune
