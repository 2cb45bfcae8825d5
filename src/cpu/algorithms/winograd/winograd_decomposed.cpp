// See winograd_decomposed.h. A block of vectors of tiles has all of its products made by a register tile one
// after the other, and its outputs at once, while both are in the first cache: products are sums over few
// channels here, and what stands between them would take the time.
#include "cpu/algorithms/winograd/winograd_decomposed.h"

#include <algorithm>

#include "cpu/base/caches.h"
#include "cpu/tile/winograd/winograd_repair.h"

namespace convtune::cpu {

WinogradDecomposed::WinogradDecomposed(const ConvProblem& problem, const WinogradConfig& config, int threads)
    : WinogradExecutable(problem, config, threads),
      elements_(problem.input_elements()),
      p_(problem.p()),
      q_(problem.q()) {
  for (int width = 1; width <= config.vectors; ++width)
    multiply_.push_back(winograd_multiply(config.vector_bits, config.channels, width));
}

// The products of a block of vectors stay in the first cache: M has [product][output channel of a
// chunk][tile of the block].
void WinogradDecomposed::compute(const WinogradTask& task, const float* x, const float* packed, float* memory,
                                 const Outputs<float>& outputs) const {
  const WinogradGeometry& g = geometry_;
  std::vector<WinogradPiece> pieces;
  for_each_block(task, [&](std::int64_t first, std::int64_t width) {
    pieces.clear();
    const std::int64_t first_tile = first * kernels_.lanes,
                       tiles = std::min(task.tiles - first_tile, width * kernels_.lanes);
    g.for_each_run(task.first_tile + first_tile, tiles,
                   [&](const WinogradRun& run) { add_pieces(run, pieces); });
    for_each_chunk(task, [&](std::int64_t from, std::int64_t end) {
      multiply_block(task, from, end, first, width, packed, memory);
      finish_block(task, from, end, width, pieces, x, packed, memory, outputs);
    });
  });
}

JoinedRows* WinogradDecomposed::joined_rows(float* memory) const {
  return reinterpret_cast<JoinedRows*>(memory + geometry_.joined_rows);
}
void WinogradDecomposed::begin(float* memory) const {
  for (std::int64_t i = 0; geometry_.joined_rows >= 0 && i < geometry_.group_filters; ++i)
    joined_rows(memory)[i].begin();
}
void WinogradDecomposed::end(float* memory) const {
  for (std::int64_t i = 0; geometry_.joined_rows >= 0 && i < geometry_.group_filters; ++i)
    joined_rows(memory)[i].finish();
}

// A run within a block: its offset is seen from the block's first tile.
void WinogradDecomposed::add_pieces(const WinogradRun& run, std::vector<WinogradPiece>& pieces) const {
  const WinogradGeometry& g = geometry_;
  const std::int64_t lanes = g.m * kernels_.lanes, from = run.offset * g.m;
  const std::int64_t end = from + std::min(run.count * g.m, q_ - run.col * g.m);
  for (std::int64_t vector = from / lanes; vector * lanes < end; ++vector)
    pieces.push_back(
        {.vector = vector,
         .offset = (run.n * problem_.k * p_ + run.row * g.m) * q_ + run.col * g.m - from + vector * lanes,
         .from = std::max<std::int64_t>(from - vector * lanes, 0),
         .end = std::min(end - vector * lanes, lanes),
         .rows = std::min(g.m, p_ - run.row * g.m)});
}

void WinogradDecomposed::multiply_block(const WinogradTask& task, std::int64_t from, std::int64_t end,
                                        std::int64_t first, std::int64_t width, const float* packed,
                                        float* memory) const {
  const WinogradGeometry& g = geometry_;
  const WinogradMultiply multiply = multiply_[static_cast<std::size_t>(width - 1)];
  const std::int64_t lanes = width * kernels_.lanes;
  for (std::int64_t product = 0; product < g.products; product += g.together)
    for (std::int64_t block = from; block < end; ++block)
      multiply({.x = block_of(memory, first) + g.first_channel[static_cast<std::size_t>(product)] * lanes,
                .w = packed + geometry_.packed_panel(task.group, block, product),
                .depth = g.depth.data() + product,
                .products = g.together,
                .sums = memory + g.multiplied + product * product_step(width) +
                        (block - from) * config_.channels * lanes,
                .product_step = product_step(width),
                .row_step = lanes});
}

void WinogradDecomposed::finish_block(const WinogradTask& task, std::int64_t from, std::int64_t end,
                                      std::int64_t width, std::span<const WinogradPiece> pieces,
                                      const float* x, const float* packed, float* memory,
                                      const Outputs<float>& outputs) const {
  const WinogradGeometry& g = geometry_;
  const std::int64_t first = from * config_.channels,
                     last = std::min(end * config_.channels, g.group_filters);
  const float* sums = memory + g.multiplied;
  const bool joins = g.joined_rows >= 0 && reinterpret_cast<std::uintptr_t>(outputs.y) % kCacheLineBytes != 0;
  for (std::int64_t in_group = first; in_group < last; ++in_group) {
    const std::int64_t k = task.group * g.group_filters + in_group;
    const float bias = packed[geometry_.packed_bias_of(task.group, in_group)];
    // Each output stored here with a sum that is not finite is computed again, which a residual in y forbids.
    JoinedRows* const joined = joins ? joined_rows(memory) + in_group : nullptr;
    const bool done = outputs.residual == nullptr &&
                      transforms_.output_pieces(sums, product_step(width), pieces, bias, epilogue_,
                                                outputs.y + k * p_ * q_, q_, config_.stream != 0, joined);
    if (!done) {
      if (joined != nullptr) joined->finish();
      finish_rows(pieces, k, sums, width, x, packed, memory, outputs);
    }
    sums += width * kernels_.lanes;
  }
}

// Finishes a block row by row, with every sum looked at.
void WinogradDecomposed::finish_rows(std::span<const WinogradPiece> pieces, std::int64_t k, const float* from,
                                     std::int64_t width, const float* x, const float* packed, float* memory,
                                     const Outputs<float>& outputs) const {
  const WinogradGeometry& g = geometry_;
  float* const sums = memory + g.sums;
  const bool finite = transforms_.output(from, product_step(width), width, sums, g.sums_stride);
  for (const WinogradPiece& piece : pieces)
    for (std::int64_t r = 0; r < piece.rows; ++r) {
      const std::int64_t first = piece.offset + piece.from, in_image = first % (problem_.k * p_ * q_);
      const OutputPlace place{first / (problem_.k * p_ * q_), k, in_image / q_ + r, in_image % q_};
      float* const values = sums + r * g.sums_stride + piece.vector * g.m * kernels_.lanes + piece.from;
      for (std::int64_t i = 0; !finite && i < piece.end - piece.from; ++i)
        repair_sum(problem_, x, packed + g.packed_weights, {place.n, k, place.row, place.col + i}, values[i]);
      const std::int64_t group = k / g.group_filters, in_group = k % g.group_filters;
      kernels_.finish(values, packed[geometry_.packed_bias_of(group, in_group)], epilogue_,
                      outputs + (k * p_ * q_ + first + r * q_), piece.end - piece.from);
    }
}

std::unique_ptr<Executable> winograd_decomposed(const ConvProblem& problem, const WinogradConfig& config,
                                                int threads) {
  const WinogradGeometry geometry(problem, config, direct_kernels(config.vector_bits)->lanes);
  return (geometry.down_first ? winograd_down_first : winograd_along_first)(problem, config, threads);
}

}  // namespace convtune::cpu
