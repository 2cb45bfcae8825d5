// Factors by which transforms enlarge roundings; they decide whether a precision allows one
// (docs/decisions/0066).
#pragma once

#include "cpu/tile/winograd/winograd_parts.h"

namespace convtune::cpu {

constexpr double kMostOfLimit = 0.92;  // of what the precision allows, where numbers are of one size

// The factor by which one axis of a filter in parts enlarges roundings, squared, where numbers are of one
// size: each product of an output has the squares of both transforms, once for a rounding of its own and as
// often as it has parts for those of its sums, which are as much longer.
struct WinogradRoundings {
  double of_products = 0, of_sums = 0;
};
WinogradRoundings winograd_roundings_of(const WinogradAxis& axis);

}  // namespace convtune::cpu
