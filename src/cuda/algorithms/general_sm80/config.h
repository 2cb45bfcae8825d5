// The kernel that takes every problem (general_sm80.cuh): what it is compiled for, and which numbers a thread
// multiplies. All of that is said here, for any memory, so that a test on the host goes through the same
// code.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/conv_numbers.h"
#include "cuda/tile/packed.h"

namespace convtune {

enum class ConvDirection { forward, backward_data, backward_weights };

// A result is a number of y, of dx, or of dw. Forward and backward data are the same sums: of products of
// `terms` channels of an input (x, or dy) and weights, at each tap that meets the input somewhere. A thread
// has `filters` channels of `pixels` positions of them.
struct GeneralSm80 {
  ConvDirection direction = ConvDirection::forward;
  bool nhwc = false;
  bool wide = false;  // numbers and offsets of 64 bits
  // Element types of x, or in backward data of dy; of w or dw; of the result, or in backward weights of dy.
  ElementType in_type = ElementType::f32, w_type = ElementType::f32, out_type = ElementType::f32;
  ElementType bias_type = ElementType::f32;
  ConvActivation activation = ConvActivation::none;
  bool residual = false, eager = false;
  int cached = 0;  // frames of a cache before x's
  int filters = 1, pixels = 1;
  static constexpr const char* kName = "GeneralSm80";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("direction", self.direction), field("nhwc", self.nhwc), field("wide", self.wide);
    field("in_type", self.in_type), field("w_type", self.w_type), field("out_type", self.out_type);
    field("bias_type", self.bias_type), field("activation", self.activation);
    field("residual", self.residual), field("eager", self.eager), field("cached", self.cached);
    field("filters", self.filters, 1, kMostFilters, "channels of a thread's results: 1, 2 or 4");
    field("pixels", self.pixels, 1, kMostPixels, "positions of a thread's results: 1, 2 or 4");
  }
  static constexpr int kMostFilters = 4, kMostPixels = 4, kThreads = 256, kWarp = 32;

  constexpr bool valid() const {
    const auto is_power = [](int a) { return a == 1 || a == 2 || a == 4; };
    if (direction == ConvDirection::backward_weights) return filters == 1 && pixels == 1;
    return is_power(filters) && is_power(pixels);
  }

  // ---- Channels: of results and of what they are summed up from, in all groups and in one ----
  constexpr bool forward() const { return direction == ConvDirection::forward; }
  constexpr long long results(const ConvNumbers& a) const { return forward() ? a.k : a.c; }
  constexpr long long inputs(const ConvNumbers& a) const { return forward() ? a.c : a.k; }
  constexpr long long terms(const ConvNumbers& a) const { return inputs(a) / a.groups; }
  constexpr long long group_results(const ConvNumbers& a) const { return results(a) / a.groups; }
  constexpr long long result_extent(const ConvAxis& axis) const {
    return forward() ? axis.output : axis.input;
  }
  constexpr long long input_extent(const ConvAxis& axis) const {
    return forward() ? axis.input : axis.output;
  }
  constexpr long long positions(const ConvNumbers& a) const {
    return result_extent(a.depth) * result_extent(a.height) * result_extent(a.width);
  }

  // ---- Threads ----
  // Neighbouring threads have what lies beside each other: positions in NCHW, a warp's apart where a thread
  // has several; channels in NHWC.
  constexpr long long position_threads(const ConvNumbers& a) const {
    return nhwc ? ceil_div(positions(a), pixels) : ceil_div(positions(a), kWarp * pixels) * kWarp;
  }
  constexpr long long channel_threads(const ConvNumbers& a) const {
    return a.groups * ceil_div(group_results(a), filters);
  }
  // Backward weights has blocks for each tap: of 1 pair of channels in NCHW, and of neighbouring pairs in
  // NHWC. What the threads of a pair sum up is added at the end. Further blocks are for gradients of biases.
  constexpr int pairs_abreast() const { return nhwc ? 16 : 1; }
  constexpr int columns_abreast() const { return nhwc ? 1 : kWarp; }
  constexpr int rows_abreast() const { return kThreads / pairs_abreast() / columns_abreast(); }
  constexpr long long weight_blocks(const ConvNumbers& a) const {
    return a.taps() * ceil_div(a.k * (a.c / a.groups), pairs_abreast());
  }
  constexpr long long bias_blocks(const ConvNumbers& a) const { return ceil_div(a.k, pairs_abreast()); }
  // Blocks that have work, of which one may do several in turn.
  constexpr long long blocks(const ConvNumbers& a, bool bias) const {
    if (direction == ConvDirection::backward_weights) return weight_blocks(a) + (bias ? bias_blocks(a) : 0);
    return ceil_div(a.n * channel_threads(a) * position_threads(a), kThreads);
  }

  constexpr int smem_bytes() const { return direction == ConvDirection::backward_weights ? 4 * kThreads : 0; }

  // ---- Packed weights, as floats: [tap][term][channel of the results]. Behind them the biases ----
  constexpr Packed packed(const ConvNumbers& a) const {
    if (direction == ConvDirection::backward_weights) return {.flagged = false};
    return {.prepared = a.weights(), .biases = results(a), .flagged = false};
  }
  constexpr long long source_of(const ConvNumbers& a, long long i) const {
    const long long result = i % results(a), term = i / results(a) % terms(a);
    const long long tap = i / results(a) / terms(a), channels = a.c / a.groups;
    const long long k = forward() ? result : result / channels * (a.k / a.groups) + term;
    const long long c = forward() ? term : result % channels;
    return (k * channels + c) * a.taps() + tap;
  }

  // Returns the input position along an axis of a tap of the result at `at`; negative: none.
  template <class Index>
  constexpr Index input_at(const ConvAxis& axis, Index at, Index tap) const {
    const Index reach = tap * static_cast<Index>(axis.dilation), pad = static_cast<Index>(axis.pad);
    const Index stride = static_cast<Index>(axis.stride);
    if (direction != ConvDirection::backward_data) {
      const Index input = at * stride + reach - pad;
      return input < static_cast<Index>(axis.input) ? input : -1;
    }
    const Index distance = at + pad - reach;
    const Index input = stride == 1 ? distance : distance / stride;
    return distance >= 0 && input * stride == distance && input < static_cast<Index>(axis.output) ? input
                                                                                                  : -1;
  }
  // Returns the frame of the cache that forward's tap meets, whose last one lies before the input's first;
  // negative: none.
  template <class Index>
  constexpr Index cached_at(const ConvAxis& axis, Index at, Index tap) const {
    const Index input = at * static_cast<Index>(axis.stride) + tap * static_cast<Index>(axis.dilation) -
                        static_cast<Index>(axis.pad);
    return input < 0 ? input + static_cast<Index>(cached) : -1;
  }
};

// How an activation tensor lies: steps from one number to the next, along each of its extents.
template <class Index>
struct ConvSteps {
  Index image, channel, depth, height, width;

  constexpr ConvSteps(bool nhwc, long long channels, long long depths, long long rows, long long columns)
      : image(static_cast<Index>(channels * depths * rows * columns)),
        channel(static_cast<Index>(nhwc ? 1 : depths * rows * columns)),
        depth(static_cast<Index>(rows * columns * (nhwc ? channels : 1))),
        height(static_cast<Index>(columns * (nhwc ? channels : 1))),
        width(static_cast<Index>(nhwc ? channels : 1)) {}
};

// The results of thread `item` of forward and backward data: which they are, and their sums.
template <GeneralSm80 config, class Index>
struct GeneralResults {
  static constexpr int kFilters = config.filters, kPixels = config.pixels;
  Index image, group, first;  // the first channel of the group
  Index depths[kPixels], rows[kPixels], columns[kPixels];
  bool exists[kPixels];
  float sums[kFilters][kPixels] = {};

  constexpr GeneralResults(const ConvNumbers& a, Index item) {
    const auto channels = static_cast<Index>(config.channel_threads(a)),
               positions = static_cast<Index>(config.position_threads(a));
    const Index rest = item / (config.nhwc ? channels : positions);
    const Index channel = config.nhwc ? item % channels : rest % channels;
    const Index position = config.nhwc ? rest % positions : item % positions;
    image = rest / (config.nhwc ? positions : channels);
    const auto tiles = static_cast<Index>(ceil_div(config.group_results(a), kFilters));
    group = channel / tiles, first = channel % tiles * kFilters;
    const auto height = static_cast<Index>(config.result_extent(a.height)),
               width = static_cast<Index>(config.result_extent(a.width));
    for (int pixel = 0; pixel < kPixels; ++pixel) {
      constexpr Index kWarp = GeneralSm80::kWarp;
      const Index at = config.nhwc ? position * kPixels + pixel
                                   : position / kWarp * (kWarp * kPixels) + pixel * kWarp + position % kWarp;
      exists[pixel] = at < static_cast<Index>(config.positions(a));
      const Index of = exists[pixel] ? at : 0;
      columns[pixel] = of % width, rows[pixel] = of / width % height, depths[pixel] = of / width / height;
    }
  }

  // How many of its channels there are.
  constexpr int filters(const ConvNumbers& a) const {
    const auto left = static_cast<Index>(config.group_results(a)) - first;
    return left < kFilters ? static_cast<int>(left) : kFilters;
  }
  constexpr Index channel(const ConvNumbers& a, int filter) const {
    return group * static_cast<Index>(config.group_results(a)) + first + filter;
  }
  constexpr Index offset(const ConvNumbers& a, int filter, int pixel) const {
    const ConvSteps<Index> to(config.nhwc, config.results(a), config.result_extent(a.depth),
                              config.result_extent(a.height), config.result_extent(a.width));
    return image * to.image + channel(a, filter) * to.channel + depths[pixel] * to.depth +
           rows[pixel] * to.height + columns[pixel] * to.width;
  }

  // All products, none of them with padding: `input(offset)`, `weight(offset)` and, of frames before the
  // input's, `cache(offset)` are numbers in memory.
  template <class Input, class Weight>
  constexpr void add(const ConvNumbers& a, const Input& input, const Weight& weight, const Input& cache) {
    const ConvSteps<Index> kept(config.nhwc, config.inputs(a), config.cached, config.input_extent(a.height),
                                config.input_extent(a.width));
    const ConvSteps<Index> from(config.nhwc, config.inputs(a), config.input_extent(a.depth),
                                config.input_extent(a.height), config.input_extent(a.width));
    const auto terms = static_cast<Index>(config.terms(a)), results = static_cast<Index>(config.results(a));
    const Index begin = image * from.image + group * terms * from.channel;
    // Outputs that are not there are computed as the last.
    Index weights[kFilters] = {};
    for (int filter = 0; filter < kFilters; ++filter)
      weights[filter] = channel(a, lesser(filter, filters(a) - 1));
    Index tap = 0;
    for (Index t = 0; t < static_cast<Index>(a.depth.filter); ++t)
      for (Index r = 0; r < static_cast<Index>(a.height.filter); ++r)
        for (Index s = 0; s < static_cast<Index>(a.width.filter); ++s, ++tap) {
          Index at[kPixels] = {};
          bool inside[kPixels] = {}, of_cache[kPixels] = {}, any = false;
          for (int pixel = 0; pixel < kPixels; ++pixel) {
            Index depth = config.input_at(a.depth, depths[pixel], t);
            const Index row = config.input_at(a.height, rows[pixel], r),
                        column = config.input_at(a.width, columns[pixel], s);
            inside[pixel] = exists[pixel] && depth >= 0 && row >= 0 && column >= 0;
            at[pixel] = begin + depth * from.depth + row * from.height + column * from.width;
            if constexpr (config.cached > 0) {
              depth = config.cached_at(a.depth, depths[pixel], t);
              if (depth >= 0) {
                inside[pixel] = of_cache[pixel] = exists[pixel] && row >= 0 && column >= 0;
                at[pixel] = image * kept.image + group * terms * kept.channel + depth * kept.depth +
                            row * kept.height + column * kept.width;
              }
            }
            any = any || inside[pixel];
          }
          if (!any) continue;
          Index line = tap * terms * results;
          for (Index term = 0; term < terms; ++term, line += results) {
            float in[kPixels] = {};
            for (int pixel = 0; pixel < kPixels; ++pixel)
              if (inside[pixel])
                in[pixel] = config.cached > 0 && of_cache[pixel] ? cache(at[pixel] + term * kept.channel)
                                                                 : input(at[pixel] + term * from.channel);
            for (int filter = 0; filter < kFilters; ++filter) {
              const float by = weight(line + weights[filter]);
              for (int pixel = 0; pixel < kPixels; ++pixel)
                if (inside[pixel]) sums[filter][pixel] += in[pixel] * by;
            }
          }
        }
  }
};

// Locates the gradient of a weight or bias that thread `thread` of block `block` computes: one of them, and
// every so many rows and columns of its sum.
template <GeneralSm80 config, class Index>
struct GeneralGradient {
  bool of_bias, exists;
  Index tap, k, c;  // for the weight, c in its group

  constexpr GeneralGradient(const ConvNumbers& a, Index block, int thread) {
    const auto channels = static_cast<Index>(a.c / a.groups), k_all = static_cast<Index>(a.k);
    const auto weight_blocks = static_cast<Index>(config.weight_blocks(a));
    of_bias = block >= weight_blocks;
    const Index of_tap = static_cast<Index>(ceil_div(a.k * (a.c / a.groups), config.pairs_abreast()));
    const Index first = of_bias ? block - weight_blocks : block % of_tap;
    const Index pair = first * config.pairs_abreast() + thread % config.pairs_abreast();
    tap = of_bias ? 0 : block / of_tap;
    k = of_bias ? pair : pair / channels, c = of_bias ? 0 : pair % channels;
    exists = k < k_all;
  }
  constexpr Index offset(const ConvNumbers& a) const {
    return of_bias ? k : (k * static_cast<Index>(a.c / a.groups) + c) * static_cast<Index>(a.taps()) + tap;
  }

  // `input(offset)` of x and `gradient(offset)` of dy.
  template <class Input, class Gradient>
  constexpr float sum(const ConvNumbers& a, int thread, const Input& input, const Gradient& gradient) const {
    float sum = 0;
    if (!exists) return sum;
    const ConvSteps<Index> x(config.nhwc, a.c, a.depth.input, a.height.input, a.width.input);
    const ConvSteps<Index> dy(config.nhwc, a.k, a.depth.output, a.height.output, a.width.output);
    const auto rows = static_cast<Index>(a.height.output), columns = static_cast<Index>(a.width.output),
               depths = static_cast<Index>(a.depth.output);
    const auto filter_rows = static_cast<Index>(a.height.filter),
               filter_columns = static_cast<Index>(a.width.filter);
    const Index s = tap % filter_columns, r = tap / filter_columns % filter_rows,
                t = tap / filter_columns / filter_rows;
    const Index x_channel = k / static_cast<Index>(a.k / a.groups) * static_cast<Index>(a.c / a.groups) + c;
    const int abreast = thread / config.pairs_abreast();
    const Index all = static_cast<Index>(a.n) * depths * rows;
    for (Index line = abreast / config.columns_abreast(); line < all; line += config.rows_abreast()) {
      const Index row = line % rows, depth = line / rows % depths, image = line / rows / depths;
      const Index x_depth = config.input_at(a.depth, depth, t), x_row = config.input_at(a.height, row, r);
      if (!of_bias && (x_depth < 0 || x_row < 0)) continue;
      const Index from = image * x.image + x_channel * x.channel + x_depth * x.depth + x_row * x.height;
      const Index by = image * dy.image + k * dy.channel + depth * dy.depth + row * dy.height;
      for (Index column = abreast % config.columns_abreast(); column < columns;
           column += config.columns_abreast()) {
        const Index x_column = config.input_at(a.width, column, s);
        if (of_bias)
          sum += gradient(by + column * dy.width);
        else if (x_column >= 0)
          sum += input(from + x_column * x.width) * gradient(by + column * dy.width);
      }
    }
    return sum;
  }
};

}  // namespace convtune
