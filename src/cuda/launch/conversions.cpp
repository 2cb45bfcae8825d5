// See conversions.h.
#include "cuda/launch/conversions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace convtune::cuda {
namespace {

// A tensor that moves: where it lies, where it stands in NHWC, and as matrices of channels by pixels.
struct Moved {
  Operand given, converted;
  std::int64_t images, channels, pixels, element_bytes;

  bool moves() const { return !to_nhwc().is_copy(); }
  Transposition to_nhwc() const { return {images, channels, pixels, element_bytes}; }
  Transposition to_nchw() const { return {images, pixels, channels, element_bytes}; }
};

// The tensors of a problem; y is the last. A gradient of weights reads dy where others write y.
std::vector<Moved> moved_by(const ConvProblem& a, ChannelsLast tensors) {
  const std::int64_t images = std::max<std::int64_t>(a.n, 1);  // a batch of 0 is planned for as 1
  std::vector<Moved> all;
  struct Side {
    std::int64_t channels, pixels, element_bytes;
  };
  Side x{a.c, a.d * a.h * a.w, size_of(a.dtype.x)}, y{a.k, a.z() * a.p() * a.q(), size_of(a.dtype.y)};
  if (a.direction == Direction::backward_data) std::swap(x, y);  // as the kernel's forward part names them
  const auto add = [&](bool moves, Operand given, Operand converted, const Side& side) {
    if (moves) all.push_back({given, converted, images, side.channels, side.pixels, side.element_bytes});
  };
  add(tensors.x, Operand::x, Operand::x_nhwc, x);
  if (a.direction == Direction::backward_weights) {
    add(tensors.y, Operand::dy, Operand::y_nhwc, y);
    std::erase_if(all, [](const Moved& one) { return !one.moves(); });
    return all;
  }
  if (tensors.x && a.cache > 0)
    all.push_back(
        {Operand::cache, Operand::cache_nhwc, images, a.c, a.cache * a.h * a.w, size_of(a.dtype.x)});
  add(tensors.y && a.residual, Operand::residual, Operand::residual_nhwc, y);
  add(tensors.y, Operand::y, Operand::y_nhwc, y);
  std::erase_if(all, [](const Moved& one) { return !one.moves(); });
  return all;
}

}  // namespace

void replace(Step& step, Operand from, Operand to) {
  const auto of_pointer = [&](Pointer& pointer) {
    if (pointer.operand == from) pointer.operand = to;
  };
  if (auto* clear = std::get_if<Clear>(&step)) of_pointer(clear->begin);
  if (auto* conversion = std::get_if<Conversion>(&step)) {
    if (conversion->from == from) conversion->from = to;
    if (conversion->to == from) conversion->to = to;
  }
  if (auto* bare = std::get_if<Bare>(&step)) {
    if (bare->residual == from) bare->residual = to;
    if (bare->to == from) bare->to = to;
  }
  auto* const launch = std::get_if<KernelLaunch>(&step);
  if (!launch) return;
  for (Argument& argument : launch->arguments) {
    if (auto* pointer = std::get_if<Pointer>(&argument)) of_pointer(*pointer);
    if (auto* maps = std::get_if<TensorMaps>(&argument))
      for (TensorMapGroup& group : maps->groups)
        if (group.operand == from) group.operand = to;
  }
}

bool is_convertible(const ConvProblem& problem) {
  const bool words = problem.direction == Direction::backward_weights && problem.dtype.x == DType::f32 &&
                     problem.dtype.y == DType::f32;
  return problem.layout == Layout::nchw && problem.direction != Direction::backward_data &&
         (words || (size_of(problem.dtype.x) == 2 && size_of(problem.dtype.y) == 2));
}

Support takes_conversions(const ConvProblem& problem, ChannelsLast tensors) {
  for (const Moved& one : moved_by(problem, tensors))
    for (const Transposition& way : {one.to_nhwc(), one.to_nchw()})
      if (way.blocks() > Transposition::kMostBlocks)
        return Support::no(
            fmt::format("{} of {} images with {} channels of {} pixels is too large to be converted to NHWC",
                        to_string(one.given), one.images, one.channels, one.pixels));
  return Support::yes();
}

void add_conversions(LaunchPlan& plan, const ConvProblem& problem, ChannelsLast tensors) {
  std::vector<Step> before, behind;
  for (const Moved& one : moved_by(problem, tensors)) {
    for (Step& step : plan.run) replace(step, one.given, one.converted);
    plan.workspace.push_back({one.converted, one.to_nhwc().bytes()});
    if (one.given == Operand::y)
      behind.emplace_back(Conversion{one.converted, one.given, one.to_nchw()});
    else
      before.emplace_back(Conversion{one.given, one.converted, one.to_nhwc()});
  }
  plan.run.insert(plan.run.begin(), before.begin(), before.end());
  plan.run.insert(plan.run.end(), behind.begin(), behind.end());
}

void count_conversions(TileWork& work, const ConvProblem& problem, ChannelsLast tensors) {
  for (const Moved& one : moved_by(problem, tensors)) {
    work.conversions += 1;
    work.converted_bytes += 2 * static_cast<double>(one.to_nhwc().bytes());  // read and written
  }
}

std::string conversions_in_words(const ConvProblem& problem, ChannelsLast tensors) {
  std::vector<std::string_view> names;
  double bytes = 0;
  for (const Moved& one : moved_by(problem, tensors)) {
    names.push_back(to_string(one.given));
    bytes += static_cast<double>(one.to_nhwc().bytes());
  }
  if (names.empty()) return {};
  return fmt::format("converts {} between NCHW and NHWC, with {:.4g} MB of memory for them",
                     fmt::join(names, " and "), bytes / 1e6);
}

}  // namespace convtune::cuda
