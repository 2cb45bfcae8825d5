// Inner layers in half precision without a GPU: what TMA, wgmma and the stores would meet, stage by stage on
// a host.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/random_bits.h"
#include "cuda/algorithms/direct_body_half_sm90/config.h"
#include "cuda/launch/extents.h"
#include "kernel_expectations.h"

namespace convtune::direct_body_half_sm90_host_test {
namespace {

using Kernel = DirectBodyHalfSm90;
constexpr std::int64_t kSmem = 227 * 1024;
constexpr int kGarbage = 1 << 20;  // values that no output may have read

const Algorithm& algorithm() {
  return cuda::direct_body_half_sm90();
}
ConvProblem half(const std::string& text) {
  return parse_problem(text + " layout=nhwc dtype=bf16");
}
Kernel kernel_for(const std::string& text, Kernel choices) {
  choices.conv = cuda::extents_of(half(text));
  return choices;
}

// ---- The kernel on a host: integers in place of halves, so that every difference shows ------------

int value_of(std::uint64_t seed, long long index) {
  return static_cast<int>(random_bits(seed, static_cast<std::uint64_t>(index)) % 7) - 3;
}
int input_at(const ConvExtents& a, int image, int row, int column, int channel) {
  if (image < 0 || image >= a.n || row < 0 || row >= a.h || column < 0 || column >= a.w || channel >= a.c)
    return 0;
  return value_of(1, a.input_offset(image, channel, row, column));
}
// As above, for the problem as it is computed: of a group alone, all pixels a row, or columns of a patch as
// channels.
int viewed_at(const Kernel& kernel, int group, int image, int row, int column, int channel) {
  const ConvExtents& a = kernel.conv;
  if (channel >= kernel.depth()) return 0;
  channel += group * a.group_channels();
  if (kernel.pixels_first())
    return column < a.h * a.w ? input_at(a, image, column / a.w, column % a.w, channel) : 0;
  if (kernel.pointwise()) {
    if (image != 0 || row != 0 || column < 0) return 0;
    return input_at(a, column / (a.h * a.w), column / a.w % a.h, column % a.w, channel);
  }
  if (kernel.folds())
    return column < 0 ? 0 : input_at(a, image, row, column * a.s + channel / a.c, channel % a.c);
  return input_at(a, image, row, column, channel);
}

// Offsets of an x in NCHW: blocks of 64 pixels, each a row of 128 bytes a channel.
std::vector<int> loaded_pixel_rows(const Kernel& kernel, const Kernel::Corner& corner, int stage) {
  std::vector<int> loaded(static_cast<std::size_t>(kernel.input_stage_bytes() / 2));
  for (int i = 0; i < static_cast<int>(loaded.size()); ++i) {
    const int byte = 2 * i, row = byte / 128, address = byte ^ row % 8 << 4;
    const int pixel = row / kernel.channels * 64 + i % 64;
    loaded[static_cast<std::size_t>(address / 2)] =
        viewed_at(kernel, 0, corner.image, 0, corner.column + pixel,
                  kernel.first_channel(stage) + row % kernel.channels);
  }
  return loaded;
}

// Returns the address of an operand's byte under the hardware's swizzle: of its rows of 64 or 128 bytes,
// 16-byte pieces are exchanged by address bits 7 to 8 or 9.
int hardware_address(const Kernel& kernel, int byte) {
  return byte ^ ((byte >> 7 & (kernel.row_bytes() == 128 ? 7 : 3)) << 4);
}

// A stage of x in shared memory, by TMA's rules: a box with steps, zeros outside of the image and behind.
std::vector<int> loaded_input(const Kernel& kernel, const Kernel::Corner& corner, int stage) {
  const BodyAxis rows = kernel.vertical(), columns = kernel.horizontal();
  std::vector<int> loaded(static_cast<std::size_t>(kernel.input_stage_bytes() / 2));
  int at = 0;
  for (int image = 0; image < kernel.images; ++image)
    for (int row = 0; row < kernel.box_rows(); ++row)
      for (int column = 0; column < kernel.pitch(); ++column, ++at)
        for (int i = 0; i < kernel.channels; ++i) {
          const int value = viewed_at(
              kernel, corner.group, corner.image + image,
              (corner.row - rows.before() + row) * rows.stride + rows.phase(kernel.first_row(stage)),
              (corner.column - columns.before() + column) * columns.stride +
                  columns.phase(kernel.first_column(stage)),
              kernel.first_channel(stage) + i);
          const int address = hardware_address(kernel, at * kernel.row_bytes() + 2 * i);
          EXPECT_EQ(address,
                    at * kernel.row_bytes() + 16 * kernel.exchanged(at, i / 8) + i % 8 * 2);  // by hand
          loaded[static_cast<std::size_t>(address / 2)] = value;
        }
  return loaded;
}

// Every output of the problem, stored once, by blocks that do what the kernel's do.
void expect_computes(const Kernel& kernel) {
  const ConvExtents& a = kernel.conv;
  ASSERT_TRUE(kernel.can_load() && kernel.valid(kSmem)) << to_string(to_config(kernel));
  const long long halves = kernel.packed().prepared * 2;
  std::vector<int> packed(static_cast<std::size_t>(halves)), times(static_cast<std::size_t>(a.weights()));
  for (long long i = 0; i < halves; ++i) {
    const long long source = kernel.source_of(i);
    if (source < 0) continue;
    packed[static_cast<std::size_t>(i)] = value_of(2, source);
    ++times[static_cast<std::size_t>(source)];
    ASSERT_EQ(kernel.half_of(source), i);
  }
  for (const int packed_times : times) ASSERT_EQ(packed_times, 1);
  const BodyAxis rows = kernel.vertical(), columns = kernel.horizontal();
  const int width = columns.output, height = rows.output;
  std::vector<int> y(static_cast<std::size_t>(a.n * a.p * a.q * a.k)), stored(y.size());
  for (int tile = 0; tile < kernel.tiles(); ++tile)
    for (int rank = 0; rank < kernel.cluster; ++rank) {
      const Kernel::Corner corner = kernel.corner(tile, rank);
      std::vector<int> sums(static_cast<std::size_t>(kernel.positions() * kernel.filters()));
      int step = 0;
      for (int stage = 0; stage < kernel.stages(); ++stage) {
        const std::vector<int> input = kernel.pixels_first() ? loaded_pixel_rows(kernel, corner, stage)
                                                             : loaded_input(kernel, corner, stage);
        for (int r = kernel.first_row(stage); r < rows.filter; r += rows.period())
          for (int s = kernel.first_column(stage); s < columns.filter; s += columns.period(), ++step) {
            const long long weights =
                (1LL * (tile % kernel.filter_tiles()) * kernel.steps() + step) * kernel.weight_bytes() / 2;
            for (int position = 0; position < kernel.positions(); ++position) {
              const int pixel = position / 8 * kernel.group_pitch() + position % 8 + kernel.tap_pixel(r, s);
              for (int filter = 0; filter < kernel.filters(); ++filter)
                for (int i = 0; i < kernel.products(step) * 16; ++i) {
                  const int row = position / 64 * kernel.channels + i;  // if pixels come first
                  const int byte = row * 128 + position % 64 * 2;
                  const auto from = static_cast<std::size_t>(
                      (kernel.pixels_first() ? byte ^ row % 8 << 4
                                             : hardware_address(kernel, pixel * kernel.row_bytes() + 2 * i)) /
                      2);
                  const int weight = packed[static_cast<std::size_t>(
                      weights + hardware_address(kernel, filter * kernel.row_bytes() + 2 * i) / 2)];
                  sums[static_cast<std::size_t>(position * kernel.filters() + filter)] +=
                      weight * (from < input.size() ? input[from] : kGarbage);
                }
            }
          }
      }
      ASSERT_EQ(step, kernel.steps());
      std::set<int> outputs;
      for (int position = 0; position < kernel.positions(); ++position) {
        const int output = kernel.output_of(position);
        if (output < 0) continue;
        ASSERT_TRUE(outputs.insert(output).second && output < kernel.tile_outputs());
        const int image = corner.image + output / (kernel.rows * kernel.columns);
        const int p = corner.row + output / kernel.columns % kernel.rows;
        const int q = corner.column + output % kernel.columns;
        if (image >= kernel.batch() || p >= height || q >= width) continue;
        for (int filter = 0; filter < kernel.filters() && corner.filter + filter < a.group_filters();
             ++filter) {
          const auto at = static_cast<std::size_t>(((image * height + p) * width + q) * a.k) +
                          static_cast<std::size_t>(corner.group * a.group_filters() + corner.filter + filter);
          y[at] = sums[static_cast<std::size_t>(position * kernel.filters() + filter)];
          ++stored[at];
        }
      }
      ASSERT_EQ(static_cast<int>(outputs.size()), kernel.tile_outputs());
    }
  for (const int stored_times : stored) ASSERT_EQ(stored_times, 1);
  for (int image = 0; image < a.n; ++image)
    for (int pixel = 0; pixel < a.p * a.q; ++pixel)
      for (int filter = 0; filter < a.k; ++filter) {
        int want = 0;
        for (int channel = 0; channel < a.group_channels(); ++channel)
          for (int r = 0; r < a.r; ++r)
            for (int s = 0; s < a.s; ++s)
              want += input_at(a, image, pixel / a.q * a.stride_h + r * a.dilation_h - a.pad_top,
                               pixel % a.q * a.stride_w + s * a.dilation_w - a.pad_left,
                               filter / a.group_filters() * a.group_channels() + channel) *
                      value_of(2, ((1LL * filter * a.group_channels() + channel) * a.r + r) * a.s + s);
        ASSERT_EQ(y[static_cast<std::size_t>(((image * a.p * a.q) + pixel) * a.k + filter)], want)
            << "image " << image << ", pixel " << pixel << ", filter " << filter;
      }
}

TEST(DirectBodyHalfSm90, ComputesWhateverTheProblem) {
  const Kernel small{.rows = 2, .columns = 4, .consumers = 1, .channels = 32, .weight_stages = 3};
  for (const char* text :
       {"mb2ic8ih7iw9oc5kh3ph1", "mb3ic16ih7iw9oc8kh1sh2", "mb1ic24ih11iw12oc9kh3sh2ph1",
        "mb2ic8ih12iw9oc7kh2kw5sh3sw2ph1pw3", "mb1ic8ih13iw10oc4kh3dh1dw2ph2pw3",
        "mb1ic8ih8oc6kh3sh2 pad_bottom=1 pad_right=1", "mb1ic8ih7iw10oc4kh4ph1pw2 pad_bottom=2 pad_right=3",
        "mb1ic8ih9oc4kh1ph2", "mb1ic8ih18oc4kh2sh4", "mb1ic40ih9oc4kh3sh2dh1ph2", "mb1ic8ih15oc4kh5sh3ph2"}) {
    SCOPED_TRACE(text);
    expect_computes(kernel_for(text, small));
  }
}

TEST(DirectBodyHalfSm90, ComputesPatchesAndPixels) {
  Kernel choices{.rows = 2, .columns = 2, .consumers = 1};
  for (const char* text : {"mb2ic3ih32iw48oc5kh16sh16", "mb1ic4ih20iw18oc5kh4kw2sh4sw2ph0pw0",
                           "mb2ic24ih6iw8oc5kh2sh2", "mb1ic4ih9iw12oc3kh3kw4sh2sw4ph1"}) {
    SCOPED_TRACE(text);
    expect_computes(kernel_for(text, choices));
  }
  choices.rows = 1;
  for (const int columns : {16, 50}) {
    choices.columns = columns;
    expect_computes(kernel_for("mb2ic72ih5iw7oc70kh1", choices));
  }
}

// Whatever is behind a group's last channel is zero, and filters of a tile end with their group.
TEST(DirectBodyHalfSm90, ComputesGroups) {
  for (const Kernel& choices : {
           Kernel{.rows = 2, .columns = 4, .consumers = 1, .channels = 32, .weight_stages = 3},
           Kernel{.rows = 2, .columns = 4, .consumers = 2, .cluster = 2},
           Kernel{.rows = 2, .columns = 4, .ping_pong = true, .weight_stages = 9},
       })
    for (const char* text : {"mb2g2ic80ih6iw7oc10kh3ph1", "mb1g3ic120ih9oc201kh3sh2ph1",
                             "mb1g2ic144ih7iw5oc140kh3dh1ph2", "mb2g2ic48ih8oc20kh2sh2"}) {
      const Kernel kernel = kernel_for(text, choices);
      SCOPED_TRACE(to_string(to_config(kernel)) + " " + text);
      expect_computes(kernel);
    }
  expect_computes(kernel_for("mb3g2ic80ih5iw7oc24kh1", {.rows = 1, .columns = 50, .consumers = 1}));
}

TEST(DirectBodyHalfSm90, ComputesPixelsInNchw) {
  Kernel choices{.rows = 1, .consumers = 1};
  for (const int channels : {32, 64})
    for (const int columns : {48, 128, 160}) {
      choices.columns = columns, choices.channels = channels, choices.weight_stages = 3;
      for (const char* text : {"mb2ic72ih12iw14oc70kh1", "mb2ic72ih16oc7kh1", "mb1ic24ih8iw23oc5kh1"}) {
        Kernel kernel = kernel_for(text, choices);
        kernel.nchw = true, kernel.conv.nhwc = false;
        SCOPED_TRACE(text + (" " + to_string(to_config(kernel))));
        expect_computes(kernel);
      }
    }
}

// TMA's boxes begin at multiples of 16 bytes, or the instruction is illegal.
TEST(DirectBodyHalfSm90, BoxesOfPixelsBeginAtWholePieces) {
  for (const char* text : {"mb2ic72ih14oc7kh1", "mb1ic24ih14iw13oc5kh1", "mb1ic24ih37iw10oc5kh1"}) {
    Kernel kernel = kernel_for(text, {.rows = 1, .columns = 64, .consumers = 1});
    kernel.nchw = true, kernel.conv.nhwc = false;
    EXPECT_FALSE(kernel.can_load()) << text;
  }
  Kernel kernel = kernel_for("mb2ic72ih12iw14oc70kh1", {.rows = 1, .columns = 56, .consumers = 1});
  kernel.nchw = true, kernel.conv.nhwc = false;
  EXPECT_TRUE(kernel.can_load() && kernel.valid(kSmem));
  kernel.columns = 60;  // the second tile's
  EXPECT_FALSE(kernel.valid(kSmem));
  kernel.conv.nhwc = true;
  EXPECT_TRUE(kernel.valid(kSmem));
}

// In NCHW outputs leave in runs: neighbours in a tile's positions and in y, there and here at multiples.
TEST(DirectBodyHalfSm90, StoresRunsOfNeighbours) {
  for (const char* text : {"mb2ic64ih56oc64kh3ph1", "mb2ic64ih28oc64kh3ph1", "mb2ic64ih27oc64kh5ph2",
                           "mb2ic64ih56oc64kh1", "mb9ic64ih14oc64kh1", "mb2ic64ih56oc64kh3sh2ph1"}) {
    ConvProblem problem = half(text);
    problem.layout = Layout::nchw;
    int longest = 0;
    for (const Config& config : algorithm().candidates(problem, gpu())) {
      Kernel kernel = kernel_for(text, {});
      kernel.nchw = true;
      kernel.conv.nhwc = !kernel.pointwise() || kernel.conv.h < 16;
      kernel = from_config(config, kernel);
      SCOPED_TRACE(to_string(to_config(kernel)));
      const ConvExtents& a = kernel.conv;
      const int run = kernel.run(), plane = kernel.pointwise() ? a.p * a.q : a.q;
      longest = std::max(longest, run);
      ASSERT_EQ(kernel.columns % run, 0);
      ASSERT_EQ(plane % run, 0);
      for (int output = 0; output < kernel.tile_outputs(); output += run) {
        const auto position = [&](int of) {
          return kernel.column_of(of / (kernel.rows * kernel.columns), of / kernel.columns % kernel.rows,
                                  of % kernel.columns);
        };
        ASSERT_EQ(position(output) % kernel.piece(), 0);
        for (int i = 0; i < run; ++i) {
          ASSERT_EQ(position(output + i), position(output) + i);
          ASSERT_EQ(kernel.output_of(position(output + i)), output + i);
        }
      }
      ASSERT_EQ(kernel.staged_pitch() / 16 % 2, 1) << "eight rows would meet at a bank";
      kernel.aligned = false;
      ASSERT_EQ(kernel.run(), 1);
    }
    EXPECT_EQ(longest, problem.q() % 8 == 0 || (problem.r == 1 && problem.h % 4 == 0) ? 8
                       : problem.q() % 4 == 0                                         ? 4
                       : problem.h == 14                                              ? 4
                                                                                      : 1)
        << text;
  }
}

// The halo of a row is that of the next only where what is outside of both is zero, and likewise of images.
TEST(DirectBodyHalfSm90, SharesHalosWhereTheyAreZero) {
  Kernel choices{.consumers = 1};
  for (const char* text :
       {"mb5ic8ih7iw6oc3kh3ph1", "mb5ic8ih7iw6oc3kh3ph2", "mb5ic8ih7iw6oc3kh3ph0", "mb5ic8ih5iw6oc3kh5ph2",
        "mb5ic8ih7iw6oc3kh3ph1 pad_bottom=0 pad_right=0", "mb5ic8ih7iw6oc3kh3ph0 pad_bottom=1 pad_right=1",
        "mb5ic8ih9iw8oc3kh3sh2ph1", "mb5ic8ih8oc3kh3sh2ph1"}) {
    SCOPED_TRACE(text);
    Kernel kernel = kernel_for(text, choices);
    kernel.rows = kernel.conv.p, kernel.columns = kernel.conv.q;
    for (const int images : {1, 2, 3}) {
      kernel.images = images;
      if (kernel.positions() <= 256) expect_computes(kernel);
    }
  }
}

TEST(DirectBodyHalfSm90, ComputesTheSameWhateverTheTile) {
  for (const Kernel& choices : {
           Kernel{.rows = 6, .columns = 8, .consumers = 2},
           Kernel{.rows = 3, .columns = 8, .consumers = 2, .ping_pong = true, .cluster = 2},
           Kernel{.rows = 4, .columns = 9, .consumers = 2, .filter_blocks = 2, .channels = 32},
           Kernel{.rows = 11, .columns = 9, .consumers = 3},
           Kernel{.rows = 1, .columns = 5, .consumers = 1, .weight_stages = 12},
           Kernel{.rows = 3, .columns = 8, .ping_pong = true, .weight_stages = 12},
           Kernel{.rows = 3, .columns = 8, .ping_pong = true, .weight_stages = 12, .cluster = 2},
       }) {
    const Kernel kernel = kernel_for("mb2ic72ih11iw9oc70kh2kw3ph1pw1", choices);
    SCOPED_TRACE(to_string(to_config(kernel)));
    expect_computes(kernel);
  }
}

}  // namespace
}  // namespace convtune::direct_body_half_sm90_host_test
