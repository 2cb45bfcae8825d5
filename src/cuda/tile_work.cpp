// Geometry comes from the kernels' own headers; instructions were counted in their source, by phases: those
// of the loops that everything hangs on exactly, the others roughly.
#include "cuda/tile_work.h"

#include <algorithm>
#include <cmath>

#include "cuda/direct_body_sm90.h"
#include "cuda/direct_depthwise_sm80.h"
#include "cuda/direct_fma_sm80.h"
#include "cuda/direct_patch_sm90.h"
#include "cuda/direct_stem_sm80.h"
#include "cuda/direct_stem_sm90.h"
#include "cuda/implicit_gemm_sm80.h"

namespace convtune::cuda {
namespace {

constexpr double kBulkBytes = 512;  // that a warp copies by one instruction, 16 a thread

// A tile's outputs, written in pieces of so many floats. Their ends lie anywhere in a sector of 8, unless all
// pieces are whole sectors.
void store_in_pieces(TileWork& work, double outputs, double piece) {
  work.stored_bytes = 4 * outputs;
  work.pieces = outputs / piece;
  work.part_sectors = std::fmod(piece, 8) == 0 ? 0 : work.pieces * 2 * 7 / 8;
}

// The input's rows that some filter row meets.
double read_bytes(const Conv2dProblem& a) {
  const double rows = std::min(static_cast<double>(a.h), static_cast<double>(a.p() * a.r));
  return 4.0 * static_cast<double>(a.n * a.c * a.w) * rows;
}

double outputs_of(const Conv2dExtents& a) {
  return static_cast<double>(a.n) * a.k * a.p * a.q;
}

// An output row. A product of wgmma reads both operands from shared memory: 64 pixels, and filters. Bulk
// copies bring whole units; warps of their own round them; others store whole sectors.
TileWork work_of(const DirectStemSm90& a) {
  const double filters = a.filters, products = a.tiles() * a.k_steps();
  const double chunks = 1.0 * a.c * a.unit_rows() * a.row_chunks();
  const double computed = a.tiles() * DirectStemSm90::kTile * filters;
  TileWork work;
  work.tiles = static_cast<double>(a.rows()) * a.filter_blocks();
  work.persistent = work.wgmma = true;
  work.load_warps = a.threads() / 32.0 - 4 * a.consumers;
  work.in_flight_bytes = (a.units - a.halo()) * static_cast<double>(a.unit_bytes());
  work.load.instructions = chunks / 32 * 20;
  work.load.wavefronts = chunks / 32 * 4 * 3;
  work.load.l2_bytes = 4.0 * a.c * a.unit_rows() * a.w;
  work.multiply.products = products * filters / 2;
  work.multiply.instructions = products * 4 * 6;
  work.multiply.wavefronts = products * (16 + filters / 4);
  work.multiply.waits = 1.0 * a.tiles() / a.consumers;
  work.store.instructions = computed / 32 * 3;
  work.store.wavefronts = computed / 32 * 2;
  work.store_beside = true;
  store_in_pieces(work, 1.0 * a.n * a.k * a.p * a.q / work.tiles, DirectStemSm90::kTile);
  return work;
}

// A tile of filters and positions.
TileWork work_of(const DirectBodySm90& a) {
  const double blocks = a.blocks(), positions = a.positions;
  const double chunks = blocks * a.unit_chunks() * a.stage_units();
  const double weight_bytes = blocks * a.weight_groups() * a.weight_stage_bytes();
  const double products = blocks * a.steps() * a.consumers();
  const double computed = positions * a.consumers() * DirectBodySm90::kTile;
  TileWork work;
  work.tiles = static_cast<double>(a.tiles());
  work.persistent = work.wgmma = true;
  work.load_warps = a.loaders() / 32.0;
  work.load_beside = true;
  work.in_flight_bytes = 16.0 * 20 * a.loaders();
  work.load.instructions = chunks / 32 * 35;
  work.load.wavefronts = chunks / 32 * 4;
  // Columns that no tap meets come along in their sectors.
  const double along = std::min(1.0 * a.conv.stride_w / a.phases_w(), 8.0);
  work.load.l2_bytes = chunks * 16 * along + weight_bytes;
  work.multiply.products = products * positions / 2;
  work.multiply.instructions = products * 4 * 4;
  work.multiply.wavefronts = products * (16 + positions / 4) + weight_bytes / 128;
  work.multiply.waits = blocks * a.weight_groups();
  work.store.instructions = computed / 32 * 8;
  work.store.wavefronts = computed / 32 * (a.staged ? 2.5 : 1);
  store_in_pieces(work, outputs_of(a.conv) / work.tiles,
                  std::min<double>(positions, static_cast<double>(a.segment_positions())));
  return work;
}

// A tile of positions and filters. The copy engine brings rows as they lie; a product of wgmma reads weights
// from shared memory and positions from registers; boxes are stored once the sums are complete.
TileWork work_of(const DirectPatchSm90& a) {
  const double stages = a.sum_stages(), products = stages * a.steps() * a.consumers;
  const double computed = 1.0 * a.block_positions() * a.filters;
  const double loaded = stages * static_cast<double>(a.stage_bytes());
  TileWork work;
  work.tiles = static_cast<double>(a.tiles());
  work.persistent = work.wgmma = true;
  work.load_warps = 1;
  work.in_flight_bytes = static_cast<double>(a.stages) * static_cast<double>(a.stage_bytes());
  work.load.instructions = stages * 60;
  work.load.wavefronts = loaded / 128;
  work.load.l2_bytes = loaded;
  work.multiply.products = products * a.filters / 2;
  work.multiply.instructions = products * 4 * 20;
  work.multiply.wavefronts = products * (16 + a.filters / 4.0);
  work.multiply.waits = stages;
  work.store.instructions = computed / 32 * 4;
  work.store.wavefronts = computed / 32 * 2;
  store_in_pieces(work, outputs_of(a.conv) / work.tiles, 32);
  if (a.conv.p * a.conv.q % 8 != 0) work.part_sectors = work.pieces;  // of every second filter
  return work;
}

// A tile of filters and positions; the input gathered by copies of 4 bytes, where rows are not as they lie.
TileWork work_of(const ImplicitGemmSm80& a) {
  const Conv2dExtents& e = a.problem;
  const double m = a.block_m, n = a.block_n, k_blocks = a.k_blocks(e), k = k_blocks * a.block_k;
  const double steps = a.threads() / 32.0 * k / a.k_step();  // of all warps
  const double tiles_m = a.tiles_m(), tiles_n = a.tiles_n(), times = a.multiply == Multiply::fp32 ? 3 : 1;
  const bool wide = e.nhwc ? a.chunked && e.c % 4 == 0 && e.group_channels() % 4 == 0
                           : a.chunked && e.r * e.s * e.stride_h * e.stride_w == 1 &&
                                 static_cast<long long>(e.p) * e.q % 4 == 0;
  const double copies = n * k / 32, weight_bytes = 4 * k_blocks * a.weight_words();
  // Neighbouring taps find in L1 most of what they share.
  const double shared = e.r * e.s == 1 ? 1 : std::max(1.0 * e.stride_h * e.stride_w / (e.r * e.s), 0.3);
  TileWork work;
  work.tiles = static_cast<double>(a.blocks(e));
  work.load_beside = a.chunked;
  work.in_flight_bytes = 4.0 * (a.stages - 1) * a.stage_words();
  work.copies = copies * (wide ? 0.25 : 1);
  work.load.instructions = n / 32 * 60 +
                           copies * (wide        ? 0.5
                                     : a.chunked ? 1.5
                                                 : 3 + 8 / std::max(1.0, n / 32)) +
                           2 * weight_bytes / kBulkBytes;
  work.load.wavefronts = copies + weight_bytes / 128;
  work.load.l2_bytes = weight_bytes + 4 * k * n * shared;
  work.multiply.products = m * n / 128 * k / a.k_step() * times;
  work.multiply.instructions = steps * (times * (tiles_m * tiles_n + tiles_m) + 4.5 * tiles_n + 2);
  work.multiply.wavefronts = steps * (4 * tiles_m * std::min(times, 2.0) + 2 * tiles_n);
  work.multiply.waits = k_blocks;
  work.store.instructions = m * n / 32 * 5;
  work.store.wavefronts = m * n / 32 * 2;
  const double image = 1.0 * e.p * e.q, row = a.warp_n();
  store_in_pieces(work, outputs_of(e) / work.tiles,
                  e.nhwc                                   ? std::min<double>(m, e.k)
                  : image >= n && std::fmod(image, 8) != 0 ? row - 1
                                                           : std::min(row, image));
  return work;
}

// A block: its window by asynchronous copies, then strips.
TileWork work_of(const DirectFmaSm80& a) {
  const DirectFmaWork strip = direct_fma_sm80_work(a);
  const double warps = a.threads() / 32.0;
  const double floats = static_cast<double>(a.planes()) * a.input_rows() * a.stored_columns();
  TileWork work;
  work.tiles = static_cast<double>(a.blocks());
  work.cuda_cores = true;
  work.store_beside = !a.staged;
  work.in_flight_bytes = 4 * floats;
  work.load.instructions = floats / 32 * (a.vectors() ? 4 : 12);
  work.load.wavefronts = floats / 32 * 2;
  work.load.l2_bytes = 4 * (floats + 1.0 * a.weight_units() * a.block_weight_floats());
  work.multiply.instructions = warps * (a.passes * strip.instructions + 60);
  work.multiply.wavefronts = warps * a.passes * strip.wavefronts;
  // Rows of a plane follow each other in y.
  store_in_pieces(work, outputs_of(a.problem) / work.tiles, 1.0 * a.band_rows() * a.problem.q);
  // One at a time where rows are not whole vectors: it is as if half of the sectors were written in parts.
  if (!a.staged && a.problem.q % 4 != 0) work.part_sectors = outputs_of(a.problem) / work.tiles / 16;
  return work;
}

}  // namespace

// A tile of one image, gone through in passes. All warps load, multiply and store, in turns.
TileWork tile_work(const DirectDepthwiseSm80& a) {
  const Conv2dExtents& of = a.problem;
  const DirectDepthwiseSm80::Work strip = a.work();
  const double warps = a.threads() / 32.0, outputs = 1.0 * a.rows * a.columns, passes = a.passes;
  const double floats = 1.0 * a.input_rows() * a.row_floats();
  const auto inside = [](int first, int count, int extent) {  // of a tile's rows or columns, the image's
    return std::max(0, std::min(first + count, extent) - std::max(first, 0));
  };
  double rows = 0, columns = 0;  // of all tiles
  for (int band = 0; band < a.bands(); ++band) rows += inside(a.first_row(band), a.input_rows(), of.h);
  for (int side = 0; side < a.sides(); ++side)
    columns += inside(a.first_column(side), a.input_columns(), of.w);
  TileWork work;
  work.tiles = static_cast<double>(a.all_blocks());
  work.cuda_cores = true;
  work.load_beside = a.passes > 1;
  work.load.instructions = floats / 32 * (a.vectors() ? 4 : 14);
  work.load.wavefronts = floats / 32;
  work.load.l2_bytes = 4 * rows * columns * a.channels / (1.0 * a.bands() * a.sides());
  const double under_way = std::min(a.passes == a.ahead ? 1.0 : a.ahead / passes, 1.0);
  work.in_flight_bytes = std::max(work.load.l2_bytes * under_way, 1.0);
  const double weights = a.taps() / (a.weights_in_registers() ? passes : 1);  // that are read
  // Channels that are no whole warp leave bank conflicts.
  const double conflicts = a.channels % 32 == 0 || a.channels * a.columns * of.stride_w % 32 == 16 ? 1 : 2;
  work.multiply.instructions = warps * (60 + passes * (30 + weights + strip.inputs + strip.products));
  work.multiply.wavefronts = warps * passes * (strip.inputs * conflicts + weights);
  if (a.passes > 1) {                // the copies are under way meanwhile, the instructions are not
    constexpr double kSlower = 2.5;  // than multiply-adds, which do not wait for each other
    work.multiply.instructions += kSlower * work.load.instructions;
    work.load.instructions = 0;
  }
  work.multiply.waits = 3 * passes;
  work.store.instructions = warps * passes * outputs * 2;
  work.store.wavefronts = warps * passes * outputs;
  // Of a position. Whole lines, or all channels, are one piece with their neighbours, which are stored at the
  // same time by this block or by others.
  const bool whole = a.chunks() == 1 || a.channels % 32 == 0;
  store_in_pieces(work, outputs_of(of) / work.tiles, whole ? 1.0 * a.tile_columns() * of.c : a.channels);
  work.input_bytes = 4.0 * of.n * of.c * of.h * of.w;
  return work;
}

// A block: its window, rounded as it is stored; all k-steps; outputs by way of shared memory, or not.
TileWork tile_work(const DirectStemSm80& a, double pixel_wavefronts) {
  const double k_steps = a.k_steps(), filters = a.filter_tiles(), pixels = a.tiles();
  const double window = 1.0 * a.smem_rows() * a.window_columns();
  const double weight_bytes = 4 * k_steps * a.step_floats();
  const double computed = 1.0 * a.filters() * a.band() * a.columns();
  TileWork work;
  work.tiles = static_cast<double>(a.all_blocks());
  work.in_flight_bytes = 4.0 * a.threads() * (a.register_limit() - 32) / 2;
  work.load.instructions = window / 32 * (6 + 4.0 / a.load_width);
  work.load.wavefronts = window / 32;
  work.load.l2_bytes = 4 * window;
  work.multiply.products = computed / 128 * k_steps;
  work.multiply.instructions =
      a.warps() * k_steps * (filters * pixels + filters + 2 * pixels) + 3 * weight_bytes / kBulkBytes;
  work.multiply.wavefronts =
      a.warps() * k_steps * (4 * filters + 2 * pixels * pixel_wavefronts) + weight_bytes / 128;
  work.multiply.l2_bytes = weight_bytes;
  work.multiply.waits = a.resident() ? 0 : a.all_stages();
  work.store.instructions = computed / 32 * (a.staged ? 5 : 4);
  // From registers: a fragment of 8 pixels is a sector; or part of two; or it takes two stores, one for the
  // odd pixels, and then each sector is written in parts.
  const double sectors = a.of.q % 8 == 0 ? 4 : a.of.q % 2 == 0 ? 8 : 16;
  work.store.wavefronts = computed / 32 * (a.staged ? 2 : sectors);
  work.store.waits = a.staged ? 2.0 * a.filter_tiles() / a.staged_tiles() : 0;
  store_in_pieces(work, outputs_of(a.of) / work.tiles, a.staged ? a.run() : std::min(a.columns(), a.of.q));
  if (!a.staged && a.of.q % 2 != 0) work.part_sectors = outputs_of(a.of) / work.tiles / 8;
  work.input_bytes = 4.0 * a.of.n * a.of.c * a.of.h * a.of.w;
  return work;
}

std::optional<TileWork> tile_work(std::string_view algorithm, const Conv2dProblem& problem,
                                  const Config& config) {
  std::optional<TileWork> work;
  if (algorithm == "direct_stem_sm80") {
    const DirectStemSm80 kernel = direct_stem_sm80_kernel(problem, config);
    work = tile_work(kernel, direct_stem_sm80_wavefronts(kernel));
  }
  if (algorithm == "direct_stem_sm90") work = work_of(direct_stem_sm90_kernel(problem, config));
  if (algorithm == "direct_body_sm90") work = work_of(direct_body_sm90_kernel(problem, config));
  if (algorithm == "direct_patch_sm90") work = work_of(direct_patch_sm90_kernel(problem, config));
  if (algorithm == "implicit_gemm_sm80") work = work_of(implicit_gemm_sm80_kernel(problem, config));
  if (algorithm == "direct_depthwise_sm80") work = tile_work(direct_depthwise_sm80_kernel(problem, config));
  if (algorithm == "direct_fma_sm80") work = work_of(direct_fma_sm80_kernel(problem, config));
  if (work) work->input_bytes = read_bytes(problem);
  return work;
}

}  // namespace convtune::cuda
