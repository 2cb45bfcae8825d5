// The depthwise kernel for channels last without a GPU: its geometry, its refusals, and its tightest configs
// compiled.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "cuda/algorithms/direct_depthwise_sm80/config.h"
#include "kernel_expectations.h"

namespace convtune::direct_depthwise_sm80_test {
namespace {

std::vector<Config> candidates(const ConvProblem& problem, ComputeCapability capability = {9, 0}) {
  return cuda::direct_depthwise_sm80().candidates(problem, gpu(capability));
}

int number(int i) {
  return i * 7 % 11 - 5;
}

// One output as the kernel computes it, from an input that lies as in its ring of rows.
long long sum_by_geometry(const DirectDepthwiseSm80& a, int p, int q) {
  const ConvExtents& of = a.conv;
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

// At every position each channel of the tensor is one thread's, which reads it where its word was copied to.
void expect_each_channel_once(const DirectDepthwiseSm80& a) {
  std::vector<int> times(static_cast<std::size_t>(a.conv.c));
  std::vector<int> byte_of(static_cast<std::size_t>(a.channels));  // in the ring
  const int size = size_of(a.conv.x_type);
  for (int word = 0; word < a.words_abreast(); ++word)
    for (int i = 0; i < a.word(); ++i)
      byte_of[static_cast<std::size_t>(word * a.word() + i)] = 4 * word + i * size;
  for (int chunk = 0; chunk < a.chunks(); ++chunk)
    for (int lane = 0; lane < a.lanes(); ++lane)
      for (int i = 0; i < a.width; ++i) {
        const int channel = lane * a.width + i, k = chunk * a.channels + channel;
        EXPECT_EQ(byte_of[static_cast<std::size_t>(channel)], lane * a.width * size + i * size);
        EXPECT_LT(k, a.packed_channels());
        if (k < a.conv.c) ++times[static_cast<std::size_t>(k)];
      }
  EXPECT_EQ(times, std::vector<int>(times.size(), 1));
  EXPECT_EQ(a.position_bytes(), 4 * a.words_abreast());
}

TEST(DirectDepthwiseSm80, FindsEveryProductInItsSharedMemory) {
  for (const char* text :
       {"g8mb1ic8ih9iw11oc8kh3ph1", "g5mb1ic5ih20iw16oc5kh5kw3sh2sw3ph2pw0", "g8mb1ic8ih7oc8kh7ph3",
        "g8mb1ic8ih15iw23oc8kh3kw4sh3sw2ph3pw4dh1dw2", "g4mb1ic4ih12oc4kh2sh4", "g4mb1ic4ih8oc4kh7ph6",
        "g4mb1ic4ih4iw28oc4kh1sh5", "g4mb1ic4ih2oc4kh3ph5", "g4mb1ic4ih9oc4kh3sh2 pad_bottom=3",
        "g37mb1ic37ih9iw11oc37kh3ph1 dtype=f16", "g96mb1ic96ih12oc96kh7ph3 dtype=bf16"}) {
    const ConvProblem problem = parse_problem(std::string(text) + " layout=nhwc");
    const std::vector<Config> configs = candidates(problem);
    ASSERT_FALSE(configs.empty()) << text;
    for (std::size_t c = 0; c < configs.size(); c += 1 + configs.size() / 16) {
      const DirectDepthwiseSm80 kernel = kernel_of<DirectDepthwiseSm80>(problem, configs[c]);
      expect_each_channel_once(kernel);
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

// If one strip is a whole image, its padding is neither stored nor multiplied.
TEST(DirectDepthwiseSm80, LeavesThePaddingOfWholeImagesOut) {
  const ConvProblem problem = parse_problem("g64mb1ic64ih7oc64kh7ph3 layout=nhwc");
  const auto kernel = [&](const char* config) {
    return kernel_of<DirectDepthwiseSm80>(problem, parse_config(config));
  };
  const auto whole = kernel("rows=7 columns=7 channels=64 width=1 down=1 across=1 passes=1 ahead=1 blocks=4");
  EXPECT_EQ(whole.smem_bytes(), 7 * 7 * 64 * 4);
  EXPECT_EQ(whole.work().products, 37 * 37);
  EXPECT_EQ(whole.work().inputs, 7 * 7);
  const auto high = kernel("rows=7 columns=2 channels=64 width=1 down=1 across=4 passes=1 ahead=1 blocks=4");
  EXPECT_EQ(high.smem_bytes(), 7 * 14 * 64 * 4);
  EXPECT_EQ(high.work().products, 37 * 14);
}

// Behind the ring each output of each thread has a word for its residual; neighbours copy 16 bytes of one
// output of the four of them at once, so each word comes once.
TEST(DirectDepthwiseSm80, BringsEveryResidualOnce) {
  for (const char* text : {"g96mb2ic96ih14oc96kh3ph1 dtype=bf16", "g24mb1ic24ih9iw11oc24kh5ph2 dtype=f16",
                           "g12mb1ic12ih9iw11oc12kh3ph1"}) {
    const ConvProblem problem = parse_problem(std::string(text) + " layout=nhwc residual=1");
    for (const Config& config : candidates(problem)) {
      DirectDepthwiseSm80 a = kernel_of<DirectDepthwiseSm80>(problem, config);
      ASSERT_FALSE(a.waits()) << "nobody has asked whether there is room";
      a.residual_waits = true;
      if (a.width < a.word()) {  // halves are no words
        EXPECT_EQ(a.waits(), false);
        continue;
      }
      ASSERT_TRUE(a.waits());
      EXPECT_EQ(a.used_threads() % 4, 0);
      EXPECT_EQ(a.lanes() % 4, 0);  // neighbours have the same strip
      std::set<int> words;
      for (int thread = 0; thread < a.used_threads(); thread += 4)
        for (int begin = 0; begin < a.rows * a.columns; begin += 4)
          for (int neighbour = 0; neighbour < 4 && begin + neighbour < a.rows * a.columns; ++neighbour) {
            const int at = a.residual_at() + 4 * ((begin + neighbour) * a.threads() + thread);
            ASSERT_EQ(at % 16, 0);
            for (int i = 0; i < 4; ++i) ASSERT_TRUE(words.insert(at + 4 * i).second) << to_string(config);
          }
      EXPECT_EQ(static_cast<int>(words.size()), a.rows * a.columns * a.used_threads());
      EXPECT_GE(*words.begin(), 4 * a.ring_rows() * a.row_words());
      EXPECT_LE(*words.rbegin() + 4, a.smem_bytes());
    }
  }
}

TEST(DirectDepthwiseSm80, TakesAnyPrecisionEverywhere) {
  for (const char* precision : {"fp32", "tf32", "fp16", "bf16"})
    for (const ComputeCapability capability : kCapabilities)
      EXPECT_TRUE(cuda::direct_depthwise_sm80().supports(
          tf32(std::string("mb2g32ic32ih32oc32kh3ph1 layout=nhwc precision=") + precision), gpu(capability)));
  for (const char* text : {"g1mb1ic1ih1oc1kh1", "g17mb1ic17ih9oc17kh3sh2ph1", "g3mb1ic3ih40oc3kh31ph15",
                           "g8mb1ic8ih5iw300oc8kh3ph1dh1"})
    EXPECT_FALSE(candidates(tf32(text + std::string(" layout=nhwc"))).empty()) << text;
}

TEST(DirectDepthwiseSm80, RefusesWithAReason) {
  expect_refusals(cuda::direct_depthwise_sm80(),
                  {{"mb2g32ic32ih32oc32kh3ph1", "NHWC"},
                   {"mb2g32ic32ih32oc32kh3ph1 layout=nhwc dtype=f16:f16:f32", "of one type"},
                   {"mb2g32ic32ih32oc64kh3ph1 layout=nhwc", "one filter a channel"},
                   {"mb2g16ic32ih32oc32kh3ph1 layout=nhwc", "one filter a channel"},
                   {"mb2g2ic2ih64oc2kh40 layout=nhwc", "1024 taps"},
                   {"mb2g2ic2ih2000000iw1oc2kh3ph1pw1 layout=nhwc", "2000000"},
                   {"mb1g64ic64ih9000oc64kh3ph1 layout=nhwc", "too large"},
                   {"mb1g8ic8ih900oc8kh2dh400 layout=nhwc", "window"}});
  const ConvProblem problem = tf32("g96mb64ic96ih56oc96kh7ph3 layout=nhwc");
  expect_config_refusals(cuda::direct_depthwise_sm80(), problem,
                         "rows=7 columns=4 channels=32 width=1 down=2 across=2 passes=1 ahead=1 blocks=4",
                         {"rows=0", "channels=30", "width=2", "blocks=9",  // registers
                          "channels=96 down=4 across=4 blocks=1",          // threads
                          "rows=8 columns=8 down=1 blocks=1",              // products
                          "rows=4 down=1 passes=2 ahead=3 blocks=1",
                          "rows=4 down=7 across=4 blocks=3",  // shared memory
                          "down=1000 across=1000 blocks=1"});
}

// Compiles the config with the least registers to spare, of those with several passes and of those with one.
TEST(DirectDepthwiseSm80, CompilesWithTheLeastToSpare) {
  std::vector<PlannedKernel> kernels;
  for (const char* text : {"g96mb64ic96ih56oc96kh7ph3", "g96mb64ic96ih112oc96kh3sh2ph1",
                           "g17mb2ic17ih14oc17kh5sh2ph2dh1", "g4mb1ic4ih30oc4kh13ph6",
                           "g96mb64ic96ih56oc96kh7ph3 dtype=bf16", "g144mb64ic144ih56oc144kh3ph1 dtype=f16",
                           "g17mb2ic17ih14oc17kh5sh2ph2dh1 dtype=f16 act=silu residual=1 rounding=eager"})
    for (const bool ring : {false, true}) {
      const ConvProblem problem = tf32(std::string(text) + " layout=nhwc");
      std::vector<Config> configs = candidates(problem);
      std::erase_if(configs, [&](const Config& config) { return (config.at("passes") > 1) != ring; });
      if (configs.empty()) continue;
      kernels.push_back({problem, tightest<DirectDepthwiseSm80>(problem, configs)});
    }
  // Halves one by one, and words that are no whole vectors.
  for (const char* text :
       {"g37mb1ic37ih9iw11oc37kh3ph1 dtype=f16 residual=1", "g36mb1ic36ih9oc36kh3ph1 dtype=bf16",
        "g64mb1ic64ih14oc64kh7ph3 dtype=bf16 residual=1"})
    for (const bool any_pointer : {false, true}) {
      const ConvProblem problem = tf32(std::string(text) + " layout=nhwc");
      kernels.push_back({problem, candidates(problem).front(), {8, 0}, any_pointer});
    }
  expect_compiles_as_planned(*cuda::kernel_algorithm(cuda::direct_depthwise_sm80()), kernels);
}

}  // namespace
}  // namespace convtune::direct_depthwise_sm80_test
