// A problem's tensors on a device, fenced with canaries: here an executable is run, judged against
// the double-precision oracle, and timed. Used by the tuner, compare() and verify().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "contract/backend.h"
#include "cpu/reference/oracle.h"
#include "measure/test_data.h"

namespace convtune {

// Says in which memory timed runs find their tensors. On a CPU the caches keep what is small enough, as the
// layer before leaves it there and the next one finds it; else, and on request, they come from memory.
enum class TimedFrom { caches, memory };
// Caches, where they keep a problem's tensors.
TimedFrom timed_from(const ConvProblem& problem, const DeviceInfo& device);

struct CheckResult {
  double max_error = 0;  // largest |y - oracle| over the root mean square of the oracle
  std::string failure;   // empty: right
};

// Largest error of a sum that rounding explains, over the sum of |x*w|: operands rounded to the problem's
// precision where their types are wider, sums in fp32 in any order (random-walk bound, 8 standard
// deviations).
double error_limit(const ConvProblem& problem);

// As many samples as the oracle computes in about a second of one processor, `most` at most and 64 at least:
// a gradient of the weights sums over every output of a video.
std::int64_t affordable_samples(const ConvProblem& problem, std::int64_t most);

class Testbed {
 public:
  // `samples`: how many elements of the result the oracle computes; 0 = all of them. Tensors that are to
  // come from memory have several sets, used in turns.
  Testbed(const ConvProblem& problem, Backend& backend, TestData data, std::uint64_t seed,
          std::int64_t samples, TimedFrom from = TimedFrom::caches);

  std::int64_t samples() const { return std::ssize(samples_); }
  std::int64_t elements() const { return result_.elements + result_.bias_elements; }  // for the result

  // Packs the weights for an executable, poisons the sampled elements of the result, runs, and looks: the
  // samples, then every canary. Never throws for a wrong answer.
  CheckResult check(const Executable& executable);

  // A packed executable, ready to be timed again and again.
  class Timed {
   public:
    double sample_us();  // one sample: one run, or the mean of as many as fill 50 us

   private:
    friend class Testbed;
    Testbed* bed_ = nullptr;
    const Executable* executable_ = nullptr;
    std::shared_ptr<void> packed_;
    std::int64_t repeats_ = 0;  // chosen at the first sample
  };
  Timed prepare(const Executable& executable);
  // A sample at each call; executable and testbed must outlive it.
  std::function<double()> sampler(const Executable& executable) {
    return [timed = prepare(executable)]() mutable { return timed.sample_us(); };
  }
  // Witness of the last sample.
  std::function<Witness()> witness() const {
    return [this] { return backend_.witness(); };
  }
  std::string clock_drift() { return backend_.clock_drift(); }

  // Has all tensors begin `behind` bytes behind a line of the cache from now on; at first they begin at one.
  void begin_tensors(std::size_t behind);

 private:
  // Device memory with kCanaryBytes of a known pattern on both sides.
  struct Fenced {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0, behind = 0;
    void* data() const;
  };
  Fenced fenced(std::size_t bytes);
  Fenced to_device(DType type, const std::vector<float>& values);
  void poison(const Fenced& result, DType type);
  bool intact(const Fenced& fenced) const;

  // The tensors of one run. What the problem has no use for is fenced memory of no size, which is checked
  // too.
  struct Set {
    Fenced x, cache, residual, dy, result, dbias;
    Tensors tensors;
  };
  Set make_set();
  void pack(const Executable& executable, void* packed) const;

  struct Sample {
    std::int64_t index;  // see cpu::oracle
    cpu::OracleValue oracle;
  };
  void choose_samples(std::uint64_t seed, std::int64_t samples);
  std::vector<float> read_samples(const Set& set);
  bool is_right(const Sample& sample, float got, const Executable& executable) const;

  ConvProblem problem_;
  Backend& backend_;
  TestData data_;
  cpu::ResultShape result_;
  TestTensors host_;
  Fenced w_, bias_;
  std::size_t behind_ = 0;
  std::vector<Set> sets_;  // used in turn
  std::size_t next_set_ = 0;
  std::vector<Sample> samples_;
  double oracle_rms_ = 0;
};

}  // namespace convtune
