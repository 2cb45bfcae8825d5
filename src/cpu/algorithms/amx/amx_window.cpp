// See amx_window.h.
#include "cpu/algorithms/amx/amx_window.h"

#include <algorithm>
#include <cstring>

#include "cpu/tile/weave.h"

namespace convtune::cpu {
namespace {

// Pixels of three channels to pixels of four, of which the last is 0: four elements are read at once, but of
// the last pixel, which x may end with.
void widen_threes(const Bf16* from, std::int64_t pixels, Bf16* to) {
  constexpr std::uint64_t kThree = 0xffffffffffff;
  for (std::int64_t i = 0; i < pixels; ++i) {
    std::uint64_t four = 0;
    std::memcpy(&four, from + 3 * i, i + 1 < pixels ? 8 : 6);
    four &= kThree;
    std::memcpy(to + 4 * i, &four, 8);
  }
}

}  // namespace

void stage_amx_window(const ConvProblem& a, const AmxGeometry& g, const TensorKernels& kernels,
                      const OutputTile& tile, const void* x, Bf16* window) {
  const bool nchw = a.layout == Layout::nchw;
  const std::int64_t pixel = nchw ? 1 : a.c, channel = nchw ? a.h * a.w : 1;
  const std::int64_t units = g.tile_rows + g.rows_axis.halo;
  // Window columns [from, to) lie inside the image.
  const std::int64_t left = tile.col * a.stride_w - a.pad_left;
  const auto column_at = [&](std::int64_t input) {
    return std::clamp<std::int64_t>((input - left + g.col_step - 1) / g.col_step, 0, g.window_cols);
  };
  const std::int64_t from = left >= 0 ? 0 : column_at(0);
  const std::int64_t to = left >= a.w ? from : std::max(from, column_at(a.w));
  const auto* const image =
      static_cast<const Bf16*>(x) + tile.image * a.c * a.h * a.w + tile.group * g.group_channels * channel;
  const bool contiguous = !nchw && g.col_step == 1 && g.groups == 1;
  for (std::size_t phase = 0; phase < g.rows_axis.phases.size(); ++phase)
    for (std::int64_t unit = 0; unit < tile.rows + g.rows_axis.halo; ++unit) {
      Bf16* const row = window + (static_cast<std::int64_t>(phase) * units + unit) * g.row;
      const std::int64_t input = (tile.row + unit) * a.stride_h + g.rows_axis.phases[phase] - a.pad_top;
      const bool inside = input >= 0 && input < a.h && from < to;
      const std::int64_t begin = inside ? from : g.window_cols, end = inside ? to : g.window_cols;
      if (inside) {
        const Bf16* const source = image + (input * a.w + left + from * g.col_step) * pixel;
        Bf16* const words = row + from * g.channels;
        const std::int64_t pixels = to - from;
        if (contiguous && g.channels == a.c)
          std::memcpy(words, source, static_cast<std::size_t>(pixels * a.c) * sizeof(Bf16));
        else if (contiguous && a.c == 3 && g.channels == 4)
          widen_threes(source, pixels, words);
        else if (nchw && g.col_step == 1 && g.channels <= kFewPlanes)
          kernels.weave({.planes = source,
                         .channels = g.group_channels,
                         .channel_step = channel,
                         .pixels = pixels,
                         .to = words,
                         .to_step = g.channels});
        else if (g.panel > 0 || (nchw && g.group_channels <= kFewPlanes))
          weave(source, g.group_channels, channel, g.col_step * pixel, pixels, words, g.channels);
        else
          kernels.read({.type = DType::bf16,
                        .words = Words::bf16_pairs,
                        .x = source,
                        .pixel_step = g.col_step * pixel,
                        .channel_step = channel,
                        .pixels = pixels,
                        .channels = g.group_channels,
                        .to = reinterpret_cast<float*>(words),
                        .to_step = g.channels / 2});
      }
      // After what was read, which writes whole vectors.
      std::fill_n(row, begin * g.channels, Bf16{0});
      std::fill_n(row + end * g.channels, (g.window_cols - end) * g.channels, Bf16{0});
    }
}

}  // namespace convtune::cpu
