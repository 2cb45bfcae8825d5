// The direct stem kernel without a GPU: its geometry, its refusals, and its largest configs compiled.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "convtune/cases.h"
#include "cuda/algorithms/direct_stem_sm90/config.h"
#include "kernel_expectations.h"

namespace convtune::direct_stem_sm90_test {
namespace {

std::vector<Config> candidates(const ConvProblem& problem) {
  return cuda::direct_stem_sm90().candidates(problem, gpu());
}

// Every product of the convolution is made once, in groups whose chunks lie within the unit.
TEST(DirectStemSm90, GroupsAreTheFilter) {
  for (const int stride : {1, 2, 4, 5, 16})
    for (const int taps : {1, 3, 7, 11, 16}) {
      DirectStemSm90 kernel;
      kernel.conv.c = 2, kernel.conv.r = kernel.conv.s = taps, kernel.conv.stride_h = stride,
      kernel.conv.q = 9, kernel.conv.w = 50;
      std::set<std::tuple<int, int, int>> met;
      for (int i = 0, before = 0; i < kernel.groups(); ++i) {
        const DirectStemSm90::Group group = kernel.group(i);
        const int offset = kernel.group_offset(group);
        EXPECT_GE(offset, 0);
        EXPECT_LE((offset + kernel.conv.q) * 16, kernel.unit_bytes()) << stride << " " << taps << " " << i;
        if (i % 2 == 1) {
          EXPECT_EQ(group.unit, kernel.group(i - 1).unit);
          EXPECT_GE(offset, before) << "a descriptor cannot step back";
        }
        before = offset;
        if (group.real) {
          const int row = group.unit * stride + group.row;
          EXPECT_LT(row, taps);
          EXPECT_TRUE(met.emplace(group.channel, row, group.column_group).second);
        }
      }
      EXPECT_EQ(met.size(), static_cast<std::size_t>(2 * taps * ((taps + 3) / 4)));
    }
}

// A thread's sums of one plane are filters that are 4 apart there; all columns are all filters.
TEST(DirectStemSm90, ColumnsAreTheFilters) {
  for (const int filters : {32, 64, 96}) {
    DirectStemSm90 kernel;
    kernel.filters = filters;
    std::set<int> met;
    for (int column = 0; column < filters; ++column) {
      const int filter = kernel.filter_of_column(column), lane = column / 2 % 4;
      EXPECT_TRUE(met.insert(filter).second);
      EXPECT_LT(filter, filters);
      EXPECT_EQ(filter / DirectStemSm90::kPlanes % 4, lane);
    }
  }
}

// Rows one after the other, as the kernel stores them: each output is in one run, or carried into the next,
// or stored alone at the ends of an image; and runs are whole sectors that fit their slot.
TEST(DirectStemSm90, RunsAreAllOfAnImage) {
  for (const int p : {1, 5, 8})
    for (int q = 8; q < 200; ++q) {
      DirectStemSm90 kernel;
      kernel.conv.p = p, kernel.conv.q = q;
      if (kernel.last_tile() < DirectStemSm90::kSector) continue;
      for (int plane = 0; plane < DirectStemSm90::kPlanes; ++plane) {
        const int begin = plane * p * q;  // as if y began there
        int written = begin, carried = 0;
        for (int row = 0; row < p; ++row)
          for (int tile = 0; tile < kernel.tiles(); ++tile) {
            const int first = begin + row * q + tile * DirectStemSm90::kTile;
            const int positions = tile < kernel.tiles() - 1 ? DirectStemSm90::kTile : kernel.last_tile();
            const int behind = first % DirectStemSm90::kSector;
            const int length = (behind + positions) / DirectStemSm90::kSector * DirectStemSm90::kSector;
            const bool alone = row == 0 && tile == 0 && behind > 0;
            EXPECT_LE(length, kernel.longest_run());
            EXPECT_TRUE(tile < kernel.tiles() - 1
                            ? alone || length == DirectStemSm90::kTile
                            : length == kernel.short_run() ||
                                  length == kernel.short_run() + DirectStemSm90::kSector);
            EXPECT_EQ(alone ? first : first - behind, written);
            if (!alone && (row > 0 || tile > 0)) {
              EXPECT_EQ(carried, behind);
            }
            written = first - behind + length;
            carried = first + positions - written;
            EXPECT_TRUE(carried >= 0 && carried < DirectStemSm90::kSector);
          }
        EXPECT_EQ(written + carried, begin + p * q);
      }
    }
}

TEST(DirectStemSm90, RefusesWithAReason) {
  expect_refusals(cuda::direct_stem_sm90(), {{"mb2ic3ih64oc16kh5sh4ph2", "this is 8.0", {8, 0}},
                                             {"mb2ic3ih64oc16kh5sh4ph2", "this is 10.0", {10, 0}},
                                             {"mb2ic3ih64oc16kh5sh4ph2 precision=fp32", "fp32"},
                                             {"mb2ic3ih64oc16kh5sh4ph2 layout=nhwc", "NCHW"},
                                             {"mb2ic3ih64oc16kh5sh4ph2 dtype=f16 precision=fp16", "f32"},
                                             {"mb2g2ic4ih64oc16kh5sh4ph2", "group"},
                                             {"mb2ic3ih64oc16kh3sh4ph1dh1", "dense"},
                                             {"mb2ic3ih64oc16kh5sh2ph2", "stride of 4"},
                                             {"mb2ic3ih20oc16kh5sh4ph2", "rows of 5 outputs"},
                                             {"mb2ic512ih64oc16kh5sh4ph2", "few input channels"},
                                             {"mb2ic128ih64oc16kh4sh4", "products"},
                                             {"mb1ic4ih8iw20060oc16kh5sh4", "shared memory"}});
  expect_config_refusals(cuda::direct_stem_sm90(), tf32("alexnet_conv1"), "consumers=3 units=5 filters=96",
                         {"consumers=1", "consumers=4", "units=6", "units=50 filters=32", "units=3",
                          "filters=97", "filters=128"});
}

TEST(DirectStemSm90, TakesEveryStemOfStride4) {
  int taken = 0;
  for (const ConvProblem& problem : load_suite("stem"))
    if (problem.stride_w == 4) {
      EXPECT_FALSE(candidates(tf32(to_string(problem))).empty()) << to_string(problem);
      ++taken;
    }
  EXPECT_EQ(taken, 3);
  EXPECT_EQ(to_string(candidates(tf32("alexnet_conv1")).front()), "consumers=3 units=5 filters=96");
}

TEST(DirectStemSm90, CompilesWithTheMostSums) {
  std::vector<PlannedKernel> kernels;
  for (const char* text : {"alexnet_conv1", "convnext_patchify", "mb1ic8ih40iw700oc70kh3kw6sh2sw4pw1",
                           "mb3ic2ih33iw41oc13kh5kw3sh2sw4ph1pw2 act=relu bias=0"}) {
    const ConvProblem problem = tf32(text);
    kernels.push_back({problem, most<DirectStemSm90>(problem, candidates(problem),
                                                     [](const DirectStemSm90& a) { return a.sums(); })});
  }
  expect_compiles_as_planned(*cuda::kernel_algorithm(cuda::direct_stem_sm90()), kernels);
}

}  // namespace
}  // namespace convtune::direct_stem_sm90_test
