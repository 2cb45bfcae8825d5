// One config of a Triton file in a Python process of its own, which runs src/runner/triton_runner.py: its
// outputs, and its time whenever it is asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "convtune/problem.h"
#include "micro_tuning.h"
#include "process.h"

namespace convtune {

// What this config alone did wrong: crashed, took too long, gave no number.
class RunFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class RunCancelled {};

struct TritonRunSpec {
  std::string python = "python3", file, kernel;
  std::size_t listed = 0;                // how many configs the file's list has,
  std::size_t config = 0;                // which of them runs,
  StageConfig stage;                     // and with what instead of its own
  std::optional<Conv2dProblem> problem;  // what to feed it, where the file has no get_inputs()
  double seconds = 300;                  // for the start, and for an answer
  std::function<bool()> cancelled;
};

// A run's output, as far as it is told: every output counts in one of the sums.
struct TritonOutput {
  std::vector<std::int64_t> shape;
  std::string dtype;
  bool finite = false;
  std::int64_t bits = 0;  // all of them, added up: equal outputs have equal ones
  double rms = 0;
  std::int64_t part = 0;  // outputs of a sum
  std::vector<double> sums, values;
};
// Why `other` is not what `original` is, up to the rounding of sums in another order; nothing where it is.
std::string difference(const TritonOutput& original, const TritonOutput& other);

// Which config of the list Triton's own autotuner picks here. Throws as TritonRun::wait() does.
std::size_t picked_config(const TritonRunSpec& spec);

class TritonRun {
 public:
  // Starts. `pick`: to answer picked_config(). Throws Error{unsupported} where there is no Python.
  explicit TritonRun(TritonRunSpec spec, bool pick = false);
  // Waits until it is ready to be timed. Throws Error{no_device} where PyTorch sees no GPU,
  // Error{unsupported} where there is no PyTorch or Triton, Error{invalid_argument} for a file that cannot be
  // run at all, RunFailure, RunCancelled.
  void wait();
  double sample_us();  // throws RunFailure, RunCancelled

  // The next line of its answers. Throws RunFailure, RunCancelled.
  std::string answer();

  double first_us() const { return first_us_; }
  const TritonOutput& output() const { return output_; }
  const std::string& place() const { return place_; }  // "NVIDIA H100 80GB HBM3, PyTorch 2.11, Triton 3.6"
  const std::string& capability() const { return capability_; }  // of the GPU: "9.0"

 private:
  TritonRunSpec spec_;
  ChildProcess process_;
  double first_us_ = 0;
  TritonOutput output_;
  std::string place_, capability_;
};

}  // namespace convtune
