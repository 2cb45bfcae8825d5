// The candidates of a slow problem on a few of its images: which of them deserve the whole batch. Used by
// tune() where there is no time to try them all on that.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure/testbed.h"
#include "record/trials.h"
#include "tune/batches.h"
#include "tune/screening.h"

namespace convtune {

class SmallBatch {
 public:
  // Returns how many images stand for all of a problem's, a few for each thread; 0 where all are hardly more,
  // and for GPUs, whose kernels are compiled for a batch.
  static std::int64_t images_for(const ConvProblem& problem, const DeviceInfo& device);

  // Tries the problem's candidates on `images` images. Trials are those of the smaller problem. `keep` and
  // `anew`: whether they are written, and whether earlier ones are forgotten.
  SmallBatch(const ConvProblem& problem, std::int64_t images, Backend& backend, const Ceilings& ceilings,
             bool keep, bool anew);

  // Tries candidates in the order of a search until it is `late`. Then the fastest run in turns, and the
  // faster half of them again and longer, until there are `few`: their places, the fastest first.
  std::vector<std::size_t> fastest(const Batches& batches, std::size_t few, const std::function<bool()>& late,
                                   const std::function<bool()>& cancelled);
  // When the search is over: failures are kept.
  void finish() { trials_.finish(true); }

  std::int64_t images() const { return problem_.n; }
  std::int64_t tried() const { return tried_; }
  std::vector<std::string> failures;  // descriptions of what was wrong: a candidate, and why

 private:
  struct Timed {
    std::size_t place;
    double time_us;
  };
  void try_all(const Batches& batches, const std::function<bool()>& stop, std::vector<Timed>& timed);
  double time_us(const Algorithm& algorithm, const Config& config, double best_us);
  void measure(const Batches& batches, int rounds, const std::function<bool()>& cancelled,
               std::vector<Timed>& timed);

  const ConvProblem problem_;
  const DeviceInfo device_;
  const Ceilings& ceilings_;
  TrialLog trials_;
  Testbed bed_;
  Screening screening_;
  std::int64_t tried_ = 0;
};

}  // namespace convtune
