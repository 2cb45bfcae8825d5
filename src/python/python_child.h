// A Python process that runs a program which is built in, and is talked to by lines of JSON. Who starts one:
// triton_file, triton_compiler, triton_run, onnx/model.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/process.h"

namespace convtune {

// Faults of this process alone: crashed, took too long, gave an answer that is none.
class RunFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class RunCancelled {};

// Throws Error{invalid_argument} where the text cannot be a program: it holds a zero byte or is not UTF-8.
void require_python(const std::string& source);

class PythonChild {
 public:
  // `program`: one of the files that src/CMakeLists.txt embeds as runners, without its ending, whose main()
  // runs; those that it imports come with it. Throws Error{unsupported} where there is no such Python.
  PythonChild(const std::string& python, const std::string& program, double seconds,
              std::function<bool()> cancelled = {});

  void write(const nlohmann::json& request);
  // The next answer. Throws RunFailure, RunCancelled.
  nlohmann::json read();
  nlohmann::json ask(const nlohmann::json& request);

 private:
  double seconds_;
  std::function<bool()> cancelled_;
  ChildProcess process_;
};

}  // namespace convtune
