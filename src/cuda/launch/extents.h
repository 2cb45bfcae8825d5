// A problem as device code wants it (tile/conv2d_extents.h), and values of device structs as NVRTC reads
// them.
#pragma once

#include <fmt/format.h>

#include <string>

#include "convtune/error.h"
#include "convtune/problem.h"
#include "cuda/tile/conv2d_extents.h"

namespace convtune::cuda {

// Whether every extent is small enough for ints: otherwise a refusal that names it.
Support fits_extents(const Conv2dProblem& problem);

// For a problem that fits. A batch of 0 is planned and packed for as 1, and never run.
Conv2dExtents extents_of(const Conv2dProblem& problem);

inline std::string field_to_cuda(bool value) {
  return value ? "true" : "false";
}
inline std::string field_to_cuda(int value) {
  return std::to_string(value);
}
inline std::string field_to_cuda(const Conv2dExtents& value);

// "convtune::Conv2dExtents{.n=256,...}": of a struct that lists its fields (config.h) and has a name for
// this. Enums among them have a field_to_cuda() in their own namespace.
template <class T>
std::string to_cuda(const T& value) {
  std::string fields;
  T::visit(value, [&](const char* name, const auto& field, auto...) {
    fields += fmt::format("{}.{}={}", fields.empty() ? "" : ",", name, field_to_cuda(field));
  });
  return fmt::format("convtune::{}{{{}}}", T::kName, fields);
}

inline std::string field_to_cuda(const Conv2dExtents& value) {
  return to_cuda(value);
}

}  // namespace convtune::cuda
