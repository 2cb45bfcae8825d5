// See winograd_precision.h.
#include "cpu/tile/winograd/winograd_precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "contract/abilities.h"
#include "cpu/tile/winograd/winograd_parts.h"
#include "cpu/tile/winograd/winograd_roundings.h"
#include "cpu/tile/winograd/winograd_transform.h"
#include "problem/activation.h"

namespace convtune::cpu {
namespace {

// Channels of a group, input and output: with fewer, the transforms cost what the products save, and sums are
// too short for their errors to average out as the precision's limit expects.
constexpr std::int64_t kFewestChannels = 16;
// Limits of filters that are not 3x3 of stride 1: output channels that pay for the transform of the input,
// taps and strides along an axis.
constexpr std::int64_t kFewestFilters = 32, kMostTaps = 32;
constexpr double kLeastSaved = 1.4;  // times fewer products, of filters that are not 3x3 of stride 1

// Other filters than 3x3 of stride 1: parts of them (winograd_parts.h).
Support decomposed_supports(const ConvProblem& a) {
  if (a.layout != Layout::nchw) return Support::no("of NHWC tensors, it is for 3x3 filters of stride 1");
  if (a.k / a.groups < kFewestFilters)
    return Support::no(fmt::format("it is for {} output channels of a group or more", kFewestFilters));
  if (std::max({a.r, a.s, a.stride_h, a.stride_w}) > kMostTaps)
    return Support::no(fmt::format("it is for filters and strides of {} or less", kMostTaps));
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  const WinogradAxis rows(a.r, a.stride_h, 2), cols(a.s, a.stride_w, 2);
  const double saved = 4 * number(a.r * a.s) / number(std::ssize(rows.products) * std::ssize(cols.products));
  if (saved < kLeastSaved)
    return Support::no(
        fmt::format("it would make {:.2f} times fewer products, and {} pay", saved, kLeastSaved));
  const double channels = number(a.c / a.groups), taps = number(a.r * a.s);
  const WinogradRoundings down = winograd_roundings_of(rows), along = winograd_roundings_of(cols);
  const double squares =
      (down.of_sums * along.of_sums * channels + 9 * down.of_products * along.of_products) / taps;
  if (std::sqrt(squares) > kMostOfLimit * std::sqrt(channels * taps + 1))
    return Support::no("its sums are too short for their errors to average out as the precision expects");
  return Support::yes();
}

}  // namespace

bool is_decomposed(const ConvProblem& problem) {
  return problem.r != kWinogradTaps || problem.s != kWinogradTaps || problem.stride_h != 1 ||
         problem.stride_w != 1;
}

Support winograd_within_precision(const ConvProblem& problem, const DeviceInfo&) {
  const Abilities abilities{.activations = all_activations(), .residual = true};
  if (Support support = within(abilities, problem); !support) return support;
  const ConvProblem& a = problem;
  if ((a.dilation_h != 1 || a.dilation_w != 1) && (is_decomposed(a) || a.layout != Layout::nchw))
    return Support::no("with a dilation it is for 3x3 filters of stride 1, of NCHW tensors");
  if (is_decomposed(a)) {
    if (Support support = decomposed_supports(a); !support) return support;
  } else if (std::min(a.c, a.k) / a.groups < kFewestChannels)
    return Support::no(fmt::format("it is for {} channels of a group or more, in and out", kFewestChannels));
  return Support::yes();
}

}  // namespace convtune::cpu
