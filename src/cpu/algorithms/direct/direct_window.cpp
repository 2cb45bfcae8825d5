// See direct_window.h.
#include "cpu/algorithms/direct/direct_window.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace convtune::cpu {
namespace {

// The elements of a row beside its sweep, as offsets into the planes of its phases: zeros, and copies of
// elements of the input's row.
struct RowEdges {
  struct Copy {
    std::int64_t to, from;
  };
  std::vector<std::int64_t> zeros;
  std::vector<Copy> copies;
  std::vector<float> padded;  // a row with zeros beside it, of which there are shifted copies
};

// How the rows of a tile become rows of phases, all of them alike: one sweep over columns that lie in the
// image with all of a stride, and element by element what lies beside it.
struct Staging {
  // `kept`: a thread's memory for the edges. To allocate it each time took a tenth of a run of 16 outputs.
  Staging(const ConvProblem& p, const DirectGeometry& g, const DirectKernels& k, std::int64_t first_col,
          RowEdges& kept)
      : geometry(g), kernels(k), stride(p.stride_w), edges(kept) {
    const std::int64_t step = p.layout == Layout::nchw ? 1 : p.c;  // floats from column to column
    const std::vector<std::int64_t>& phases = g.cols_axis.phases;
    first = first_col * stride - p.pad_left;
    if (step == 1 && phases.back() + 1 == std::ssize(phases)) {
      from = first >= 0 ? 0 : std::min((-first + stride - 1) / stride, g.pitch);
      end = std::clamp((p.w - first) / stride, from, g.pitch);
    }
    edges.zeros.clear(), edges.copies.clear(), edges.padded.clear();
    if (g.shifted) {
      const std::int64_t columns = g.pitch + phases.back();
      from = std::clamp<std::int64_t>(-first, 0, columns);
      end = std::clamp(p.w - first, from, columns);
      edges.padded.resize(static_cast<std::size_t>(columns + kernels.lanes));
      return;
    }
    for (std::size_t j = 0; j < phases.size(); ++j)
      for (std::int64_t i = 0; i < g.pitch; ++i) {
        if (i >= from && i < end) continue;
        const std::int64_t column = first + i * stride + phases[j];
        const std::int64_t to = static_cast<std::int64_t>(j) * g.plane + i;
        if (column >= 0 && column < p.w)
          edges.copies.push_back({to, column * step});
        else
          edges.zeros.push_back(to);
      }
  }

  void row(const float* input, float* to) const {
    if (geometry.shifted) {
      std::copy(input + first + from, input + first + end, edges.padded.data() + from);
      const std::vector<std::int64_t>& phases = geometry.cols_axis.phases;
      const std::int64_t step = phases.size() > 1 ? phases[1] : 0;
      return kernels.slide(edges.padded.data(), std::ssize(phases), step, geometry.pitch, to, geometry.plane);
    }
    if (from < end)
      kernels.split_phases(input + first + from * stride, stride, geometry.cols_extent.phases, end - from,
                           to + from, geometry.plane);
    for (const std::int64_t zero : edges.zeros) to[zero] = 0;
    for (const RowEdges::Copy& copy : edges.copies) to[copy.to] = input[copy.from];
  }

  const DirectGeometry& geometry;
  const DirectKernels& kernels;
  std::int64_t stride, first;  // the input column behind element 0 of phase 0
  std::int64_t
      from = 0,
      end = 0;  // elements of every phase that are swept; shifted: columns of a row that are in the image
  RowEdges& edges;
};

// stage(channel of words, row of the image, where it goes) for every row of the window that lies in the
// image; the others are zeros.
template <class Stage>
void for_rows(const ConvProblem& a, const DirectGeometry& g, const OutputTile& tile, float* window,
              const Stage& stage) {
  for (std::int64_t c = 0; c < g.group_channels; ++c) {
    float* planes = window + c * g.channel;
    for (const std::int64_t phase : g.rows_axis.phases) {
      for (std::int64_t unit = 0; unit < tile.rows + g.rows_axis.halo; ++unit) {
        const std::int64_t row = (tile.row + unit) * a.stride_h + phase - a.pad_top;
        float* const to = planes + unit * g.pitch;
        if (row >= 0 && row < a.h) {
          stage(c, row, to);
        } else {
          for (std::int64_t j = 0; j < g.cols_extent.phases; ++j)
            std::fill_n(to + j * g.plane, g.pitch, 0.0F);
        }
      }
      planes += g.cols_extent.phases * g.plane;
    }
  }
}

void stage_floats(const ConvProblem& a, const DirectGeometry& g, const DirectKernels& kernels,
                  const OutputTile& tile, const float* x, float* window) {
  const bool nchw = a.layout == Layout::nchw;
  const std::int64_t step = nchw ? 1 : a.c, channel_step = nchw ? a.h * a.w : 1;
  const float* const image = x + tile.image * a.c * a.h * a.w + tile.group * g.group_channels * channel_step;
  thread_local RowEdges edges;
  const Staging staging(a, g, kernels, tile.col, edges);
  for_rows(a, g, tile, window, [&](std::int64_t c, std::int64_t row, float* to) {
    staging.row(image + c * channel_step + row * a.w * step, to);
  });
}

// Rows of pairs of bf16.
class PairStaging {
 public:
  PairStaging(const ConvProblem& p, const DirectGeometry& g, const DirectKernels& k, std::int64_t first_col)
      : problem(p),
        geometry(g),
        kernels(k),
        elements(pairs_channels(p) ? g.pitch + 1 : 2 * g.pitch * g.words.stride_w),
        left(first_col * p.stride_w - p.pad_left),
        from(std::clamp<std::int64_t>(-left, 0, elements)),
        to(std::clamp<std::int64_t>(p.w - left, from, elements)) {}

  // Packs a channel's row with that of the channel paired with it; `next` is null where there is none.
  void row(const Bf16* input, const Bf16* next, float* words) const {
    const std::int64_t stride = geometry.words.stride_w;
    if (!pairs_channels(problem) && stride == 1) return copy(input, words);
    thread_local std::vector<float> memory;
    const std::int64_t floats = elements / 2 + 1;
    memory.resize(static_cast<std::size_t>(2 * floats));
    auto* const lower = reinterpret_cast<Bf16*>(memory.data());
    auto* const upper = next != nullptr ? reinterpret_cast<Bf16*>(memory.data() + floats) : lower + 1;
    copy(input, lower);
    if (next != nullptr) copy(next, upper);
    if (pairs_channels(problem))
      kernels.join(lower, upper, geometry.pitch, words);
    else
      kernels.split_phases(memory.data(), stride, geometry.cols_extent.phases, geometry.pitch, words,
                           geometry.plane);
  }

 private:
  // A row from the tile's first column on, zeros beside the image.
  void copy(const Bf16* input, void* row) const {
    constexpr std::int64_t kElement = sizeof(Bf16);
    const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count * kElement); };
    auto* const at = static_cast<char*>(row);
    std::memset(at, 0, bytes(from));
    if (from < to) std::memcpy(at + bytes(from), input + left + from, bytes(to - from));
    std::memset(at + bytes(to), 0, bytes(elements - to));
  }

  const ConvProblem& problem;
  const DirectGeometry& geometry;
  const DirectKernels& kernels;
  std::int64_t elements, left;  // a row's: how many, and the input column of the first
  std::int64_t from, to;        // those that lie in the image
};

void stage_pairs(const ConvProblem& a, const DirectGeometry& g, const DirectKernels& kernels,
                 const OutputTile& tile, const Bf16* x, float* window) {
  const PairStaging staging(a, g, kernels, tile.col);
  const std::int64_t channels = a.c / a.groups, together = pairs_channels(a) ? 2 : 1;
  const Bf16* const image = x + (tile.image * a.c + tile.group * channels) * a.h * a.w;
  for_rows(a, g, tile, window, [&](std::int64_t c, std::int64_t row, float* words) {
    const Bf16* const from = image + (c * together * a.h + row) * a.w;
    const bool is_paired = together == 2 && 2 * c + 1 < channels;
    staging.row(from, is_paired ? from + a.h * a.w : nullptr, words);
  });
}

}  // namespace

void stage_window(const ConvProblem& problem, const DirectGeometry& geometry, const DirectKernels& kernels,
                  const OutputTile& tile, const void* x, float* window) {
  if (problem.dtype.x == DType::bf16)
    stage_pairs(problem, geometry, kernels, tile, static_cast<const Bf16*>(x), window);
  else
    stage_floats(problem, geometry, kernels, tile, static_cast<const float*>(x), window);
}

WindowAhead::WindowAhead(const ConvProblem& problem, const OutputTile& now, const OutputTile& next,
                         const void* x, std::int64_t calls, std::int64_t taps) {
  const auto first_row = [&](const OutputTile& tile) {
    return tile.row * problem.stride_h - problem.pad_top;
  };
  const auto end_row = [&](const OutputTile& tile) {
    return first_row(tile) + (tile.rows - 1) * problem.stride_h + (problem.r - 1) * problem.dilation_h + 1;
  };
  const bool follows = now.image == next.image && now.group == next.group && now.row < next.row;
  const std::int64_t from = std::clamp<std::int64_t>(
      follows ? std::max(first_row(next), end_row(now)) : first_row(next), 0, problem.h);
  const std::int64_t to = std::clamp(end_row(next), from, problem.h);
  // Rows of a plane lie side by side, or those of all channels do.
  const bool nchw = problem.layout == Layout::nchw;
  const std::int64_t pixel = nchw ? 1 : problem.c, plane = problem.h * problem.w;
  const std::int64_t element = size_of(problem.dtype.x), channels = problem.c / problem.groups;
  planes_ = nchw ? channels : 1;
  plane_step_ = plane * element;
  bytes_ = (to - from) * problem.w * pixel * element;
  plane_ =
      static_cast<const char*>(x) + (next.image * problem.c * plane +
                                     (nchw ? next.group * channels * plane : 0) + from * problem.w * pixel) *
                                        element;
  lines_ = planes_ * (bytes_ / kCacheLineBytes + 1) / std::max<std::int64_t>(calls, 1) + 1;
  // Too little is computed with them to hide them behind it.
  const std::int64_t most = std::max<std::int64_t>(8, taps / 2);
  if (lines_ > most) lines_ = 0;
}

}  // namespace convtune::cpu
