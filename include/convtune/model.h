// A model as a list of convolutions: what an ONNX file runs, and how often.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convtune/problem.h"

namespace convtune {

// Equal convolutions of a model. The problem is named after the first of its layers.
struct ModelConvolution {
  ConvProblem problem;
  std::int64_t count = 1;           // how often it runs in one pass of the model
  std::vector<std::string> layers;  // their names in the model, as they stand there
  bool operator==(const ModelConvolution&) const = default;
};

// Layers that are no problem here: "ConvInteger", "its tensors are integers".
struct SkippedLayers {
  std::string what, why;
  std::int64_t count = 1;
  std::vector<std::string> layers;
  bool operator==(const SkippedLayers&) const = default;
};

struct Model {
  std::string name;  // the file's, without folder and ending
  std::vector<ModelConvolution> convolutions;
  std::vector<SkippedLayers> skipped;
  bool operator==(const Model&) const = default;
};

struct ModelOptions {
  // The inputs' batch size, needed where the file leaves it open; for a list, each problem's.
  std::optional<std::int64_t> batch;
  // By an input's name: its extents, where more than the batch is open, or to run it with others.
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes;
  std::string python = "python3";  // has the package onnx, which reads the file
  double seconds = 120;            // for reading it
};

// The convolutions of an ONNX file with the epilogues that its graph proves, by ONNX's own shape inference in
// a Python process, which runs nothing of the model and does not need its weights; or, where its name ends in
// .json, a list as model_json() writes it. Throws Error{invalid_argument} for a file that is no such thing,
// for shapes that it leaves open (the message says which option gives them), and where it has no convolution;
// Error{io}; Error{unsupported} where there is no Python with onnx.
Model read_model(const std::string& path, const ModelOptions& options = {});

// {"schema": 1, "model": NAME, "convolutions": [{"problem", "count", "layers"}], "skipped": [{"what", "why",
// "count", "layers"}]}. parse_model throws Error{invalid_argument} that names the field.
std::string model_json(const Model& model);
Model parse_model(std::string_view json);

}  // namespace convtune
