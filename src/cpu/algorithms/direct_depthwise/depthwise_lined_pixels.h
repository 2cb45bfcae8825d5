// Channels last without a stride where x and y begin equally far behind a line of the cache, and pixels are
// whole lines: vectors of channels begin with the lines of both, so that no load and no store crosses one.
// One line of each pixel is then of two: the last channels of the one before, and the first `cut` of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/algorithms/direct_depthwise/depthwise_pixels.h"
#include "cpu/base/caches.h"
#include "cpu/tile/tensor_kernels.h"

namespace convtune::cpu {

// A thread's part.
template <class T>
class LinedPixels {
 public:
  using Task = DepthwiseTask<T>;

  // How many channels lie before a pixel's first line; 0: vectors begin with pixels.
  static std::int64_t cut_of(const DepthwiseGeometry& g, const void* x, const void* y) {
    const auto behind = [](const void* at) {
      return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(at) % kCacheLineBytes);
    };
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
    const std::int64_t cut = (kCacheLineBytes - behind(y)) / kBytes % g.step;
    const bool cuts_groups = cut % g.group_channels != 0 || cut % g.parts != 0;
    return g.lined_floats == 0 || behind(x) != behind(y) || behind(y) % kBytes != 0 || cuts_groups ? 0 : cut;
  }

  // `memory` has room for DepthwiseGeometry::lined_floats.
  LinedPixels(const DepthwisePixels<T>& pixels, const ConvProblem& problem, const DepthwiseGeometry& geometry,
              const TensorKernels& kernels, std::int64_t cut, bool stream, float* memory)
      : pixels_(pixels),
        problem_(problem),
        geometry_(geometry),
        kernels_(kernels),
        cut_(cut),
        stream_(stream),
        weights_(memory),
        first_channels_(
            reinterpret_cast<T*>(memory + geometry.packed_flag + kCacheLineBytes / sizeof(float))),
        last_channels_(first_channels_ + (kLinesJoined + 1) * geometry.step),
        waiting_(last_channels_ + (kLinesJoined + 1) * geometry.step) {}

  void compute(const Task& task) {
    if (packed_ != task.packed) shift_weights(task.packed);
    const ConvProblem& a = problem_;
    PixelArgs<T> args = pixels_.args_of(task);
    for (std::int64_t row = task.row; row < task.row + task.rows; ++row) {
      const Row at = pixels_.begin_row(task, row, args);
      // The two pixels of lines [from, to) meet no padding: they are computed as one, as they lie beside each
      // other in x, too. Of other lines both parts are computed apart.
      const std::int64_t from = std::max(task.col, a.pad_left) + 1,
                         to = std::min(task.end_col, a.w + a.pad_left - (a.s - 1) * a.dilation_w);
      for (std::int64_t col = task.col, end; col < task.end_col; col = end) {
        end = col + pixels_.tiles.next(task.end_col - col);
        const std::int64_t first = std::clamp(from, col, end), last = std::clamp(to, first, end);
        const bool whole = last - first == end - col;
        lines(task, at, args, pixels_.tiles, col, end, whole ? 0 : 1, geometry_.vectors);
        if (!whole) {
          join(task, at, args, col, first);
          lines(task, at, args, pixels_.columns, first, last, 0, 1);
        }
        join(task, at, args, last, end + (end == task.end_col));
      }
    }
  }
  // Stores what is left of the last line.
  void finish() {
    if (waits_for_ != nullptr) std::copy(waiting_ + cut_, waiting_ + geometry_.step, waits_for_);
    waits_for_ = nullptr;
  }

 private:
  using Row = typename DepthwisePixels<T>::Row;
  using Sizes = typename DepthwisePixels<T>::Sizes;

  // Copies weights and bias, so that vectors begin with lines: vector 0 is a pixel's last channels and the
  // first ones of the next.
  void shift_weights(const float* packed) {
    const DepthwiseGeometry& g = geometry_;
    const std::int64_t row = g.parts > 1 && g.group_channels == 1 ? g.lanes : g.step,
                       shift = cut_ * row / g.step;
    const auto copy = [&](std::int64_t begin, std::int64_t floats) {
      for (std::int64_t vector = 0; vector < g.vectors; ++vector) {
        const float* const before = packed + begin + (vector == 0 ? g.vectors - 1 : vector - 1) * floats;
        const float* const own = packed + begin + vector * floats;
        for (std::int64_t i = 0; i < floats; i += row) {
          float* const to = weights_ + begin + vector * floats + i;
          std::copy(own + i, own + i + shift, std::copy(before + i + shift, before + i + row, to));
        }
      }
    };
    copy(0, g.packed_bias / g.vectors);
    copy(g.packed_bias, g.step);
    packed_ = packed;
  }

  // Outputs of pixels [col, end) in the vectors of lines [first, last).
  void lines(const Task& task, Row at, PixelArgs<T>& args, const Sizes& sizes, std::int64_t col,
             std::int64_t end, std::int64_t first, std::int64_t last) const {
    const std::int64_t back = geometry_.step - cut_;
    at.window -= back, at.fetch -= back;
    args.first_vector = first, args.end_vector = last, args.channels = problem_.c;
    args.weights = weights_ + at.weights, args.bias = weights_ + geometry_.packed_bias;
    args.y_step = problem_.k, args.stream = stream_;
    for (std::int64_t pixels; first < last && col < end; col += pixels) {
      pixels = sizes.next(end - col);
      args.y = task.y + (at.y + col * problem_.k - back);
      pixels_.compute_pixels(sizes, at, col, pixels, args);
    }
  }

  // Outputs of pixels [col, end) in one vector of pixels, to `to`.
  void apart(const Task& task, Row at, PixelArgs<T>& args, std::int64_t col, std::int64_t end,
             std::int64_t vector, T* to) const {
    at.window += vector * geometry_.step, at.fetch += vector * geometry_.step;
    args.first_vector = 0, args.end_vector = 1, args.channels = geometry_.step;
    args.weights = task.packed + vector * args.weight_step + at.weights;
    args.bias = task.packed + geometry_.packed_bias + vector * geometry_.step;
    args.y_step = geometry_.step, args.stream = false;
    for (std::int64_t pixels; col < end; col += pixels) {
      pixels = pixels_.columns.next(end - col);
      args.y = to;
      pixels_.compute_pixels(pixels_.columns, at, col, pixels, args);
      to += pixels * geometry_.step;
    }
  }

  // Lines [line, end), numbered by the pixels whose first channels they have. The last one of a row is that
  // of the next row's first pixel: it waits.
  void join(const Task& task, const Row& at, PixelArgs<T>& args, std::int64_t line, std::int64_t end) {
    const std::int64_t step = geometry_.step, back = step - cut_;
    for (std::int64_t next; line < end; line = next) {
      next = std::min(line + kLinesJoined, end);
      T* const y = task.y + (at.y + line * problem_.k - back);
      const bool begins = line == task.col, ends = next > task.end_col;
      apart(task, at, args, line, next - ends, 0, first_channels_);
      apart(task, at, args, line - !begins, next - 1, geometry_.vectors - 1,
            last_channels_ + (begins ? step : 0));
      std::int64_t skip = 0;
      if (begins && waits_for_ == y) {
        std::copy(waiting_, waiting_ + step, last_channels_);
        waits_for_ = nullptr;
      } else if (begins) {
        finish();
        std::copy(first_channels_, first_channels_ + cut_, y + back);
        skip = 1;
      }
      if (ends) {
        const T* const last = last_channels_ + (next - 1 - line) * step;
        std::copy(last, last + step, waiting_);
        waits_for_ = y + (next - 1 - line) * problem_.k;
      }
      constexpr auto kFloatElements = static_cast<std::int64_t>(sizeof(float) / sizeof(T));
      kernels_.join_lines({.ends = reinterpret_cast<const float*>(last_channels_ + skip * step),
                           .begins = reinterpret_cast<const float*>(first_channels_ + skip * step),
                           .words = back / kFloatElements,
                           .lines = next - ends - line - skip,
                           .to = reinterpret_cast<float*>(y + skip * problem_.k),
                           .to_step = problem_.k / kFloatElements,
                           .stream = stream_});
    }
  }

  const DepthwisePixels<T>& pixels_;
  const ConvProblem& problem_;
  const DepthwiseGeometry& geometry_;
  const TensorKernels& kernels_;
  const std::int64_t cut_;
  const bool stream_;
  float* const weights_;
  const float* packed_ = nullptr;  // packed weights that weights_ were made of
  // Vectors of lines whose two parts are computed apart: those that begin a pixel, and those that end one.
  T *const first_channels_, *const last_channels_;
  T* const waiting_;        // a row's last channels
  T* waits_for_ = nullptr;  // the line of y that they begin; null: none do
};

}  // namespace convtune::cpu
