// Reads a model's file: ONNX by src/onnx/onnx_reader.py in a Python process, a list of convolutions here.
#include "convtune/model.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/named_file.h"
#include "base/quoted.h"
#include "convtune/error.h"
#include "onnx/model_list.h"
#include "python/python_child.h"

namespace convtune {
namespace {

using nlohmann::json;

Model read_onnx(const std::string& path, const ModelOptions& options) {
  json shapes = json::object();
  for (const auto& [name, extents] : options.shapes) shapes[name] = extents;
  json request = {{"path", path}, {"shapes", shapes}};
  if (options.batch) request["batch"] = *options.batch;
  json answer;
  try {
    PythonChild reader(options.python, "onnx_reader", options.seconds);
    answer = reader.ask(request);
  } catch (const RunFailure& failure) {
    throw Error(ErrorKind::invalid_argument, fmt::format("Python could not read it: {}", failure.what()));
  }
  if (const auto missing = answer.find("missing"); missing != answer.end())
    throw Error(
        ErrorKind::unsupported,
        fmt::format("the Python package onnx reads it, which {} has not{}: `{} -m pip install onnx`, or "
                    "name a Python that has it by --python or CONVTUNE_PYTHON",
                    convtune::quoted(options.python, 200),
                    missing->is_string() ? " (" + missing->get<std::string>().substr(0, 200) + ")" : "",
                    options.python));
  if (const auto refused = answer.find("refused"); refused != answer.end() && refused->is_string())
    throw Error(ErrorKind::invalid_argument, refused->get<std::string>());
  return model_of(answer, true);
}

Model read_list(const std::string& path, const ModelOptions& options) {
  if (!options.shapes.empty())
    throw Error(ErrorKind::invalid_argument, "a list has problems and no inputs to give shapes to");
  Model model = parse_model(read_named_file(path));
  for (ModelConvolution& one : model.convolutions) {
    one.problem.n = options.batch.value_or(one.problem.n);
    validate(one.problem);
  }
  return model;
}

Model read(const std::string& path, const ModelOptions& options) {
  return path.ends_with(".json") ? read_list(path, options) : read_onnx(path, options);
}

}  // namespace

Model read_model(const std::string& path, const ModelOptions& options) {
  std::error_code failed;
  if (!std::filesystem::exists(path, failed) || std::filesystem::is_directory(path, failed))
    throw Error(ErrorKind::io, fmt::format("there is no model file {}", convtune::quoted(path, 200)));
  const auto about = [&](const Error& error) {
    return Error(error.kind(), fmt::format("{}: {}", convtune::quoted(path, 200), error.what()));
  };
  Model model;
  try {
    model = read(path, options);
  } catch (const Error& error) {
    throw error.kind() == ErrorKind::io ? error : about(error);
  }
  if (model.name.empty()) model.name = std::filesystem::path(path).stem().string();
  if (model.convolutions.empty())
    throw about(
        Error(ErrorKind::invalid_argument,
              model.skipped.empty()
                  ? std::string("it has no convolution")
                  : fmt::format("it has no convolution that can be listed; of {} {}, {}",
                                model.skipped[0].count, model.skipped[0].what, model.skipped[0].why)));
  return model;
}

}  // namespace convtune
