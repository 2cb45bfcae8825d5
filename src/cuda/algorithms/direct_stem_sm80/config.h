// The direct kernel for first layers on compute capability 8.0 and up (direct_stem_sm80.cuh, which draws it):
// problem, choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"

namespace convtune {

struct DirectStemSm80 {
  ConvExtents conv;
  int warp_filters = 16, warp_columns = 1, warp_rows = 1;
  int filter_warps = 1, row_warps = 1, column_warps = 1;
  int steps = 1, stages = 2, blocks = 1, staged = 1;
  // Set by the host so that few threads of a warp meet at one bank: floats from one row of the window to the
  // next, and from one pixel to the next. And the columns that one load brings into the window.
  int row_pitch = 1, pixel_pitch = 1, load_width = 1;
  // Set by the host as the compiler likes it: every so many k-steps no load is moved to before it; 0: any is.
  int held = 1;
  // A choice that the kernel is told at its launch, for which it is not compiled again.
  int stagger = 0;
  static constexpr const char* kName = "DirectStemSm80";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("warp_filters", self.warp_filters, 16, 128, "filters of a warp, a multiple of 16");
    field("warp_columns", self.warp_columns, 1, 256, "output columns of a warp, 8 pixels each");
    field("warp_rows", self.warp_rows, 1, 256, "output rows of a warp");
    field("filter_warps", self.filter_warps, 1, kMostWarps, "warps of a block along filters");
    field("row_warps", self.row_warps, 1, kMostWarps, "warps of a block along rows");
    field("column_warps", self.column_warps, 1, kMostWarps, "warps of a block along columns");
    field("steps", self.steps, 1, 256, "k-steps of a stage of weights");
    field("stages", self.stages, 1, 256, "stages of weights kept at once");
    field("blocks", self.blocks, 1, 8, "blocks that an SM shall hold at once, a launch bound");
    field("staged", self.staged, 0, 1, "outputs go through shared memory");
    field("row_pitch", self.row_pitch), field("pixel_pitch", self.pixel_pitch);
    field("load_width", self.load_width), field("held", self.held);
    field("stagger", self.stagger, 0, 256,
          "percent of a block's MMA time by which an SM's first blocks start apart");
  }

  // ---- A block: filters, and a band of output rows of one image, or some columns of it ----
  constexpr int warps() const { return filter_warps * row_warps * column_warps; }
  constexpr int threads() const { return 32 * warps(); }
  constexpr int filters() const { return warp_filters * filter_warps; }
  constexpr int band() const { return warp_rows * row_warps; }
  constexpr int columns() const { return 8 * warp_columns * column_warps; }
  constexpr int filter_blocks() const { return ceil_div(conv.k, filters()); }
  constexpr int bands() const { return ceil_div(conv.p, band()); }
  constexpr int splits() const { return ceil_div(conv.q, columns()); }  // per row
  constexpr long long all_blocks() const {
    return static_cast<long long>(conv.n) * conv.z * bands() * splits() * filter_blocks();
  }
  // Frames of x that a frame of outputs meets are planes of its window, as channels are: those of a channel
  // follow each other, as its taps do in a filter.
  constexpr int planes() const { return conv.c * conv.t; }

  // ---- The window: the input that a block needs ----
  // Rows and columns that no filter reaches, where a stride is longer than the filter, are left out.
  constexpr bool apart_rows() const { return conv.stride_h >= conv.r; }
  constexpr bool apart_columns() const { return conv.stride_w >= conv.s; }
  constexpr int pixel_rows() const {
    return apart_rows() ? conv.r : conv.stride_h;
  }  // from one pixel to the next
  constexpr int window_rows() const { return (band() - 1) * pixel_rows() + conv.r; }
  // Neighbouring columns that one load can bring where x is aligned: the window begins and ends at a
  // multiple.
  constexpr bool gaps() const { return apart_columns() && pixel_pitch != conv.stride_w; }
  constexpr bool loads(int width) const {
    return conv.w % width == 0 && (!gaps() || (pixel_pitch % width == 0 && conv.stride_w % width == 0 &&
                                               conv.pad_left % width == 0));
  }
  // Columns before the first pixel's first: 8 pixels, so every block, begin a multiple of 8 columns further
  // on.
  constexpr int lead() const { return gaps() ? 0 : (load_width - conv.pad_left % load_width) % load_width; }
  constexpr int window_columns() const {
    return round_up(lead() + (columns() - 1) * pixel_pitch + conv.s, load_width);
  }
  // The address of row `y` of the window, for a block whose first output row is `p`; of column `x`, -1 << 30
  // for none.
  constexpr int input_row(int p, int y) const {
    return (apart_rows() ? (p + y / conv.r) * conv.stride_h + y % conv.r : p * conv.stride_h + y) -
           conv.pad_top;
  }
  constexpr int input_column(int q, int x) const {
    if (!gaps()) return q * conv.stride_w + x - conv.pad_left - lead();
    if (x % pixel_pitch >= conv.s) return -1 << 30;
    return (q + x / pixel_pitch) * conv.stride_w + x % pixel_pitch - conv.pad_left;
  }
  // Row y of plane c is row y * planes() + c in shared memory: so the step from the end of a filter's row
  // to the beginning of the next is always the same. Rows of zeros behind them are what a k that is
  // padding meets.
  constexpr int padding_rows() const {
    return rolled()          ? ceil_div(8 * k_steps() - conv.taps(), conv.s)
           : conv.taps() % 4 ? ceil_div(3, conv.s)
                             : 0;
  }
  constexpr int smem_rows() const { return window_rows() * planes() + padding_rows(); }
  constexpr int pixel_offset(int row, int column) const {
    return row * pixel_rows() * planes() * row_pitch + column * pixel_pitch + lead();
  }

  // ---- The sum: k is the tap, in the order [filter row][plane][filter column] ----
  // 4 taps are a group, of which each of 4 threads has one, and 2 groups a k-step.
  constexpr int groups() const { return ceil_div(conv.taps(), 4); }
  constexpr int k_steps() const { return ceil_div(groups(), 2); }
  constexpr int tap_offset(int tap) const { return tap / conv.s * row_pitch + tap % conv.s; }
  // The weight of a tap, in [plane][filter row][filter column]; -1 for padding.
  constexpr int weight_of(int tap) const {
    if (tap >= conv.taps()) return -1;
    const int column = tap % conv.s, plane = tap / conv.s % planes(), row = tap / conv.s / planes();
    return (plane * conv.r + row) * conv.s + column;
  }
  // A group that does not exist has weights of zero; it reads the rows of zeros, or what the first one reads.
  constexpr int group_offset(int group) const {
    return rolled() || group < groups() ? tap_offset(4 * group) : 0;
  }
  // Which of a group's threads has the first tap of another row of the filter; 0: none. There are 4 patterns
  // of offsets, and so a thread keeps up to 4 addresses; all else is constant.
  constexpr int pattern(int group) const {
    const int first = rolled() || group < groups() ? 4 * group % conv.s : 0;
    return conv.s == 1 || first + 3 < conv.s ? 0 : conv.s - first;
  }
  constexpr int thread_offset(int pattern, int thread) const {
    if (conv.s == 1) return thread * row_pitch;
    return thread + (pattern > 0 && thread >= pattern ? row_pitch - conv.s : 0);
  }

  // The patterns repeat after `period` k-steps, some whole rows further on. So the loop's body is one period
  // or some, not too few products for a loop, and it is left in the middle the last time. Few k-steps are all
  // written out.
  constexpr int period() const {
    int odd = conv.s;
    for (int i = 0; i < 3 && odd % 2 == 0; ++i) odd /= 2;
    return odd;
  }
  constexpr int step_products() const { return filter_tiles() * tiles(); }
  constexpr int body_steps() const {
    int body = period();
    while (body * step_products() < kLeastProducts) body += period();
    // Counts turns of the ring, if they are equal: then a stage's place is a constant.
    if (!resident() && !turns(body))
      for (int more = body; more * step_products() <= kMostProducts; more += period())
        if (turns(more) && more % steps == 0) {
          body = more;
          break;
        }
    return k_steps() <= kShort || body > k_steps() ? k_steps() : body;
  }
  constexpr int bodies() const { return ceil_div(k_steps(), body_steps()); }
  constexpr bool rolled() const { return bodies() > 1; }
  constexpr int last_steps() const { return k_steps() - (bodies() - 1) * body_steps(); }
  constexpr int body_offset() const { return 8 * body_steps() / conv.s * row_pitch; }

  // ---- Weights: of each block [k-step][16 filters][lane][4]; then all as they came, bias, flag ----
  // Weights that do not stay give the loop's body stages of nearly the same length.
  constexpr int step_floats() const { return 8 * filters(); }
  constexpr bool resident() const { return stages * steps >= k_steps(); }  // no stage is ever replaced
  constexpr int used_stages() const { return resident() ? ceil_div(k_steps(), steps) : stages; }
  constexpr bool turns(int body) const { return ceil_div(body, steps) % stages == 0; }
  constexpr int body_stages() const { return resident() ? 1 : ceil_div(body_steps(), steps); }
  constexpr int stage_begin(int stage) const {
    return stage / body_stages() * body_steps() + stage % body_stages() * body_steps() / body_stages();
  }
  // Bodies that must follow the one at hand for this stage, counted from its first, to have a k-step.
  constexpr int stage_ahead(int stage) const {
    return stage / body_stages() + (stage_begin(stage % body_stages()) >= last_steps() ? 1 : 0);
  }
  constexpr int part_of(int step) const {  // the body's stage that has a k-step of it
    int part = 0;
    while (!resident() && part + 1 < body_stages() && stage_begin(part + 1) <= step) ++part;
    return part;
  }
  constexpr int stage_floats() const {
    return step_floats() * (resident() ? k_steps() : ceil_div(body_steps(), body_stages()));
  }
  constexpr int all_stages() const {
    if (resident()) return 1;
    int some = bodies() * body_stages();
    while (stage_begin(some - 1) >= k_steps()) --some;
    return some;
  }
  // The last stage is loaded whole: so much is behind the last k-step, and zero.
  constexpr int spare_floats() const {
    if (resident()) return 0;
    return (stage_begin(part_of(last_steps() - 1) + 1) - last_steps()) * step_floats();
  }
  constexpr Packed packed() const {
    return {1LL * filter_blocks() * k_steps() * step_floats() + spare_floats(), conv.weights(), conv.k};
  }
  // In the fragment of a thread: (filter, k) = (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4).
  constexpr long long source_of(long long i) const {
    const int element = static_cast<int>(i % 4), lane = static_cast<int>(i / 4 % 32);
    const int tile = static_cast<int>(i / 128 % (filters() / 16));
    const int step = static_cast<int>(i / step_floats() % k_steps());
    const int block = static_cast<int>(i / step_floats() / k_steps());
    const int k = block * filters() + tile * 16 + element % 2 * 8 + lane / 4;
    const int weight = weight_of(step * 8 + element / 2 * 4 + lane % 4);
    return k < conv.k && weight >= 0 ? static_cast<long long>(k) * conv.taps() + weight : -1;
  }

  // ---- Results on their way out: some 16 filters of each warp at a time ----
  constexpr int run() const { return band() * conv.q; }                          // per filter
  constexpr int staging_pitch() const { return round_up(run() + 24, 32) - 24; }  // 8 modulo 32
  constexpr long long staging_floats(int tiles) const {
    return 16LL * tiles * filter_warps * staging_pitch();
  }
  constexpr int filter_tiles() const { return warp_filters / 16; }
  constexpr int staged_tiles() const {
    int tiles = filter_tiles();
    while (tiles > 1 && (filter_tiles() % tiles || staging_floats(tiles) > product_floats())) --tiles;
    return tiles;
  }

  // ---- Shared memory, in floats: stages, window; then the same memory again for results. ----
  // Behind both where the block is, which is kept there.
  constexpr int window_at() const { return (resident() ? 1 : stages) * stage_floats(); }
  constexpr long long product_floats() const {
    return window_at() + static_cast<long long>(smem_rows()) * row_pitch;
  }
  constexpr long long place_at() const {
    const long long staging = staged ? staging_floats(staged_tiles()) : 0;
    return (staging > product_floats() ? staging : product_floats()) / 4 * 4 + 4;
  }
  constexpr long long smem_bytes() const { return round_up(4 * (place_at() + 4), 128); }

  // Registers of a thread: of sums, and of everything with what the compiler was seen to need beside them,
  // which is more where stages take turns.
  constexpr int register_limit() const { return registers_for(threads(), blocks); }
  constexpr int tiles() const { return warp_rows * warp_columns; }
  constexpr int sums() const { return 4 * filter_tiles() * tiles(); }
  constexpr int registers() const { return sums() + 2 * tiles() + (resident() ? 30 : 36); }
  constexpr int instructions() const {
    return body_steps() * (filter_tiles() * tiles() + filter_tiles() + 2 * tiles());
  }

  static constexpr int kMostWarps = 16;
  static constexpr int kMostInstructions = 8192;
  static constexpr int kMostTaps = 2048;
  static constexpr int kLeastProducts = 64, kMostProducts = 256, kShort = 7;

  // Tells whether the choices are possible at all: nothing else may be asked before.
  constexpr bool possible() const {
    return is_in_range(*this) && warp_filters % 16 == 0 &&
           filter_warps * row_warps * column_warps <= kMostWarps;
  }
  // Tells whether it compiles without much spilling, and registers suffice for `blocks` of it.
  constexpr bool valid() const {
    constexpr long long kMostOffset = (1LL << 31) - 1;
    if (!possible()) return false;
    if (staged && splits() > 1) return false;  // a run would not be one piece of the output
    return (resident() || stages >= 2) && registers() <= register_limit() &&
           instructions() <= kMostInstructions && all_blocks() <= kMostOffset &&
           static_cast<long long>(conv.c) * conv.d * conv.h * conv.w <= kMostOffset &&
           static_cast<long long>(conv.q + columns()) * conv.stride_w + conv.s <= kMostOffset &&
           static_cast<long long>(conv.p + band()) * conv.stride_h + conv.r <= kMostOffset;
  }
};

}  // namespace convtune
