// Inner layers in half precision on compute capability 9.0 (direct_body_half_sm90.cuh, which draws it):
// problem, choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/algorithms/direct_body_half_sm90/order.h"
#include "cuda/algorithms/direct_body_half_sm90/slices.h"
#include "cuda/algorithms/direct_body_half_sm90/weights.h"
#include "cuda/tile/any_batch.h"
#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/lying.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

struct DirectBodyHalfSm90 {
  ConvExtents conv;
  int rows = 8, columns = 8, images = 1;
  int consumers = 2, filter_blocks = 1;
  bool ping_pong = false;
  int channels = 64, input_stages = 2, weight_stages = 4, cluster = 1;
  int cache = 0;            // for the problem: frames before x's first that are another tensor's
  bool nchw = false;        // for the problem: y and the residual have channels first; `conv` says how x lies
  bool aligned = true;      // not a choice: x, y and the residual begin at multiples of 16 bytes
  bool transposes = false;  // for the problem: x, too, and a stage is transposed on its way (slices.h)
  bool any_batch = false;   // not a choice: takes any batch up to the problem's
  int lying = 0;            // in configs where it is 1
  LyingWeights lie{};       // for the problem, then
  static constexpr const char* kName = "DirectBodyHalfSm90";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("rows", self.rows, 1, 256, "output rows of a tile");
    field("columns", self.columns, 1, 256, "output columns of a tile; of 8, rows need not follow each other");
    field("images", self.images, 1, 32, "whole images, or in 3-D whole frames, of a tile");
    field("consumers", self.consumers, 1, 3, "warpgroups that multiply");
    field("filter_blocks", self.filter_blocks, 1, 2, "blocks of 64 filters that one of them has sums of");
    field("ping_pong", self.ping_pong, 0, 1,
          "1: two consumers have tiles of their own, and one stores while the other multiplies");
    field("channels", self.channels, 32, 64, "input channels of a stage: 32 or 64");
    field("input_stages", self.input_stages, 1, 8, "stages of x kept at once");
    field("weight_stages", self.weight_stages, 1, 64, "stages of weights kept at once, of a tap each");
    field("cluster", self.cluster, 1, 2, "blocks that share the weights that they load");
    field("cache", self.cache), field("nchw", self.nchw), field("aligned", self.aligned);
    if (self.transposes) field("transposes", self.transposes);
    if (self.any_batch) field("any_batch", self.any_batch);
    if (self.lying > 0) field("lying", self.lying, 1, 1, kLyingMeaning), field("lie", self.lie);
  }
  constexpr bool asks_alignment() const { return true; }

  // ---- The problem as it is computed. Where pixels of y are pixels of x all of them are one row; where
  // windows do not overlap, the columns of one are more channels of one pixel. A group is a problem of its
  // own with the same pixels: to TMA it is one more extent, so what a box has behind a group's last channel
  // is zero, whatever the next group has there. In three dimensions, with one group, volumes are that extent,
  // and what is said of images holds for frames ----
  constexpr bool pointwise() const {
    return !conv.has_depth() && !conv.lies.between() && conv.r == 1 && conv.s == 1 && conv.stride_h == 1 &&
           conv.stride_w == 1 && conv.pad_top == 0 && conv.pad_left == 0 && conv.p == conv.h &&
           conv.q == conv.w;
  }
  constexpr bool folds() const {
    return conv.groups == 1 && !conv.has_depth() && conv.s > 1 && conv.stride_w == conv.s &&
           conv.dilation_w == 1 && conv.pad_left == 0 && conv.w % conv.s == 0 && conv.q == conv.w / conv.s;
  }
  constexpr int folded() const { return folds() ? conv.s : 1; }             // columns in a pixel
  constexpr int depth() const { return conv.group_channels() * folded(); }  // channels of a pixel then
  constexpr int volumes() const { return conv.has_depth() ? conv.n : 1; }
  constexpr int batch() const { return conv.has_depth() ? conv.z : input_batch(); }
  constexpr int input_batch() const {
    return conv.has_depth() ? conv.d : pointwise() && !pixels_first() ? 1 : conv.n;
  }
  // An x in NCHW, of a problem that is pointwise; tiles are of one image.
  constexpr bool pixels_first() const { return !conv.nhwc && !transposes; }
  constexpr BodyAxis vertical() const {
    if (pointwise()) return {1, 1, 1, 1, 1, 0};
    return {conv.h, conv.p, conv.r, conv.stride_h, conv.dilation_h, conv.pad_top, late_rows_of(conv, 0) > 0};
  }
  constexpr BodyAxis horizontal() const {
    const int pixels = (pixels_first() ? 1 : conv.n) * conv.h * conv.w;
    if (pointwise()) return {pixels, pixels, 1, 1, 1, 0};
    if (folds()) return {conv.w / conv.s, conv.q, 1, 1, 1, 0};
    return {
        conv.w, conv.q, conv.s, conv.stride_w, conv.dilation_w, conv.pad_left, late_columns_of(conv, 0) > 0};
  }
  // TMA steps over at most 8 rows; longer strides are an extent of their own, where they divide the image.
  static constexpr int kMostStep = 8;
  // In NCHW, where they come first: a tile has those of one, and TMA's rows and the boxes in them begin
  // at multiples of 16 bytes.
  static constexpr int kLeastPixels = 128, kPixels = 8;
  constexpr bool splits_rows() const { return vertical().stride > kMostStep; }
  constexpr bool can_load() const {
    if (transposes) return !pointwise() && comes_in_slices(conv, kMostStep);
    const bool splits = conv.h % vertical().stride == 0 && conv.pad_top == 0 && conv.dilation_h == 1 &&
                        conv.r <= vertical().stride;
    // Rows split, groups and volumes are the same extent.
    return (!splits_rows() || (splits && conv.groups == 1 && !conv.has_depth())) &&
           (!conv.has_depth() || (conv.groups == 1 && conv.stride_d <= kMostStep)) &&
           horizontal().stride <= kMostStep && depth() % 8 == 0 &&
           (!pixels_first() || (conv.groups == 1 && pointwise() && horizontal().input % kPixels == 0 &&
                                horizontal().input >= kLeastPixels));
  }

  // ---- The sum. A stage of x is a phase of some channels, of the frame that a tap over time reads; a step
  // is a tap of it: those from the phase's first on, a period apart ----
  constexpr int phases() const { return vertical().phases() * horizontal().phases(); }
  constexpr int chunks() const { return ceil_div(depth(), channels); }  // groups of channels
  constexpr int chunk_stages() const { return conv.t * phases(); }
  constexpr int stages() const { return chunks() * chunk_stages(); }
  constexpr BodyStages stage_order() const {
    return {channels,      chunk_stages(), vertical().phases(), horizontal().phases(), conv.t,
            conv.stride_d, conv.pad_front, conv.dilation_d,     conv.has_depth()};
  }
  constexpr int first_channel(int stage) const { return stage_order().first_channel(stage); }
  // ---- Frames of the filter that see nothing but padding are left out of a tile's sums ----
  using Frames = BodyFrames;
  // Frames of the filter with which some output of these frames meets a frame of x or of the cache.
  constexpr Frames frames_of(int first_image, int last_image) const {
    const int missing = conv.pad_front - cache - last_image * conv.stride_d;  // before the last one's first
    const int there = conv.d + conv.pad_front - first_image * conv.stride_d;
    return {missing > 0 ? ceil_div(missing, conv.dilation_d) : 0,
            there > 0 ? lesser(ceil_div(there, conv.dilation_d), conv.t) : 0};
  }
  // The fewest frames of the filter that an output meets: the first output does, or the last.
  constexpr int least_frames() const {
    return conv.has_depth() ? lesser(frames_of(0, 0).count(), frames_of(batch() - 1, batch() - 1).count())
                            : conv.t;
  }
  // False where weights stay in shared memory, since their stages are counted on from tile to tile.
  constexpr bool skips_frames() const {
    return conv.has_depth() && least_frames() > 0 && least_frames() < conv.t && !weights_stay() &&
           !prefetches_residual();
  }
  // The filter's frames for a tile: blocks of a cluster share weights, and so take what any of them needs.
  constexpr Frames tile_frames(int tile) const {
    Frames all = {conv.t, 0};
    for (int rank = 0; rank < cluster; ++rank) {
      const int image = corner(tile, rank).image;
      const Frames some = frames_of(image, image + images - 1);
      all = {lesser(all.first, some.first), greater(all.end, some.end)};
    }
    return all;
  }
  // ---- Residues of a stride (ConvLies) that lack the filter's first row or column have tiles of their own,
  // which leave it out ----
  constexpr int sets() const { return conv.lies.uneven() ? conv.lies.residues() : conv.groups; }
  constexpr int set_filters() const { return conv.k / sets(); }
  using Taps = BodyTaps;
  constexpr Taps tile_taps(int tile) const {
    if (!conv.lies.uneven()) return {0, 0};
    const int residue = tile % filter_tiles() / group_tiles();
    return {conv.lies.lacks_row(residue), conv.lies.lacks_column(residue)};
  }
  constexpr int tile_steps(int tile) const {  // that frames of the filter do not leave out
    const Taps first = tile_taps(tile);
    return chunks() * (vertical().filter - first.row) * (horizontal().filter - first.column);
  }
  constexpr int least_rows() const { return vertical().least_taps() - (conv.lies.whole_h > 0); }
  constexpr int least_columns() const { return horizontal().least_taps() - (conv.lies.whole_w > 0); }
  constexpr int step_frame(int step) const { return step / (taps() / conv.t) % conv.t; }
  constexpr int first_row(int stage) const { return stage_order().first_row(stage); }
  constexpr int first_column(int stage) const { return stage_order().first_column(stage); }
  constexpr int taps() const { return conv.t * vertical().filter * horizontal().filter; }
  constexpr int taps_of(int stage) const {
    return ceil_div(vertical().filter - first_row(stage), vertical().period()) *
           ceil_div(horizontal().filter - first_column(stage), horizontal().period());
  }
  constexpr int steps() const { return chunks() * taps(); }
  // Chunks of 16 in a step, of which those of the last chunk may have less than others; and in them all.
  constexpr int products(int step) const {
    return ceil_div(lesser(depth() - step / taps() * channels, channels), 16);
  }
  constexpr int all_products() const {
    return (steps() - taps()) * products(0) + taps() * products(steps() - 1);
  }

  // ---- A tile: outputs by filters, of which each consumer has 64 or 128 ----
  constexpr int consumer_filters() const { return 64 * filter_blocks; }
  constexpr int filters() const { return consumer_filters() * (ping_pong ? 1 : consumers); }
  constexpr int group_tiles() const { return ceil_div(set_filters(), filters()); }
  constexpr int filter_tiles() const { return sets() * group_tiles(); }
  constexpr int column_tiles() const { return ceil_div(horizontal().output, columns); }
  constexpr int row_tiles() const { return ceil_div(vertical().output, rows); }
  constexpr int image_tiles() const { return ceil_div(batch(), images); }
  constexpr long long output_tiles() const {
    return 1LL * volumes() * image_tiles() * row_tiles() * column_tiles();
  }
  constexpr long long tiles() const { return ceil_div(output_tiles(), cluster) * filter_tiles(); }
  using Corner = BodyCorner;
  constexpr BodyTiles tile_order() const {
    return {filter_tiles(), group_tiles(), image_tiles(), row_tiles(), column_tiles(),   images,
            rows,           columns,       filters(),     cluster,     conv.has_depth(), conv.groups == 1,
            sets() == 1};
  }
  constexpr Corner corner(int tile, int rank) const { return tile_order().corner(tile, rank); }
  constexpr int threads() const { return 128 * (consumers + 1); }

  // ---- x in shared memory: a box of pixels of a phase, one after the other, each a row of a stage's
  // channels ----
  constexpr int pitch() const {
    return columns + (columns == horizontal().output ? horizontal().shared() : horizontal().halo());
  }
  constexpr int box_rows() const { return rows + (images > 1 ? vertical().shared() : vertical().halo()); }
  constexpr int box_pixels() const { return images * box_rows() * pitch(); }
  constexpr BodyPixels pixel_order() const {
    return {vertical(), horizontal(), vertical().before(), horizontal().before(), pitch()};
  }
  constexpr int tap_pixel(int row, int column) const { return pixel_order().of_tap(row, column); }
  // Returns the position of the first pixel that an output of a tile reads.
  constexpr int pixel_of(int image, int row, int column) const {
    return (image * box_rows() + row) * pitch() + column;
  }
  constexpr int last_pixel() const {  // that an output reads
    return pixel_of(images - 1, rows - 1, columns - 1) +
           tap_pixel(vertical().filter - 1, horizontal().filter - 1);
  }
  // Tells whether x leaves L2 first: it is read once, and too large to be there when the next layer wants it.
  constexpr bool reads_once() const {
    return taps() == 1 && filter_tiles() <= kMostSharing && !pixels_first() &&
           2LL * conv.n * conv.c * conv.z * conv.p * conv.q >= kLargeInput;
  }
  static constexpr int kMostSharing = 1, kLargeInput = 24 << 20;  // bytes
  constexpr int row_bytes() const { return 2 * channels; }
  constexpr int pieces() const { return channels / 8; }  // 16 bytes each, exchanged as TMA and wgmma have it
  constexpr int exchanged(int row, int piece) const { return exchanged_piece(row, piece, pieces()); }
  constexpr int input_bytes() const {
    return pixels_first() ? ceil_div(positions(), 64) * block_bytes() : box_pixels() * row_bytes();
  }
  // Blocks of 64 pixels, where they come first: [block][channel][64 pixels], exchanged as rows of 128 bytes.
  constexpr int block_bytes() const { return channels * 128; }
  // With the zeros behind a box that shared halos ask for; stages begin at multiples of 1024.
  constexpr int input_stage_bytes() const {
    if (pixels_first()) return input_bytes();
    return round_up(greater(box_pixels(), last_pixel() + 1) * row_bytes(), 1024);
  }

  // Slices of a transposed x: boxes of 8 channels of a stage, and how many of them a stage has.
  constexpr BodySlices slices() const {
    return {images * box_rows(), pitch(), BodySlices::shift_of(horizontal().before())};
  }
  constexpr int slices_of(int stage) const { return 2 * products(stage / chunk_stages() * taps()); }
  constexpr int slice_places() const { return transposes ? BodySlices::kPlaces : 0; }

  // ---- Columns of the products: outputs in the order of their pixels, with those between two rows; of tiles
  // 8 columns wide without these, since eight columns of an operand may lie anywhere ----
  constexpr bool narrow() const { return columns == 8 && images == 1 && !pixels_first(); }
  constexpr int group_pitch() const { return narrow() ? pitch() : 8; }  // pixels from eight to the next
  constexpr int column_of(int image, int row, int column) const {
    return narrow() ? row * 8 + column : pixel_of(image, row, column);
  }
  // The tile's output that a column is, in the order of memory, or -1; a kernel has the box's numbers as
  // constants.
  constexpr int output_of(int column) const { return output_of(column, pitch(), box_rows()); }
  constexpr int output_of(int column, int box_pitch, int all_rows) const {
    if (narrow()) return column < tile_outputs() ? column : -1;
    const int row = column / box_pitch, image = row / all_rows;
    if (column % box_pitch >= columns || row % all_rows >= rows || image >= images) return -1;
    return (image * rows + row % all_rows) * columns + column % box_pitch;
  }
  constexpr int product_columns() const { return positions(); }
  constexpr int positions() const { return round_up(column_of(images - 1, rows - 1, columns - 1) + 1, 16); }
  constexpr int sums() const { return filter_blocks * positions() / 2; }  // registers of a thread

  // ---- Weights: a stage is a tap's, [filter][channels of a stage]. All may stay, where the grid is a
  // multiple of the filters' tiles, so that a block meets one of these only ----
  constexpr int weight_bytes() const { return filters() * row_bytes(); }
  constexpr bool turned() const { return lying > 0 && !lie.rows; }  // a tap's are [block of 64][channel][64]
  constexpr bool weights_stay() const {
    return filter_tiles() <= kMostStay && weight_stages == steps() && !conv.lies.uneven();
  }
  static constexpr int kMostStay = 4;

  // How many steps a consumer is behind the one before: its products fill the time in which that one stores.
  // The rings hold so many, whatever the consumer behind still reads.
  constexpr int lead() const {
    if (ping_pong || consumers == 1) return 0;
    const int loaded = input_stages * least_rows() * least_columns();
    const int frame_steps = conv.lies.uneven() ? chunks() * least_rows() * least_columns() : steps() / conv.t;
    const int least_steps = frame_steps * (skips_frames() ? least_frames() : conv.t);
    return lesser(lesser(weights_stay() ? steps() : weight_stages, loaded) - 1, least_steps / 2);
  }

  // ---- Outputs on their way, and before that the residual: [block of 64 filters][output][64 filters], the
  // pieces exchanged likewise, and behind them a place for what is no output ----
  constexpr int tile_outputs() const { return images * rows * columns; }  // per filter
  constexpr int staged_rows() const { return round_up(tile_outputs(), 8) + 8; }
  constexpr int staging_bytes() const {  // per consumer
    return filter_blocks * (nchw ? 64 * staged_pitch() : staged_rows() * 128);
  }
  static constexpr int staged_at(int row, int piece) { return row * 128 + (piece ^ (row % 8)) * 16; }
  // Tells whether rows of y are whole pieces of 16 bytes, as TMA asks for.
  constexpr bool wide_stores() const {
    return aligned && conv.group_filters() % 8 == 0 && !nchw && !conv.lies.between();
  }
  // Outputs between each other go in such pieces, which are of one pixel of y.
  constexpr bool piece_stores() const {
    return aligned && conv.lies.between() && conv.group_results() % 8 == 0;
  }

  // Tells whether the residual is brought to L2 with x, a few tiles before consumers ask for it. Only where a
  // tile's products are too few for its way from memory: others become 2 % slower.
  constexpr bool prefetches_residual() const { return conv.residual && wide_stores() && steps() <= 8; }

  // ---- As above, in NCHW: [filter][position], from where outputs beside each other go in runs ----
  constexpr int staged_pitch() const { return 2 * positions() + 16; }  // bytes: 8 rows meet at no bank
  // Outputs that are neighbours in a tile and in y, there from a multiple of as many on; and of as many in
  // shared memory.
  constexpr int run() const {
    return aligned ? gcd(gcd(8, columns), pointwise() ? conv.p * conv.q : conv.q) : 1;
  }
  constexpr int piece() const { return narrow() || rows * images == 1 ? run() : gcd(run(), pitch()); }

  // ---- Shared memory, in bytes ----
  using Smem = BodySmem;
  constexpr Smem smem() const { return smem_with(stagings() * places()); }
  // Places for outputs. Consumers in turns share one beside weights that stay where there is no room for two
  // and sums are long: one has stored before the other has its sums. Residuals wait there, so those need two.
  constexpr int stagings() const {
    const bool may_share = ping_pong && weights_stay() && steps() * channels >= 1024 && !conv.residual;
    return may_share && smem_with(2).end > kMostSmem ? 1 : consumers;
  }
  constexpr bool shares_staging() const { return stagings() < consumers; }
  // A second one of each, so that the residual of the next tile comes while this one's outputs gather, where
  // a tile's products are too few for that, and there is room.
  constexpr int places() const {
    return prefetches_residual() && steps() <= 2 && smem_with(2 * consumers).end <= kMostSmem ? 2 : 1;
  }
  constexpr Smem smem_with(int places) const {
    SmemPlan plan;
    const int inputs = plan.take(1LL * input_stages * input_stage_bytes());
    const int weights = plan.take(1LL * weight_stages * weight_bytes());
    const int some_slices = plan.take(1LL * slice_places() * slices().bytes());
    const int staging = plan.take(1LL * places * staging_bytes());
    const int full = plan.take(8 * input_stages), empty = plan.take(8 * input_stages);
    const int weights_full = plan.take(8 * weight_stages), weights_empty = plan.take(8 * weight_stages);
    const int residual_full = plan.take(8 * places);
    const int slices_full = plan.take(8 * slice_places()), slices_empty = plan.take(8 * slice_places());
    return {inputs,       weights,       some_slices,   staging,     full,         empty,
            weights_full, weights_empty, residual_full, slices_full, slices_empty, plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }
  // ---- Packed weights, in halves: [filter tile][step][filter][piece, exchanged][8] ----
  constexpr long long tile_weights() const { return 1LL * steps() * filters() * channels; }
  constexpr Packed packed() const {
    return lying > 0 ? lie.packed(conv) : Packed::halves(filter_tiles() * tile_weights() / 2, 0, conv.k);
  }
  constexpr bool doubts() const { return lying > 0 && LyingWeights::meets_padding(conv); }
  constexpr BodyWeights weights() const {
    const BodyAxis down = vertical(), across = horizontal();
    return {.channels = channels,
            .filters = filters(),
            .steps = steps(),
            .pieces = pieces(),
            .group_tiles = group_tiles(),
            .group_filters = set_filters(),
            .group_channels = conv.group_channels(),
            .depth = depth(),
            .folded = folded(),
            .taps = taps(),
            .plane_taps = taps() / conv.t,
            .columns = across.filter,
            .row_phases = down.phases(),
            .column_phases = across.phases(),
            .row_period = down.period(),
            .column_period = across.period(),
            .tile_weights = tile_weights()};
  }
  constexpr long long source_of(long long i) const { return weights().source_of(i); }
  constexpr long long half_of(long long weight) const {
    const int all = conv.taps();
    return weights().half_of(static_cast<int>(weight / all), static_cast<int>(weight % all));
  }

  // Tells whether the kernel compiles without spilling and an SM can hold a block of it.
  constexpr bool valid(long long smem_per_block) const {
    if (!is_in_range(*this) || channels % 32 != 0) return false;
    if (rows > vertical().output || columns > horizontal().output || images > batch()) return false;
    if (images > 1 && (rows != vertical().output || pixels_first() || cache > 0)) return false;
    if (conv.lies.between() && nchw) return false;
    if (pixels_first() && columns % kPixels != 0) return false;
    if (transposes && (slices().columns() > BodySlices::kMostColumns ||
                       (columns % kPixels != 0 && columns != horizontal().output)))
      return false;
    if (pitch() * horizontal().stride > 256 || images * conv.stride_d > 256 ||
        box_rows() * (splits_rows() ? 1 : vertical().stride) > 256)
      return false;
    if (positions() > 256 || sums() > (consumers == 3 ? 96 : 128)) return false;
    if (ping_pong && consumers != 2) return false;
    if (lying > 0 && (nchw || cache > 0 || (doubts() && shares_staging()) || !lie.can_load(conv, filters())))
      return false;
    return smem_bytes() <= smem_per_block && output_tiles() * filter_tiles() < kInt &&
           (tiles() + cluster) * steps() < kInt && 1LL * conv.n * conv.d * conv.h * conv.w < kInt;
  }
  static constexpr long long kInt = 1LL << 30, kMostSmem = 227 << 10;  // the latter of a block on 9.0
};

}  // namespace convtune
