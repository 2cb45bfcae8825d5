// Lists what kernel_gpu_test.cpp gives a kernel of the table to compute: layers of suites, edges, random
// layers, and more outputs than an int counts. Where a list has too few problems that a kernel takes, forms
// of that list's problems are added. A unit test counts all of them without a GPU
// (unit/cuda/kernel_gpu_problems_test.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "convtune/error.h"
#include "kernel_problems.h"

namespace convtune {

// Problems that a kernel has at least. Forms are added up to these and not beyond: each config takes a
// compiler a second.
constexpr std::size_t kLeastEdges = 16, kLeastRandomLayers = 40;

// Layers of every kind that some kernel alone is made for, of about the extents that `a` has. `turn` picks
// numbers that `a` does not say.
inline std::vector<ConvProblem> kinds_of(const ConvProblem& a, std::int64_t turn) {
  const auto eights = [](std::int64_t count) { return (count + 7) / 8 * 8; };
  std::vector<ConvProblem> kinds = {a};
  const auto add = [&](const auto& change) {
    kinds.push_back(a);
    change(kinds.back());
  };
  const auto make_depthwise = [](ConvProblem& one, std::int64_t channels) {
    one.groups = one.c = one.k = channels;
  };
  const auto give_depth = [&](ConvProblem& one) {
    one.d = 2 + turn % 3, one.t = 1 + turn % 3, one.pad_front = one.pad_back = turn % 2;
    one.stride_d = 1 + turn % 2;
  };
  // Few filters.
  add([&](ConvProblem& one) { one.groups = 1, one.k = 1 + turn % 8; });
  // Depthwise: of any number of channels, of eights of them, with filters of 26 taps and more, with depth.
  add([&](ConvProblem& one) { make_depthwise(one, std::min<std::int64_t>(a.c, 64)); });
  add([&](ConvProblem& one) {
    make_depthwise(one, eights(std::min<std::int64_t>(a.c, 64)));
    one.stride_h = one.stride_w = one.dilation_h = one.dilation_w = 1;
  });
  add([&](ConvProblem& one) {
    make_depthwise(one, eights(std::min<std::int64_t>(a.c, 64)));
    one.stride_h = one.stride_w = one.dilation_h = one.dilation_w = 1;
    one.r = 5 + turn % 3, one.s = 7 - turn % 3 / 2;
    one.pad_top = one.pad_bottom = one.r / 2, one.pad_left = one.pad_right = one.s / 2;
  });
  add([&](ConvProblem& one) { make_depthwise(one, std::min<std::int64_t>(a.c, 32)), give_depth(one); });
  // Channels and rows of x in whole pieces of 16 bytes, without depth and with it; rows of y, too.
  for (const bool depth : {false, true})
    add([&](ConvProblem& one) {
      one.groups = one.stride_w = 1, one.c = (1 + turn % 2) * eights(a.c), one.k = eights(a.k);
      one.w = eights(a.w);
      if (depth) give_depth(one);
    });
  add([&](ConvProblem& one) {
    one.groups = one.stride_h = one.stride_w = one.dilation_h = one.dilation_w = 1;
    one.c = (1 + turn % 2) * eights(a.c), one.k = eights(a.k), one.w = eights(a.w);
    one.r = one.s = 1 + turn % 3 * 2;
    one.pad_top = one.pad_bottom = one.pad_left = one.pad_right = one.r / 2;
  });
  // Filters of a pixel, patches, and first layers with strides of 4.
  add([&](ConvProblem& one) {
    one.groups = one.r = one.s = one.stride_h = one.stride_w = one.dilation_h = one.dilation_w = 1;
    one.pad_top = one.pad_bottom = one.pad_left = one.pad_right = 0;
  });
  add([&](ConvProblem& one) {
    one.groups = one.dilation_h = one.dilation_w = 1, one.c = 1 + turn % 5;
    one.r = one.s = one.stride_h = one.stride_w = 4 << turn % 3;
    one.h = one.r * (1 + turn % 4) + turn % 3, one.w = 32 * (1 + turn % 2);
    one.pad_top = one.pad_bottom = one.pad_left = one.pad_right = 0;
  });
  add([&](ConvProblem& one) {
    one.groups = one.dilation_w = 1, one.c = 1 + turn % 4, one.stride_w = 4, one.w += 32;
  });
  return kinds;
}

// Forms of a layer: of every kind, in TF32 and in half precision, of both layouts and all directions, where a
// processor computes all outputs in a moment.
inline std::vector<ConvProblem> forms_of(const ConvProblem& a, std::size_t turn) {
  constexpr double kMostFlops = 50e6;
  std::vector<ConvProblem> forms;
  for (const ConvProblem& kind : kinds_of(a, static_cast<std::int64_t>(turn)))
    for (const Direction direction :
         {Direction::forward, Direction::backward_data, Direction::backward_weights})
      for (const bool half : {false, true})
        for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
          ConvProblem form = kind;
          form.direction = direction;
          if (direction == Direction::backward_weights)
            form.activation = Activation::none, form.alpha = form.beta = 0, form.residual = false,
            form.rounding = Rounding::once;
          if (half) form = in_half(form, turn);
          form.layout = layout;
          try {
            validate(form);
          } catch (const Error&) {
            continue;  // the filter is longer than what it slides over
          }
          if (form.flops() <= kMostFlops) forms.push_back(form);
        }
  return forms;
}
inline std::vector<ConvProblem> forms_of(const std::vector<ConvProblem>& layers) {
  std::vector<ConvProblem> all;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::vector<ConvProblem> forms = forms_of(layers[i], i);
    all.insert(all.end(), forms.begin(), forms.end());
  }
  return all;
}

// Adds forms that the algorithm takes, from all over `forms`, to what would be fewer than `least` problems.
inline void fill_up(std::vector<ConvProblem>& problems, std::size_t least, const Algorithm& algorithm,
                    const DeviceInfo& device, std::vector<ConvProblem> forms) {
  if (problems.size() >= least) return;
  std::set<std::string> keys;
  for (const ConvProblem& problem : problems) keys.insert(key(problem));
  std::erase_if(forms, [&](const ConvProblem& form) {
    return !algorithm.supports(form, device) || !keys.insert(key(form)).second;
  });
  forms = spread(forms, least - problems.size());
  problems.insert(problems.end(), forms.begin(), forms.end());
}

// Layers of suites. Kernels that have none among forward layers of images get a few of others, of one image,
// since volumes are large.
inline std::vector<ConvProblem> suite_layers(const Algorithm& algorithm, const DeviceInfo& device,
                                             std::int64_t batch) {
  std::vector<ConvProblem> layers = supported(algorithm, device, suite_problems(batch));
  if (!layers.empty()) return layers;
  constexpr std::int64_t kMostNumbers = 1 << 27;
  layers = suite_problems(1, {"medical", "video", "training", "training_nchw", "modern"});
  const std::size_t count = layers.size();
  for (std::size_t i = 0; i < count; ++i) {
    layers.push_back(layers[i]);
    layers.back().layout = Layout::nchw;
  }
  std::erase_if(layers, [&](const ConvProblem& a) {
    return a.input_elements() + a.output_elements() > kMostNumbers || !algorithm.supports(a, device);
  });
  return spread(layers, 4);
}

inline std::vector<ConvProblem> edges_for(const Algorithm& algorithm, const DeviceInfo& device) {
  const std::vector<ConvProblem> edges = suite_problems(7, {"edges"});
  std::vector<ConvProblem> problems = spread(supported(algorithm, device, edges), 30);
  if (problems.size() < kLeastEdges) fill_up(problems, kLeastEdges, algorithm, device, forms_of(edges));
  return problems;
}

inline std::vector<ConvProblem> random_layers_for(const Algorithm& algorithm, const DeviceInfo& device) {
  std::vector<ConvProblem> problems = spread(supported(algorithm, device, random_layers(960)), 60);
  if (problems.size() >= kLeastRandomLayers) return problems;
  std::vector<ConvProblem> layers(240);
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i] = random_layer(i);
  fill_up(problems, kLeastRandomLayers, algorithm, device, forms_of(layers));
  return problems;
}

// Layers that are run again and again: each run takes no more than a moment.
inline std::vector<ConvProblem> repeated_layers(const Algorithm& algorithm, const DeviceInfo& device) {
  std::vector<ConvProblem> layers = suite_layers(algorithm, device, 16);
  std::erase_if(layers, [](const ConvProblem& a) { return a.result_elements() > 1 << 24; });
  return spread(layers, 2);
}

// Gradients of weights alone have few results.
inline bool is_for_weights(const Algorithm& algorithm, const DeviceInfo& device) {
  const std::vector<ConvProblem> small = supported(algorithm, device, small_problems());
  return std::ranges::all_of(small,
                             [](const ConvProblem& a) { return a.direction == Direction::backward_weights; });
}

// Problems with more than 2^31 results.
inline std::vector<ConvProblem> large_problems(const Algorithm& algorithm, const DeviceInfo& device) {
  std::vector<ConvProblem> problems;
  for (const char* line :
       {"mb700ic1ih224oc64kh3ph1", "mb350ic8ih224oc128kh1", "mb700ic1ih256oc768kh4sh4",
        "mb700ic1ih896oc64kh3sh4ph1", "g64mb56ic64ih4oc64kh3ph400 layout=nhwc",
        "g16mb56ic64ih4oc64kh3ph400 layout=nhwc", "g64mb56ic64ih4oc64kh7ph400 layout=nhwc",
        "mb700ic1ih640oc8kh3ph1 layout=nhwc", "mb350ic8ih224oc128kh3ph1",
        "g16mb56ic16id4ih4iw4oc16kd3kh3kw3pd1ph400pw400", "g64mb56ic64ih802oc64kh3sh4ph1 dir=bwd_d"})
    problems.push_back(tf32(line));
  problems = with_halves(problems);
  std::erase_if(problems, [&](const ConvProblem& a) {
    return a.result_elements() <= std::int64_t{1} << 31 || !algorithm.supports(a, device);
  });
  return problems;
}

}  // namespace convtune
