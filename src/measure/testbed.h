// A problem's tensors on a device, fenced with canaries: here an executable is run, judged against
// the double-precision oracle, and timed. Used by the tuner, compare() and verify().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "contract/backend.h"

namespace convtune {

// Real: uniform in [-1, 1), never zeros, for timing and rounding errors.
// Integer: small integers, so that every sum is exact in every precision and must match bit by bit.
enum class TestData { real, integer };

struct CheckResult {
  double max_error = 0;  // largest |y - oracle| over the root mean square of the oracle
  std::string failure;   // empty: right
};

// Largest |y - oracle| that rounding explains, over the sum of |x*w|: operands rounded to
// `precision`, sums of `terms` in fp32 in any order (random-walk bound, 8 standard deviations).
double error_limit(Precision precision, std::int64_t terms);

class Testbed {
 public:
  // `samples`: how many output elements the oracle computes; 0 = all of them. Rotated sets of input
  // and output are made so that repeated runs do not find them in the caches of a CPU.
  Testbed(const Conv2dProblem& problem, Backend& backend, TestData data, std::uint64_t seed,
          std::int64_t samples);

  // Packs the weights for an executable, poisons the sampled outputs, runs, and looks: the samples,
  // then every canary. Never throws for a wrong answer.
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
  // Why the device is slower now than it could be; empty where it is not.
  std::string slowdown() { return backend_.slowdown(); }

 private:
  // Device memory with kCanaryBytes of a known pattern on both sides.
  struct Fenced {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0;
    void* data() const;
  };
  Fenced fenced(std::size_t bytes);
  void poison(const Fenced& output);
  bool intact(const Fenced& fenced) const;
  struct Sample {
    std::int64_t n, k, p, q;
    double value, magnitude;
  };
  std::int64_t output_offset(const Sample& sample) const;
  void choose_samples(std::uint64_t seed, std::int64_t samples);
  std::string locate(const Sample& sample, float got) const;

  Conv2dProblem problem_;
  Backend& backend_;
  TestData data_;
  std::vector<float> x_host_, w_host_, bias_host_;
  Fenced w_, bias_;
  std::vector<Fenced> x_, y_;  // rotated sets
  std::size_t next_set_ = 0;
  std::vector<Sample> samples_;
  double oracle_rms_ = 0;
};

}  // namespace convtune
