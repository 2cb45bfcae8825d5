// A Triton file with one config in a Python process of its own, which runs
// src/triton/runner/triton_runner.py: its outputs, and its time whenever it is asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convtune/problem.h"
#include "python/python_child.h"

namespace convtune {

struct TritonRunSpec {
  std::string python = "python3", path, kernel;
  std::string source;                  // the file's text, with the one config that is to run
  std::string call;                    // what to run: a call, or a .py file with prepare(module)
  std::optional<ConvProblem> problem;  // what to feed it, where the file has no get_inputs()
  double seconds = 300;                // for the start, and for an answer
  std::function<bool()> cancelled;
};

// An output of a run, as far as it is told: every number counts in one of the sums.
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
std::string difference(const std::vector<TritonOutput>& original, const std::vector<TritonOutput>& other);

// Which config of the list that the file has Triton's own autotuner picks here: Triton's words for it, and
// its place. Throws as TritonRun::wait() does.
struct PickedConfig {
  std::string words;
  std::size_t index = 0, of = 0;
};
PickedConfig picked_config(const TritonRunSpec& spec);

class TritonRun {
 public:
  // Starts. `pick`: to answer picked_config(). Throws Error{unsupported} where there is no Python.
  explicit TritonRun(TritonRunSpec spec, bool pick = false);
  // Waits until it is ready to be timed. Throws Error{no_device} where PyTorch sees no GPU,
  // Error{unsupported} where there is no PyTorch or Triton, Error{invalid_argument} for a file that cannot be
  // run at all, RunFailure, RunCancelled.
  void wait();
  double sample_us();  // throws RunFailure, RunCancelled

  double first_us() const { return first_us_; }
  const std::vector<TritonOutput>& outputs() const { return outputs_; }
  const std::string& place() const { return place_; }  // "NVIDIA H100 80GB HBM3, PyTorch 2.11, Triton 3.6"
  const std::string& capability() const { return capability_; }  // for the GPU: "9.0"

 private:
  friend PickedConfig picked_config(const TritonRunSpec& spec);
  nlohmann::json answer();  // throws Error for what no config of the file can do anything about

  PythonChild process_;
  double first_us_ = 0;
  std::vector<TritonOutput> outputs_;
  std::string place_, capability_;
};

}  // namespace convtune
