// THE table of activations: what each is called, its parameters, and its formula in double precision for the
// host. The formulas in words are in convtune/tensor.h.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "convtune/tensor.h"

namespace convtune {

struct ActivationRow {
  Activation activation;
  const char* usage;  // "clip:LOW:HIGH": the name, then what is to be said of alpha and beta
  double (*formula)(double v, double alpha, double beta);

  std::string_view name() const;
  std::size_t parameters() const;  // 0 to 2
};

std::span<const ActivationRow> activation_rows();  // in the order of the enumeration
const ActivationRow& activation_row(Activation);   // throws Error{invalid_argument} for what is none
std::vector<Activation> all_activations();

double activate(Activation activation, double value, double alpha, double beta);

}  // namespace convtune
