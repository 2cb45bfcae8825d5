// See winograd_strip.h.
#include "cpu/tile/winograd/winograd_strip.h"

#include <algorithm>
#include <array>

#include "cpu/tile/memory_plan.h"

namespace convtune::cpu {

std::vector<WinogradDown> winograd_down(const WinogradAxis& axis, std::int64_t stride) {
  std::vector<WinogradDown> down;
  for (const WinogradPart& part : axis.parts) {
    const auto row = [&](std::int64_t l) { return part.first + l * stride; };
    std::int64_t fetched = 0;
    const auto add = [&](std::int64_t a, std::int64_t b, auto how) {
      down.push_back({row(a), row(b), how, row(fetched++)});
    };
    if (part.taps == 3) {
      add(0, 2, WinogradDown::taken), add(1, 2, WinogradDown::added);
      add(2, 1, WinogradDown::taken), add(1, 3, WinogradDown::taken);
    } else if (part.taps == 2) {
      add(0, 1, WinogradDown::taken), add(1, 1, WinogradDown::alone), add(1, 2, WinogradDown::taken);
    } else {
      add(0, 0, WinogradDown::alone), add(1, 1, WinogradDown::alone);
    }
  }
  return down;
}

namespace {

constexpr std::int64_t kCopySlack = 16;  // floats between two copied rows

// Columns that a kernel reads of a row: a tile's are two strides; those that the last tile has beyond are
// whole vectors.
std::int64_t strip_columns(const ConvProblem& problem, int lanes) {
  const std::int64_t beyond = std::max<std::int64_t>(problem.s - problem.stride_w, 0);
  return 2 * problem.stride_w * lanes + round_up(beyond, lanes);
}

}  // namespace

std::int64_t winograd_strip_floats(const ConvProblem& problem, int lanes) {
  return (problem.r + problem.stride_h) * (strip_columns(problem, lanes) + kCopySlack);
}

WinogradStrips::WinogradStrips(const ConvProblem& problem, int vector_bits, int lanes)
    : problem_(problem),
      down_(winograd_down(WinogradAxis(problem.r, problem.stride_h, 2), problem.stride_h)),
      kernel_(winograd_strip_kernel(vector_bits, problem.s, problem.stride_w)),
      rows_(problem.r + problem.stride_h),
      along_(std::ssize(WinogradAxis(problem.s, problem.stride_w, 2).products)),
      columns_(strip_columns(problem, lanes)),
      elements_(problem.input_elements()) {}

// The first and the last channels of x, whose vectors would begin before x or end behind it, are copied.
void WinogradStrips::transform(const Tiles& tiles, std::span<const WinogradStrip::Piece> pieces,
                               const std::int64_t* places, const float* x, float* copied) const {
  const ConvProblem& a = problem_;
  const std::int64_t row = tiles.row * 2 * a.stride_h - a.pad_top,
                     col = tiles.col * 2 * a.stride_w - a.pad_left;
  const std::int64_t place = ((tiles.n * a.c + tiles.channel) * a.h + row) * a.w + col, plane = a.h * a.w;
  WinogradStrip strip{.x = x + place,
                      .row_step = a.w,
                      .plane = plane,
                      .from_row = std::clamp<std::int64_t>(-row, 0, rows_),
                      .end_row = std::clamp<std::int64_t>(a.h - row, 0, rows_),
                      .from_col = std::max<std::int64_t>(-col, 0),
                      .end_col = a.w - col,
                      .channels = tiles.channels,
                      .down = std::span(down_).subspan(
                          tiles.first_down, std::min(tiles.end_down, down_.size()) - tiles.first_down),
                      .pieces = pieces,
                      .places = places + static_cast<std::int64_t>(tiles.first_down) * along_};
  const std::int64_t first = place + strip.from_row * a.w, end = place + (strip.end_row - 1) * a.w + columns_;
  const std::int64_t before = first < 0 ? std::min((-first - 1) / plane + 1, tiles.channels) : 0;
  const std::int64_t within = end > elements_ ? 0 : std::min((elements_ - end) / plane + 1, tiles.channels);
  if (before == 0 && within == tiles.channels) return kernel_(strip);

  std::array<WinogradStrip::Piece, kMostPieces> moved{};
  const auto of_channels = [&](std::int64_t from, std::int64_t count) {
    for (std::size_t i = 0; i < pieces.size(); ++i)
      moved[i] = pieces[i], moved[i].to += from * pieces[i].step;
    WinogradStrip some = strip;
    some.x += from * plane, some.channels = count;
    some.pieces = std::span(moved).first(pieces.size());
    return some;
  };
  const std::int64_t last_col = std::max(std::min(strip.end_col, columns_), strip.from_col);
  const auto copy = [&](std::int64_t c) {
    WinogradStrip one = of_channels(c, 1);
    for (std::int64_t i = strip.from_row; i < strip.end_row; ++i)
      std::copy(one.x + i * a.w + strip.from_col, one.x + i * a.w + last_col,
                copied + i * (columns_ + kCopySlack) + strip.from_col);
    one.x = copied, one.row_step = columns_ + kCopySlack;
    kernel_(one);
  };
  for (std::int64_t c = 0; c < before; ++c) copy(c);
  if (within > before) kernel_(of_channels(before, within - before));
  for (std::int64_t c = std::max(before, within); c < tiles.channels; ++c) copy(c);
}

}  // namespace convtune::cpu
