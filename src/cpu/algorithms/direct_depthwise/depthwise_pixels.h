// Tasks of the depthwise convolution whose channels lie last: which kernels compute which of their pixels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/algorithms/direct_depthwise/depthwise_geometry.h"
#include "cpu/algorithms/direct_depthwise/depthwise_kernels.h"
#include "cpu/tile/line_buffer.h"
#include "cpu/tile/tile_epilogue.h"

namespace convtune::cpu {

// Rows of a plane of the output, or of an image where channels are last, and columns of them. With a depth
// planes and images are frames: those of a volume follow each other.
template <class T>
struct DepthwiseTask {
  const T *x, *residual;
  T* y;
  const float* packed;
  std::int64_t plane, row, rows, col, end_col;
};

// Taps along an axis that lie in the image, and where the first of them is.
struct TapsInside {
  std::int64_t from, count, at;

  TapsInside(std::int64_t first, std::int64_t taps, std::int64_t dilation, std::int64_t size)
      : from(first >= 0 ? 0 : std::min((-first - 1) / dilation + 1, taps)),
        count((first >= size ? from : std::clamp((size - first - 1) / dilation + 1, from, taps)) - from),
        at(first + from * dilation) {}
};

inline TapsInside frames_of_outputs(const ConvProblem& a, std::int64_t frame) {
  return {frame * a.stride_d - a.pad_front, a.t, a.dilation_d, a.d};
}

template <class T>
class DepthwisePixels {
 public:
  DepthwisePixels(const ConvProblem& problem, const DepthwiseConfig& config,
                  const DepthwiseGeometry& geometry, bool fetches_ahead)
      : problem_(problem), config_(config), geometry_(geometry), fetches_ahead_(fetches_ahead) {
    for (std::int64_t word = 0; word < geometry.words; ++word)
      for (std::int64_t lane = 0; lane < geometry.step; ++lane)
        shuffle_.push_back(static_cast<std::int32_t>(
            geometry.shuffled(lane / geometry.lanes, lane % geometry.lanes) + word));
    for (std::int64_t pixels = 1; pixels <= kMostPixels; ++pixels) {
      const PixelKernel<T> kernel =
          depthwise_kernels<T>(config.vector_bits)->pixels(pixel_tile(problem), pixels);
      if (pixels <= config.tile) tiles.kernels.push_back(kernel);
      columns.kernels.push_back(kernel);
    }
    for (Sizes* sizes : {&tiles, &columns})
      while (sizes->kernels.back() == nullptr) sizes->kernels.pop_back();
  }

  // Kernels of 1 pixel and more.
  struct Sizes {
    std::vector<PixelKernel<T>> kernels;

    // Number of pixels, of `left`, that are computed next: register tiles are nearly equal.
    std::int64_t next(std::int64_t left) const {
      const std::int64_t count = (left - 1) / std::ssize(kernels) + 1;
      std::int64_t pixels = (left - 1) / count + 1;
      while (pixels < left && !of(pixels)) ++pixels;
      while (!of(pixels)) --pixels;
      return pixels;
    }
    PixelKernel<T> of(std::int64_t pixels) const { return kernels[static_cast<std::size_t>(pixels - 1)]; }
  };
  Sizes tiles;    // as the config wants them
  Sizes columns;  // for one vector of channels: of all sizes

  void compute(const DepthwiseTask<T>& task, LineBuffer<T>& lines) const {
    const bool begins_line = reinterpret_cast<std::uintptr_t>(task.y) % kCacheLineBytes == 0;
    const bool buffered = config_.stream != 0 && !begins_line;  // whole pixels follow each other then
    const std::int64_t vectors = geometry_.vectors,
                       together = config_.vectors == 0 || buffered ? vectors : config_.vectors;
    for (std::int64_t first = 0; first < vectors; first += together)
      compute_vectors(task, first, std::min(first + together, vectors), buffered ? &lines : nullptr);
  }

  // The frame of all pixels of a task: y's memory and the vectors of channels are the caller's.
  PixelArgs<T> args_of(const DepthwiseTask<T>& task) const {
    const ConvProblem& a = problem_;
    const DepthwiseGeometry& g = geometry_;
    PixelArgs<T> args{};
    args.x = task.x;
    args.x_step = a.c;
    args.row_step = a.dilation_h * a.w * a.c;
    args.frames = frames_inside(task).count, args.frame_step = a.dilation_d * a.h * a.w * a.c;
    args.filter_cols = a.s;
    args.stride = a.stride_w, args.dilation = a.dilation_w;
    args.phases = tap_phases(a.s, a.dilation_w, a.stride_w);
    args.width = a.w;
    args.fetch_rows = !fetches_ahead_ ? 0 : a.h == 1 ? 1 : a.stride_h;
    args.fetch_step = a.w * a.c;
    args.end_vector = g.vectors, args.channels = a.c;
    args.frame_weights = a.r * row_weights(), args.weight_step = a.t * args.frame_weights;
    args.words = g.words;
    args.shuffle = shuffle_.data();
    args.epilogue = epilogue_of(a);
    args.y_step = a.k;
    return args;
  }

  // A row of a task's outputs: its first element in y's image, and in x's window of column 0; the weights of
  // its first tap.
  struct Row {
    std::int64_t y, window, fetch, weights;
  };
  Row begin_row(const DepthwiseTask<T>& task, std::int64_t row, PixelArgs<T>& args) const {
    const ConvProblem& a = problem_;
    const TapsInside frames = frames_inside(task);
    const std::int64_t top = row * a.stride_h - a.pad_top,
                       frame = task.plane / geometry_.output_frames * a.d + frames.at;
    const TapsInside rows(top, a.r, a.dilation_h, a.h);
    args.filter_rows = rows.count;
    const std::int64_t window = ((frame * a.h + top) * a.w - a.pad_left) * a.c;
    // The last of several frames is new. An image of one row goes on where the window ends.
    const std::int64_t newest = window + (frames.count > 1 ? (frames.count - 1) * args.frame_step : 0);
    return {(task.plane * geometry_.output_rows + row) * geometry_.output_cols * a.k,
            window + rows.from * args.row_step,
            newest + (a.h == 1 ? ((a.s - 1) * a.dilation_w + 1 - a.stride_w) * a.c
                               : args.row_step * (a.r - 1) + args.fetch_step + a.pad_left * a.c),
            frames.from * args.frame_weights + rows.from * row_weights()};
  }
  // Computes `pixels` pixels from `col` on by a kernel of that size.
  void compute_pixels(const Sizes& sizes, const Row& row, std::int64_t col, std::int64_t pixels,
                      PixelArgs<T>& args) const {
    const std::int64_t at = col * problem_.stride_w;
    args.first_col = at - problem_.pad_left;
    args.origin = row.window + at * problem_.c;
    args.fetch = row.fetch + (at + (problem_.h == 1 ? pixels * problem_.stride_w : 0)) * problem_.c;
    sizes.of(pixels)(args);
  }

 private:
  std::int64_t row_weights() const { return geometry_.words * problem_.s * geometry_.step; }
  TapsInside frames_inside(const DepthwiseTask<T>& task) const {
    return frames_of_outputs(problem_, task.plane % geometry_.output_frames);
  }

  void compute_vectors(const DepthwiseTask<T>& task, std::int64_t first, std::int64_t end,
                       LineBuffer<T>* lines) const {
    PixelArgs<T> args = args_of(task);
    args.first_vector = first, args.end_vector = end;
    args.bias = task.packed + geometry_.packed_bias;
    args.stream = config_.stream != 0 && lines == nullptr;
    for (std::int64_t row = task.row; row < task.row + task.rows; ++row) {
      const Row at = begin_row(task, row, args);
      args.weights = task.packed + at.weights;
      for (std::int64_t col = task.col, pixels; col < task.end_col; col += pixels) {
        pixels = tiles.next(task.end_col - col);
        const std::int64_t pixel = at.y + col * problem_.k;
        args.y = lines ? lines->place_of(task.y + pixel) : task.y + pixel;
        args.residual = task.residual ? task.residual + pixel : nullptr;
        compute_pixels(tiles, at, col, pixels, args);
        if (lines) lines->put(pixels * problem_.k);
      }
    }
  }

  const ConvProblem& problem_;
  const DepthwiseConfig& config_;
  const DepthwiseGeometry& geometry_;
  const bool fetches_ahead_;           // true: x is larger than the second cache
  std::vector<std::int32_t> shuffle_;  // words of lanes (PixelArgs)
};

}  // namespace convtune::cpu
