// A problem as device code wants it (tile/conv_extents.h), and values of device structs as NVRTC reads
// them.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "convtune/error.h"
#include "convtune/problem.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/conv_numbers.h"
#include "cuda/tile/lying.h"
#include "problem/forward_parts.h"

namespace convtune::cuda {

// A problem as a kernel computes it: of a backward data problem a forward part, with the weights and biases
// that it takes out of the problem's (nothing where they are taken as they come), and where its outputs lie.
struct Computed : ConvProblem {
  Gathering weights{}, biases{};
  ConvLies lies{};
  bool weights_last = true;  // the filter lies channels last where the tensors do, so far as that differs
  bool fills_rows = false;   // stores what lies between its residues of a row, too, which no tap meets
};
Computed computed_part(const ForwardPart& part);

// Tells whether every extent is small enough for ints: otherwise a refusal that names it.
Support fits_extents(const ConvProblem& problem);

// For a problem that fits. A batch of 0 is planned and packed for as 1, and never run.
ConvExtents extents_of(const ConvProblem& problem);
ConvExtents extents_of(const Computed& part);

// For every problem.
ConvNumbers numbers_of(const ConvProblem& problem);
ElementType element_type_of(DType type);
ConvActivation activation_of(Activation activation);

inline std::string field_to_cuda(bool value) {
  return value ? "true" : "false";
}
inline std::string field_to_cuda(int value) {
  return std::to_string(value);
}
inline std::string field_to_cuda(long long value) {
  return fmt::format("{}ll", value);
}
inline std::string field_to_cuda(float value) {
  if (std::isinf(value)) return value < 0 ? "-__builtin_huge_valf()" : "__builtin_huge_valf()";
  return fmt::format("{:a}f", value);
}
inline std::string field_to_cuda(ConvActivation value) {
  return fmt::format("convtune::ConvActivation({})", static_cast<int>(value));
}
inline std::string field_to_cuda(ElementType value) {
  return fmt::format("convtune::ElementType({})", static_cast<int>(value));
}
inline std::string field_to_cuda(const ConvExtents& value);
inline std::string field_to_cuda(const ConvLies& value);
inline std::string field_to_cuda(const ConvAxis& value);
inline std::string field_to_cuda(const LyingWeights& value);

// "convtune::ConvExtents{.n=256,...}": of a struct that lists its fields (config.h) and has a name for
// this. Enums among them have a field_to_cuda() in their own namespace.
template <class T>
std::string to_cuda(const T& value) {
  std::string fields;
  T::visit(value, [&](const char* name, const auto& field, auto...) {
    fields += fmt::format("{}.{}={}", fields.empty() ? "" : ",", name, field_to_cuda(field));
  });
  return fmt::format("convtune::{}{{{}}}", T::kName, fields);
}

inline std::string field_to_cuda(const ConvExtents& value) {
  return to_cuda(value);
}
inline std::string field_to_cuda(const ConvLies& value) {
  return to_cuda(value);
}
inline std::string field_to_cuda(const ConvAxis& value) {
  return to_cuda(value);
}
inline std::string field_to_cuda(const LyingWeights& value) {
  return to_cuda(value);
}

}  // namespace convtune::cuda
