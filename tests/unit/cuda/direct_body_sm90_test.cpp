// The direct body kernel without a GPU: its geometry, its refusals, and its largest configs compiled.

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cuda/algorithms/direct_body_sm90/positions.h"
#include "cuda/launch/extents.h"
#include "kernel_expectations.h"

namespace convtune::direct_body_sm90_test {
namespace {

std::vector<Config> candidates(const ConvProblem& problem) {
  return cuda::direct_body_sm90().candidates(problem, gpu());
}

// ---- Geometry: which pixel each position, tap and channel meets, and where its output goes --------

// Every output is computed once, and each of its products meets the pixel that it should, or a zero.
template <DirectBodySm90 config>
void check_input() {
  constexpr ConvExtents a = config.conv;
  using S = direct_body_sm90::Sizes<config>;
  static_assert(config.valid(227 * 1024));
  std::vector<int> seen(static_cast<std::size_t>(a.n) * a.z * a.p * a.q);
  std::vector<int> loaded(static_cast<std::size_t>(config.channels / 4 * S::kPlane));
  for (int tile = 0; tile < config.position_tiles(); ++tile) {
    const int first = tile * config.block_positions();
    const int first_image = first / S::kImagePositions / S::kStrips / a.z;
    const DirectBodySm90::Range blocks = config.tile_blocks(first);
    for (int tap = 0; tap < a.t; ++tap) {
      // A stage, as it is loaded: what is in unit 0, and in the others as far behind as their planes.
      std::fill(loaded.begin(), loaded.end(), -2);
      for (int chunk = 0; chunk < S::kUnitChunks; ++chunk)
        loaded[static_cast<std::size_t>(chunk)] =
            direct_body_sm90::chunk_source<config>(chunk, first, first_image, tap);
      const bool computed = tap >= blocks.first / S::kFrameBlocks && tap < blocks.end / S::kFrameBlocks;
      for (int position = 0; position < config.block_positions(); ++position) {
        const direct_body_sm90::Output at = direct_body_sm90::output_of<config>(first + position);
        if (at.column >= a.q) continue;
        seen[static_cast<std::size_t>((at.image * a.p + at.row) * a.q + at.column)] += tap == 0;
        const int frame = at.image % a.z * a.stride_d - a.pad_front + tap * a.dilation_d;
        const int volume = at.image / a.z - first_image, plane = volume * (a.nhwc ? 1 : a.c) * a.d + frame;
        for (int step = 0; step < config.taps(); ++step) {
          const int row = at.row * a.stride_h - a.pad_top + step / a.s * a.dilation_h;
          const int column = at.column * a.stride_w - a.pad_left + step % a.s * a.dilation_w;
          const bool inside =
              frame >= 0 && frame < a.d && row >= 0 && row < a.h && column >= 0 && column < a.w;
          const int want = inside ? ((plane * a.h + row) * a.w + column) * (a.nhwc ? a.c : 1) : -1;
          ASSERT_EQ(loaded[static_cast<std::size_t>(config.step_chunk(step) + position)], want)
              << "tile " << tile << ", position " << position << ", step " << step << ", tap " << tap;
          ASSERT_TRUE(!inside || computed) << "tile " << tile << ", tap " << tap;
        }
      }
    }
  }
  for (const int times : seen) ASSERT_EQ(times, 1);
}

// Every output has a place of its own in the staging, in the order of y, and in whole 16 bytes with it.
template <DirectBodySm90 config>
void check_output() {
  constexpr ConvExtents a = config.conv;
  using S = direct_body_sm90::Sizes<config>;
  using Segment = direct_body_sm90::Segment<config>;
  for (int first = 0; first < config.position_tiles() * config.block_positions(); first += S::kPositions) {
    const int first_segment = first / Segment::kPositions;
    const int last_segment = (first + S::kPositions - 1) / Segment::kPositions;
    ASSERT_LT(last_segment - first_segment, config.most_segments());
    int free_from = 0, outputs = 0;
    for (int index = first_segment; index <= last_segment; ++index) {
      const Segment segment(index, first_segment, first);
      ASSERT_EQ(segment.slot % 4, 0);
      ASSERT_GE(segment.slot, free_from) << "after what may be shifted by 3";
      if (segment.end <= segment.begin) continue;
      free_from = segment.slot + 3 + segment.end - segment.begin;
      ASSERT_LE(free_from, S::kStagingPitch);
      outputs += segment.end - segment.begin;
    }
    for (int position = first; position < first + S::kPositions; ++position) {
      const direct_body_sm90::Output at = direct_body_sm90::output_of<config>(position);
      if (at.column >= a.q) continue;
      --outputs;
      const int index = position / Segment::kPositions;
      const Segment segment(index, first_segment, first);
      const int output = Segment::before(position - index * Segment::kPositions);
      ASSERT_EQ(segment.image, at.image);
      ASSERT_EQ(segment.origin + output, at.row * a.q + at.column);
      ASSERT_GE(output, segment.begin);
      ASSERT_LT(output, segment.end);
    }
    ASSERT_EQ(outputs, 0) << "segments are those outputs and no more";
  }
}

template <DirectBodySm90 config>
void check_geometry() {
  check_input<config>();
  check_output<config>();
}

TEST(DirectBodySm90, PositionsMeetTheirPixels) {
  constexpr ConvExtents k3x3{
      .n = 3, .c = 8, .h = 9, .w = 11, .k = 64, .r = 3, .s = 3, .pad_top = 1, .pad_left = 1, .p = 9, .q = 11};
  check_geometry<DirectBodySm90{.conv = k3x3, .positions = 64}>();
  check_geometry<DirectBodySm90{.conv = k3x3, .positions = 8}>();
  check_geometry<DirectBodySm90{.conv = k3x3, .positions = 40, .strips = 3}>();
  EXPECT_EQ((DirectBodySm90{.conv = k3x3}.pitch()), 12) << "one column of padding serves two rows";
  EXPECT_EQ((DirectBodySm90{.conv = k3x3}.image_rows()), 10);
  constexpr ConvExtents uneven{
      .n = 2, .c = 8, .h = 8, .w = 9, .k = 64, .r = 5, .s = 4, .pad_top = 3, .pad_left = 0, .p = 9, .q = 8};
  check_geometry<DirectBodySm90{.conv = uneven, .positions = 64}>();
  constexpr ConvExtents unpadded{.n = 2, .c = 8, .h = 8, .w = 9, .k = 64, .r = 3, .s = 3, .p = 6, .q = 7};
  check_geometry<DirectBodySm90{.conv = unpadded, .positions = 32}>();
  constexpr ConvExtents much_padding{
      .n = 2, .c = 8, .h = 3, .w = 2, .k = 64, .r = 3, .s = 3, .pad_top = 4, .pad_left = 5, .p = 9, .q = 10};
  check_geometry<DirectBodySm90{.conv = much_padding, .positions = 56}>();
  constexpr ConvExtents one_pixel{
      .n = 50, .c = 8, .h = 1, .w = 1, .k = 64, .r = 3, .s = 3, .pad_top = 1, .pad_left = 1, .p = 1, .q = 1};
  check_geometry<DirectBodySm90{.conv = one_pixel, .positions = 64}>();
}

TEST(DirectBodySm90, PositionsMeetTheirFrames) {
  constexpr ConvExtents causal{.n = 2,
                               .c = 8,
                               .h = 5,
                               .w = 6,
                               .k = 64,
                               .r = 3,
                               .s = 3,
                               .pad_top = 1,
                               .pad_left = 1,
                               .p = 5,
                               .q = 6,
                               .d = 4,
                               .t = 3,
                               .pad_front = 2,
                               .z = 4};
  check_geometry<DirectBodySm90{.conv = causal, .positions = 32}>();
  check_geometry<DirectBodySm90{.conv = causal, .positions = 24, .strips = 2}>();
  check_geometry<DirectBodySm90{.conv = causal, .positions = 128}>();
  constexpr ConvExtents last = [](ConvExtents other) {
    other.nhwc = true;
    return other;
  }(causal);
  check_input<DirectBodySm90{.conv = last, .positions = 32, .staged = 0}>();
  check_input<DirectBodySm90{.conv = last, .positions = 24, .strips = 2, .channels = 32, .staged = 0}>();
  constexpr DirectBodySm90 kernel{.conv = causal, .position_groups = 1, .positions = 32};
  EXPECT_EQ(kernel.tile_blocks(0).count(), 1) << "the first frame meets one of the filter's three";
  EXPECT_EQ(kernel.tile_blocks(kernel.positions * 4).count(), 3);
  constexpr ConvExtents strided{.n = 3,
                                .c = 8,
                                .h = 7,
                                .w = 6,
                                .k = 64,
                                .r = 3,
                                .s = 2,
                                .stride_h = 2,
                                .pad_top = 1,
                                .p = 4,
                                .q = 5,
                                .d = 7,
                                .t = 3,
                                .stride_d = 2,
                                .dilation_d = 2,
                                .pad_front = 3,
                                .z = 4};
  check_geometry<DirectBodySm90{.conv = strided, .positions = 48}>();
  constexpr ConvExtents nothing_but_padding{
      .n = 2, .c = 8, .h = 4, .w = 5, .k = 64, .p = 4, .q = 5, .d = 1, .stride_d = 3, .pad_front = 1, .z = 1};
  check_geometry<DirectBodySm90{.conv = nothing_but_padding, .positions = 40}>();
}

TEST(DirectBodySm90, PositionsMeetTheirPixelsAtAnyStrideAndDilation) {
  constexpr ConvExtents stride2{.n = 2,
                                .c = 8,
                                .h = 12,
                                .w = 14,
                                .k = 64,
                                .r = 3,
                                .s = 3,
                                .stride_h = 2,
                                .stride_w = 2,
                                .pad_top = 1,
                                .pad_left = 1,
                                .p = 6,
                                .q = 7};
  check_geometry<DirectBodySm90{.conv = stride2, .positions = 64}>();
  check_geometry<DirectBodySm90{.conv = stride2, .positions = 24, .strips = 2}>();
  constexpr ConvExtents wide_padding{.n = 2,
                                     .c = 8,
                                     .h = 5,
                                     .w = 6,
                                     .k = 64,
                                     .r = 5,
                                     .s = 4,
                                     .stride_h = 3,
                                     .stride_w = 2,
                                     .pad_top = 4,
                                     .pad_left = 3,
                                     .p = 4,
                                     .q = 5};
  check_geometry<DirectBodySm90{.conv = wide_padding, .positions = 32}>();
  constexpr ConvExtents pointwise{
      .n = 2, .c = 8, .h = 9, .w = 8, .k = 64, .stride_h = 2, .stride_w = 2, .p = 5, .q = 4};
  check_geometry<DirectBodySm90{.conv = pointwise, .positions = 32}>();
  EXPECT_EQ(DirectBodySm90{.conv = pointwise}.phases(), 1) << "pixels that no tap meets are not loaded";
  constexpr ConvExtents dilated{.n = 2,
                                .c = 8,
                                .h = 10,
                                .w = 9,
                                .k = 64,
                                .r = 3,
                                .s = 3,
                                .dilation_h = 2,
                                .dilation_w = 3,
                                .pad_top = 2,
                                .pad_left = 3,
                                .p = 10,
                                .q = 9};
  check_geometry<DirectBodySm90{.conv = dilated, .positions = 64}>();
  constexpr ConvExtents both{.n = 2,
                             .c = 8,
                             .h = 13,
                             .w = 12,
                             .k = 64,
                             .r = 2,
                             .s = 3,
                             .stride_h = 3,
                             .stride_w = 3,
                             .dilation_h = 2,
                             .dilation_w = 2,
                             .pad_top = 1,
                             .pad_left = 2,
                             .p = 4,
                             .q = 4};
  check_geometry<DirectBodySm90{.conv = both, .positions = 16}>();
}

// A pixel of tap `tap` at place `index` of a row (or at row `index` of an image) is padding.
bool is_padding(const ConvExtents& a, int tap, int index) {
  const int at = index * a.stride_w + tap * a.dilation_w % a.stride_w - a.pad_left;
  return at < 0 || at >= a.w;
}

// Tells whether rows can follow each other at this distance: what a tap meets beyond a row's own places is
// padding, both for that row and for the next.
bool rows_fit(const ConvExtents& a, int pitch) {
  for (int tap = 0; tap < a.s; ++tap)
    for (int index = pitch; index < a.q + tap * a.dilation_w / a.stride_w; ++index)
      if (index - pitch >= pitch || !is_padding(a, tap, index) || !is_padding(a, tap, index - pitch))
        return false;
  return true;
}

TEST(DirectBodySm90, RowsAreAsCloseAsTheirPaddingAllows) {
  int wrapped = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    std::uint64_t at = 16 * i;
    const auto between = [&at](int low, int high) {
      return low + static_cast<int>(random_bits(3, at++) % static_cast<unsigned>(high - low + 1));
    };
    ConvExtents a{.w = 1, .s = 1};
    a.w = between(1, 20), a.s = between(1, 7), a.stride_w = between(1, 4), a.dilation_w = between(1, 9);
    a.pad_left = between(0, 12), a.q = between(1, 20);
    const DirectBodySm90 kernel{.conv = a};
    int pitch = a.q;
    while (!rows_fit(a, pitch)) ++pitch;
    ASSERT_EQ(kernel.pitch(), pitch) << cuda::to_cuda(a);
    wrapped += pitch < a.q + kernel.column_reach();
    std::vector<bool> met(static_cast<std::size_t>(a.stride_w));
    for (int tap = 0; tap < a.s; ++tap) met[static_cast<std::size_t>(tap * a.dilation_w % a.stride_w)] = true;
    ASSERT_EQ(kernel.phases_w(), std::count(met.begin(), met.end(), true)) << cuda::to_cuda(a);
    for (int index = 0, phase = -1; index < kernel.phases_w(); ++index) {
      phase = static_cast<int>(std::find(met.begin() + phase + 1, met.end(), true) - met.begin());
      ASSERT_EQ(kernel.phase_w(index), phase) << cuda::to_cuda(a);
    }
  }
  EXPECT_GT(wrapped, 1000);
}

// Planning asks for a pitch thousands of times: the first of these, from the random sweep, took it hours.
TEST(DirectBodySm90, PlansQuicklyAtAnyDilationStrideAndPadding) {
  for (const char* text : {"mb1ic16ih5iw138oc3kh5kw138sh2sw1ph2pw6131dh0dw138 pad_right=12775",
                           "mb1ic16ih5iw138oc3kh3kw138sh2sw1ph2pw6131dh0dw138 pad_right=12775",
                           "mb1ic16ih5iw8oc3kh1kw11pw99999dw9998", "mb1ic16ih99999iw1oc3kh3kw1sh33333"}) {
    ConvProblem problem = parse_problem(text);
    problem.precision = Precision::tf32;
    const std::clock_t start = std::clock();  // processor time: others may run meanwhile
    const bool supported = static_cast<bool>(cuda::direct_body_sm90().supports(problem, gpu()));
    EXPECT_EQ(candidates(problem).empty(), !supported) << text;
    EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC) << text;
  }
}

TEST(DirectBodySm90, RefusesWithAReason) {
  expect_refusals(cuda::direct_body_sm90(), {{"mb2ic16ih32oc16kh3ph1", "this is 8.0", {8, 0}},
                                             {"mb2ic16ih32oc16kh3ph1 precision=fp32", "fp32"},
                                             {"mb2ic16ih32oc16kh3ph1 residual=1", "residual"},
                                             {"mb2g2ic16ih32oc16kh3ph1 layout=nhwc residual=1", "group"},
                                             {"mb2ic16ih32oc16kh3ph1 dtype=f16 precision=fp16", "f32"},
                                             {"mb2g2ic16ih32oc16kh3ph1", "group"},
                                             {"mb2ic3ih32oc16kh3ph1", "input channels"},
                                             {"mb1ic16ih64oc16kh32", "512 taps, not 1024"},
                                             {"mb1ic64ih8192oc16kh3ph1", "no tile of it fits"}});
  expect_config_refusals(
      cuda::direct_body_sm90(), tf32("resnet_3x3_64"),
      "filter_groups=1 position_groups=2 positions=200 strips=1 channels=8 stages=3 staged=8 producers=1",
      {"producers=0", "producers=2", "filter_groups=0", "filter_groups=0 positions=192", "filter_groups=2",
       "filter_groups=3 position_groups=1 positions=168", "positions=204", "positions=264", "strips=0",
       "strips=57", "channels=12", "stages=1", "stages=8 staged=16", "staged=4"});
  expect_config_refusals(
      cuda::direct_body_sm90(), tf32("mb64ic64ih56oc64kh3ph1 layout=nhwc"),
      "filter_groups=1 position_groups=2 positions=200 strips=1 channels=8 stages=3 staged=0 producers=1",
      {"staged=8", "staged=16", "channels=40", "filter_groups=0 positions=200"});
}

TEST(DirectBodySm90, TakesEveryBodyCase) {
  for (const ConvProblem& problem : load_suite("body"))
    EXPECT_FALSE(candidates(tf32(to_string(problem))).empty()) << to_string(problem);
}

TEST(DirectBodySm90, CompilesWithTheMostSums) {
  std::vector<PlannedKernel> kernels;
  for (const char* text : {"alexnet_conv2", "resnet_3x3_s2_128", "resnet_1x1_1024_256",
                           "resnet_3x3_256_batch1", "mb3ic21ih33iw41oc13kh5kw3sh2sw3ph1pw2 act=relu bias=0",
                           "mb1ic384id3ih60iw104oc768kd3kh1kw1pd0ph0pw0 layout=nhwc",
                           "mb1ic96id6ih240iw416oc96kd3kh3kw3pd0ph1pw1 layout=nhwc residual=1 act=silu",
                           "mb3ic21ih33iw41oc13kh5kw3sh2sw3ph1pw2 layout=nhwc residual=1"}) {
    const ConvProblem problem = tf32(text);
    kernels.push_back({problem, most<DirectBodySm90>(problem, candidates(problem),
                                                     [](const DirectBodySm90& a) { return a.sums(); })});
  }
  kernels.push_back(kernels.back());
  kernels.back().any_pointer = true;
  const ConvProblem turned = tf32("mb1ic96id6ih240iw416oc96kd3kh3kw3pd0ph1pw1 layout=nhwc residual=1");
  kernels.push_back({turned, most<DirectBodySm90>(turned, candidates(turned), [](const DirectBodySm90& a) {
                       return a.turned() ? a.sums() : 0;
                     })});
  EXPECT_TRUE(kernel_of<DirectBodySm90>(turned, kernels.back().config).turned());
  expect_compiles_as_planned(*cuda::kernel_algorithm(cuda::direct_body_sm90()), kernels);
}

}  // namespace
}  // namespace convtune::direct_body_sm90_test
