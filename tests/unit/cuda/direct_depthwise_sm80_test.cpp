// The depthwise kernel for channels last without a GPU: geometry, refusals, and that what is offered compiles
// for every architecture without spills into the threads that were planned.

#include <gtest/gtest.h>

#include <vector>

#include "cuda/algorithms/direct_depthwise_sm80/config.h"
#include "kernel_expectations.h"

namespace convtune {
namespace {

std::vector<Config> candidates(const Conv2dProblem& problem, ComputeCapability capability = {9, 0}) {
  return cuda::direct_depthwise_sm80().candidates(problem, gpu(capability));
}

int number(int i) {
  return i * 7 % 11 - 5;
}

// One output as the kernel computes it, from an input that lies as in its ring of rows.
long long sum_by_geometry(const DirectDepthwiseSm80& a, int p, int q) {
  const Conv2dExtents& of = a.conv;
  const int band = p / a.tile_rows(), pass = p % a.tile_rows() / a.pass_rows();
  const int down = p % a.pass_rows() / a.rows, row = p % a.rows;
  const int side = q / a.tile_columns(), across = q % a.tile_columns() / a.columns, column = q % a.columns;
  const int first = pass * a.pass_input_rows() + down * a.rows * of.stride_h;  // the strip's, of the tile
  long long sum = 0;
  for (int i = 0; i < a.strip_rows(); ++i)
    for (int j = 0; j < a.strip_columns(); ++j) {
      const int r = a.filter_row(i, row), s = a.filter_column(j, column);
      if (r < 0 || s < 0 || !a.uses_row(i) || !a.uses_column(j)) continue;
      const int tile_row = first + a.tile_row(0, i);
      const int tile_column = across * a.columns * of.stride_w + a.tile_column(0, j);
      EXPECT_EQ(tile_row, a.tile_row(pass * a.down + down, i));
      EXPECT_EQ(tile_column, a.tile_column(across, j));
      // It has come for this pass, and what is on its way meanwhile does not take its place.
      EXPECT_TRUE(tile_row >= pass * a.pass_input_rows() && tile_row < a.rows_for(pass + 1));
      EXPECT_LE(a.rows_for(std::min(pass + a.ahead + 1, a.passes)) - pass * a.pass_input_rows(),
                a.ring_rows());
      EXPECT_LT(first % a.ring_rows() + a.tile_row(0, i), 2 * a.ring_rows());
      EXPECT_TRUE(tile_column >= 0 && tile_column < a.input_columns());
      const int image_row = a.first_row(band) + tile_row, image_column = a.first_column(side) + tile_column;
      if (image_row >= 0 && image_row < of.h && image_column >= 0 && image_column < of.w)
        sum += 1LL * number(image_row * of.w + image_column) * number(r * of.s + s + 3);
    }
  return sum;
}

TEST(DirectDepthwiseSm80, FindsEveryProductInItsSharedMemory) {
  for (const char* text :
       {"g8mb1ic8ih9iw11oc8kh3ph1", "g5mb1ic5ih20iw16oc5kh5kw3sh2sw3ph2pw0", "g8mb1ic8ih7oc8kh7ph3",
        "g8mb1ic8ih15iw23oc8kh3kw4sh3sw2ph3pw4dh1dw2", "g4mb1ic4ih12oc4kh2sh4", "g4mb1ic4ih8oc4kh7ph6",
        "g4mb1ic4ih4iw28oc4kh1sh5", "g4mb1ic4ih2oc4kh3ph5", "g4mb1ic4ih9oc4kh3sh2 pad_bottom=3"}) {
    const Conv2dProblem problem = parse_problem(std::string(text) + " layout=nhwc");
    const std::vector<Config> configs = candidates(problem);
    ASSERT_FALSE(configs.empty()) << text;
    for (std::size_t c = 0; c < configs.size(); c += 1 + configs.size() / 16) {
      const DirectDepthwiseSm80 kernel = kernel_of<DirectDepthwiseSm80>(problem, configs[c]);
      for (int p = 0; p < problem.p(); ++p)
        for (int q = 0; q < problem.q(); ++q) {
          long long want = 0;
          for (int r = 0; r < problem.r; ++r)
            for (int s = 0; s < problem.s; ++s) {
              const auto row = p * problem.stride_h + r * problem.dilation_h - problem.pad_top;
              const auto column = q * problem.stride_w + s * problem.dilation_w - problem.pad_left;
              if (row >= 0 && row < problem.h && column >= 0 && column < problem.w)
                want += 1LL * number(static_cast<int>(row * problem.w + column)) *
                        number(static_cast<int>(r * problem.s + s + 3));
            }
          ASSERT_EQ(sum_by_geometry(kernel, p, q), want)
              << text << " with " << to_string(configs[c]) << " at " << p << ", " << q;
        }
    }
  }
}

// Where one strip is a whole image its padding is neither stored nor multiplied.
TEST(DirectDepthwiseSm80, LeavesThePaddingOfWholeImagesOut) {
  const Conv2dProblem problem = parse_problem("g64mb1ic64ih7oc64kh7ph3 layout=nhwc");
  const auto kernel = [&](const char* config) {
    return kernel_of<DirectDepthwiseSm80>(problem, parse_config(config));
  };
  const auto whole = kernel("rows=7 columns=7 channels=64 down=1 across=1 passes=1 ahead=1 blocks=4");
  EXPECT_EQ(whole.smem_bytes(), 7 * 7 * 64 * 4);
  EXPECT_EQ(whole.work().products, 37 * 37);
  EXPECT_EQ(whole.work().inputs, 7 * 7);
  const auto high = kernel("rows=7 columns=2 channels=64 down=1 across=4 passes=1 ahead=1 blocks=4");
  EXPECT_EQ(high.smem_bytes(), 7 * 14 * 64 * 4);
  EXPECT_EQ(high.work().products, 37 * 14);
}

TEST(DirectDepthwiseSm80, RefusesWithAReason) {
  const auto reason = [](const std::string& text, ComputeCapability capability = {9, 0}) {
    return cuda::direct_depthwise_sm80().supports(parse_problem(text), gpu(capability)).reason();
  };
  const std::string good = "mb2g32ic32ih32oc32kh3ph1 layout=nhwc";
  for (const char* precision : {"fp32", "tf32", "fp16", "bf16"})
    for (const ComputeCapability capability : kCapabilities)
      EXPECT_EQ(reason(good + " precision=" + precision, capability), "");
  EXPECT_EQ(reason("mb1g8ic8ih40oc8kh31ph15 layout=nhwc"), "");
  EXPECT_NE(reason("mb2g32ic32ih32oc32kh3ph1").find("NHWC"), std::string::npos);
  EXPECT_NE(reason(good + " precision=fp16 dtype=f16").find("f32"), std::string::npos);
  EXPECT_NE(reason("mb2g32ic32ih32oc64kh3ph1 layout=nhwc").find("one filter a channel"), std::string::npos);
  EXPECT_NE(reason("mb2g16ic32ih32oc32kh3ph1 layout=nhwc").find("one filter a channel"), std::string::npos);
  EXPECT_NE(reason("mb2g2ic2ih64oc2kh40 layout=nhwc").find("1024 taps"), std::string::npos);
  EXPECT_NE(reason("mb2g2ic2ih2000000iw1oc2kh3ph1pw1 layout=nhwc").find("2000000"), std::string::npos);
  EXPECT_NE(reason("mb1g64ic64ih9000oc64kh3ph1 layout=nhwc").find("too large"), std::string::npos);
  EXPECT_NE(reason("mb1g8ic8ih900oc8kh2dh400 layout=nhwc").find("window"), std::string::npos);
}

TEST(DirectDepthwiseSm80, TakesNoConfigFromOutsideThatIsNotItsOwn) {
  const Conv2dProblem problem = tf32("g96mb64ic96ih56oc96kh7ph3 layout=nhwc");
  const auto accepts = [&](const char* text) {
    return static_cast<bool>(cuda::direct_depthwise_sm80().accepts(problem, gpu(), parse_config(text)));
  };
  EXPECT_TRUE(accepts("rows=7 columns=4 channels=32 down=2 across=2 passes=1 ahead=1 blocks=4"));
  for (const char* bad :
       {"rows=7 columns=4 channels=32 down=2 across=2",
        "rows=0 columns=4 channels=32 down=2 across=2 passes=1 ahead=1 blocks=4",
        "rows=7 columns=4 channels=30 down=2 across=2 passes=1 ahead=1 blocks=4",
        "rows=7 columns=4 channels=32 down=2 across=2 passes=1 ahead=1 blocks=9",  // registers
        "rows=7 columns=4 channels=96 down=4 across=4 passes=1 ahead=1 blocks=1",  // threads
        "rows=8 columns=8 channels=32 down=1 across=2 passes=1 ahead=1 blocks=1",  // products
        "rows=4 columns=4 channels=32 down=1 across=2 passes=2 ahead=3 blocks=1",
        "rows=4 columns=4 channels=32 down=7 across=4 passes=1 ahead=1 blocks=3",  // shared memory
        "rows=7 columns=4 channels=32 down=1000 across=1000 passes=1 ahead=1 blocks=1",
        "rows=7 columns=4 channels=32 down=2 across=4294967297 passes=1 ahead=1 blocks=4"})
    EXPECT_FALSE(accepts(bad)) << bad;
}

TEST(DirectDepthwiseSm80, OffersWhatItAccepts) {
  for (const char* text :
       {"g96mb64ic96ih56oc96kh7ph3", "g144mb64ic144ih56oc144kh3ph1", "g1mb1ic1ih1oc1kh1",
        "g17mb1ic17ih9oc17kh3sh2ph1", "g3mb1ic3ih40oc3kh31ph15", "g8mb1ic8ih5iw300oc8kh3ph1dh1"}) {
    const Conv2dProblem problem = tf32(std::string(text) + " layout=nhwc");
    const std::vector<Config> configs = candidates(problem);
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : configs)
      EXPECT_TRUE(cuda::direct_depthwise_sm80().accepts(problem, gpu(), config))
          << text << " " << to_string(config);
  }
}

// The first guess and, of those with several passes and with one, the config with the least registers to
// spare.
TEST(DirectDepthwiseSm80, CompilesAsPlanned) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << "NVRTC: " << cuda::describe_nvrtc();
  std::vector<cuda::CompileJob> jobs;
  std::vector<int> threads;
  const auto add = [&](const Conv2dProblem& problem, const Config& config, ComputeCapability capability) {
    const DirectDepthwiseSm80 kernel = kernel_of<DirectDepthwiseSm80>(problem, config);
    jobs.push_back(job_of(cuda::direct_depthwise_sm80(), problem, config, capability));
    threads.push_back(kernel.threads() * kernel.blocks);
  };
  for (const char* text : {"g96mb64ic96ih56oc96kh7ph3", "g96mb64ic96ih112oc96kh3sh2ph1",
                           "g17mb2ic17ih14oc17kh5sh2ph2dh1", "g4mb1ic4ih30oc4kh13ph6"}) {
    const Conv2dProblem problem = tf32(std::string(text) + " layout=nhwc");
    const std::vector<Config> configs = candidates(problem);
    ASSERT_FALSE(configs.empty()) << text;
    add(problem, configs.front(), {9, 0});
    for (const bool ring : {false, true}) {
      const Config* tightest = nullptr;
      int least = 0;
      for (const Config& config : configs) {
        const DirectDepthwiseSm80 kernel = kernel_of<DirectDepthwiseSm80>(problem, config);
        const int spare = kernel.register_limit() - kernel.registers();
        if ((kernel.passes > 1) == ring && (!tightest || spare < least)) tightest = &config, least = spare;
      }
      if (tightest) add(problem, *tightest, {9, 0});
    }
  }
  for (const ComputeCapability capability : kCapabilities) {
    const Conv2dProblem problem = tf32("g96mb64ic96ih56oc96kh7ph3 layout=nhwc");
    add(problem, candidates(problem, capability).front(), capability);
  }
  expect_compiles(jobs, threads);
}

}  // namespace
}  // namespace convtune
