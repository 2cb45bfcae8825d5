// The direct stem kernel without a GPU: geometry, refusals, and that what is offered compiles without spills
// into the threads and shared memory that were planned.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "convtune/cases.h"
#include "cuda/algorithms/direct_stem_sm90/config.h"
#include "kernel_expectations.h"

namespace convtune {
namespace {

std::vector<Config> candidates(const Conv2dProblem& problem) {
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
  const auto reason = [](const std::string& text, ComputeCapability capability = {9, 0}) {
    return cuda::direct_stem_sm90().supports(parse_problem(text), gpu(capability)).reason();
  };
  const std::string good = "mb2ic3ih64oc16kh5sh4ph2 precision=tf32";
  EXPECT_EQ(reason(good), "");
  EXPECT_EQ(reason("mb2ic3ih64oc16kh5sh4ph2 precision=bf16"), "");
  EXPECT_NE(reason(good, {8, 0}).find("this is 8.0"), std::string::npos);
  EXPECT_NE(reason(good, {10, 0}).find("this is 10.0"), std::string::npos);
  EXPECT_NE(reason("mb2ic3ih64oc16kh5sh4ph2 precision=fp32").find("fp32"), std::string::npos);
  EXPECT_NE(reason(good + " layout=nhwc").find("NCHW"), std::string::npos);
  EXPECT_NE(reason("mb2ic3ih64oc16kh5sh4ph2 dtype=f16 precision=fp16").find("f32"), std::string::npos);
  EXPECT_NE(reason("mb2g2ic4ih64oc16kh5sh4ph2 precision=tf32").find("group"), std::string::npos);
  EXPECT_NE(reason("mb2ic3ih64oc16kh3sh4ph1dh1 precision=tf32").find("dense"), std::string::npos);
  EXPECT_NE(reason("mb2ic3ih64oc16kh5sh2ph2 precision=tf32").find("stride of 4"), std::string::npos);
  EXPECT_NE(reason("mb2ic3ih20oc16kh5sh4ph2 precision=tf32").find("rows of 5 outputs"), std::string::npos);
  EXPECT_NE(reason("mb2ic512ih64oc16kh5sh4ph2 precision=tf32").find("few input channels"), std::string::npos);
  EXPECT_NE(reason("mb2ic128ih64oc16kh4sh4 precision=tf32").find("products"), std::string::npos);
  EXPECT_NE(reason("mb1ic4ih8iw20060oc16kh5sh4 precision=tf32").find("shared memory"), std::string::npos);
}

TEST(DirectStemSm90, TakesNoConfigFromOutsideThatIsNotItsOwn) {
  const Conv2dProblem problem = tf32("alexnet_conv1");
  const auto accepts = [&](const char* text) {
    return static_cast<bool>(cuda::direct_stem_sm90().accepts(problem, gpu(), parse_config(text)));
  };
  EXPECT_TRUE(accepts("consumers=3 units=5 filters=96"));
  EXPECT_FALSE(accepts("consumers=1 units=5 filters=96"));
  EXPECT_FALSE(accepts("consumers=4 units=5 filters=96"));
  EXPECT_FALSE(accepts("consumers=3 units=6 filters=96"));
  EXPECT_FALSE(accepts("consumers=3 units=50 filters=32"));
  EXPECT_FALSE(accepts("consumers=3 units=3 filters=96"));
  EXPECT_FALSE(accepts("consumers=3 units=5 filters=97"));
  EXPECT_FALSE(accepts("consumers=3 units=5 filters=128"));
  EXPECT_FALSE(accepts("consumers=3 units=4294967301 filters=96"));
  EXPECT_FALSE(accepts("consumers=3 units=5"));
}

TEST(DirectStemSm90, TakesEveryStemOfStride4) {
  int taken = 0;
  for (const Conv2dProblem& problem : load_suite("stem")) {
    if (problem.stride_w != 4) continue;
    ++taken;
    const std::vector<Config> configs = candidates(tf32(to_string(problem)));
    ASSERT_FALSE(configs.empty()) << to_string(problem);
    for (const Config& config : configs)
      EXPECT_TRUE(cuda::direct_stem_sm90().accepts(tf32(to_string(problem)), gpu(), config))
          << to_string(config);
  }
  EXPECT_EQ(taken, 3);
  EXPECT_EQ(to_string(candidates(tf32("alexnet_conv1")).front()), "consumers=3 units=5 filters=96");
}

// For each problem its first guess and the config with the most registers of sums.
TEST(DirectStemSm90, CompilesAsPlanned) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << "NVRTC: " << cuda::describe_nvrtc();
  std::vector<cuda::CompileJob> jobs;
  std::vector<int> threads;
  for (const char* text : {"alexnet_conv1", "convnext_patchify", "mb1ic8ih40iw700oc70kh3kw6sh2sw4pw1",
                           "mb3ic2ih33iw41oc13kh5kw3sh2sw4ph1pw2 act=relu bias=0"}) {
    const Conv2dProblem problem = tf32(text);
    const std::vector<Config> configs = candidates(problem);
    ASSERT_FALSE(configs.empty()) << text;
    const auto most = std::max_element(configs.begin(), configs.end(), [&](const auto& a, const auto& b) {
      return kernel_of<DirectStemSm90>(problem, a).sums() < kernel_of<DirectStemSm90>(problem, b).sums();
    });
    for (const Config& config : {configs.front(), *most}) {
      const DirectStemSm90 kernel = kernel_of<DirectStemSm90>(problem, config);
      jobs.push_back(job_of(cuda::direct_stem_sm90(), problem, config));
      threads.push_back(kernel.threads());
    }
  }
  expect_compiles(jobs, threads);
}

}  // namespace
}  // namespace convtune
