// The depthwise kernel in half precision without a GPU: its geometry, its refusals, and its tightest configs
// compiled.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "cuda/algorithms/direct_depthwise_half/config.h"
#include "kernel_expectations.h"
#include "sums_by_definition.h"

namespace convtune::direct_depthwise_half_test {
namespace {

std::vector<Config> candidates(const ConvProblem& problem, ComputeCapability capability = {9, 0}) {
  return cuda::direct_depthwise_half().candidates(problem, gpu(capability));
}

// A block's shared memory as the kernel fills it: where each number of x is, by byte; -1 for a zero.
std::map<int, long long> filled(const DirectDepthwiseHalf& a, int chunk, int level, int side, int set) {
  const DirectDepthwiseHalf::Pitch pitch = a.pitch();
  const long long end = a.smem_bytes();
  std::vector<int> planes;
  for (int i = 0; i < a.channels(); ++i) planes.push_back(a.channel_offset(i));
  std::map<int, long long> numbers;
  for (int image = 0; image < a.images; ++image)
    for (int row = 0; row < a.input_rows(); ++row)
      for (int column = 0; column < a.input_columns(); ++column)
        for (int i = 0; i < a.channels(); ++i) {
          const int at =
              planes[static_cast<std::size_t>(i)] + image * pitch.image + row * pitch.row + 2 * column;
          const int n = set * a.images + image, channel = chunk * a.channels() + i;
          const int h = a.first_row(level) + row, w = a.first_column(side) + column;
          const bool inside = n < a.conv.n && h >= 0 && h < a.conv.h && w >= 0 && w < a.conv.w &&
                              channel < a.conv.c && column < a.read_columns();
          EXPECT_TRUE(numbers.emplace(at, inside ? a.conv.input_offset(n, channel, h, w) : -1).second);
          EXPECT_LT(at + 1, end);
        }
  return numbers;
}

// An output as the kernel has it: row m of the operand times column `column` of the filter's band matrices.
long long sum_by_geometry(const DirectDepthwiseHalf& a, const std::map<int, long long>& smem, int m, int row,
                          int column, int channel) {
  const DirectDepthwiseHalf::Pitch pitch = a.pitch();
  const int plane = a.channel_offset(channel % a.channels());
  long long sum = 0;
  for (int r = 0; r < a.conv.r; ++r)
    for (int k = 0; k < 16; ++k) {
      // The lane of this entry, and its word.
      const int group = column, thread = k % 8 / 2, tap = 2 * thread - group, place = (tap + 1) & 7;
      const bool second = tap < -1;
      const long long weight =
          second != (k >= 8)
              ? -1
              : a.source_of(2 * (1LL * channel * a.channel_words() + place * a.filter_words() + r) + k % 2);
      const int input = (a.strip_band(m) * a.rows + row) * a.conv.stride_h + r;
      const int at =
          plane + a.strip_image(m) * pitch.image + input * pitch.row + 16 * a.strip_across(m) + 2 * k;
      const auto found = smem.find(at);
      EXPECT_TRUE(found != smem.end()) << "a product of what was not filled";
      if (found != smem.end() && found->second >= 0 && weight >= 0)
        sum += 1LL * number(found->second) * number(weight + 3);
    }
  return sum;
}

// Every output of every tile once, from its own place in shared memory.
TEST(DirectDepthwiseHalf, FindsEveryProductInItsSharedMemory) {
  for (const char* text :
       {"g24mb3ic24ih13iw19oc24kh7ph3", "g8mb1ic8ih30oc8kh6ph1", "g40mb5ic40ih7oc40kh6ph2",
        "g16mb2ic16ih14oc16kh7ph3", "g16mb2ic16ih20iw33oc16kh5kw6sh2sw1ph1pw2", "g8mb1ic8ih9iw70oc8kh6kw5"}) {
    const ConvProblem problem = parse_problem(std::string(text) + " layout=nhwc dtype=bf16");
    const std::vector<Config> configs = candidates(problem);
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : spread(configs, 3)) {
      const auto a = kernel_of<DirectDepthwiseHalf>(problem, config);
      std::map<long long, int> outputs;
      for (int set = 0; set < a.image_sets(); ++set)
        for (int chunk = 0; chunk < a.chunks(); ++chunk)
          for (int level = 0; level < a.levels(); ++level)
            for (int side = 0; side < a.sides(); ++side) {
              const std::map<int, long long> smem = filled(a, chunk, level, side, set);
              for (int m = 0; m < 16; ++m)
                for (int row = 0; a.is_strip(m) && row < a.rows; ++row)
                  for (int column = 0; column < 8; ++column)
                    for (int i = 0; i < a.channels(); ++i) {
                      const int n = set * a.images + a.strip_image(m), channel = chunk * a.channels() + i;
                      const int p = level * a.tile_rows() + a.strip_band(m) * a.rows + row;
                      const int q = side * a.tile_columns() + 8 * a.strip_across(m) + column;
                      if (n >= a.conv.n || p >= a.conv.p || q >= a.conv.q || channel >= a.conv.c) continue;
                      ++outputs[a.conv.output_offset(n, channel, p, q)];
                      ASSERT_EQ(sum_by_geometry(a, smem, m, row, column, channel),
                                sum_by_definition(a.conv, p, q, channel, n))
                          << text << " with " << to_string(config) << " at " << n << ", " << p << ", " << q
                          << ", " << channel;
                    }
            }
      EXPECT_EQ(static_cast<long long>(outputs.size()), 1LL * a.conv.n * a.conv.p * a.conv.q * a.conv.c);
      for (const auto& [at, times] : outputs) ASSERT_EQ(times, 1) << at;
    }
  }
}

// Outputs take the place of input that nobody reads any more.
TEST(DirectDepthwiseHalf, StoresWhereNobodyReads) {
  for (const char* text : {"g16mb2ic16ih28oc16kh7ph3", "g16mb4ic16ih14oc16kh6ph1", "g8mb1ic8ih9iw70oc8kh6kw5",
                           "g16mb1ic16ih31iw31oc16kh7kw7sh2sw1ph1pw1", "g16mb1ic16ih31iw31oc16kh5kw7sh3sw1",
                           "g8mb1ic8ih16oc8kh7ph2"}) {
    const ConvProblem problem = parse_problem(std::string(text) + " layout=nhwc dtype=bf16");
    for (const Config& config : candidates(problem)) {
      const auto a = kernel_of<DirectDepthwiseHalf>(problem, config);
      const DirectDepthwiseHalf::Pitch pitch = a.pitch();
      std::map<int, int> last;  // step that reads 16 bytes of the first plane, by where they are
      for (int m = 0; m < 16; ++m)
        for (int input = 0; a.is_strip(m) && input < a.strip_rows(); ++input)
          for (int half = 0; half < 2; ++half) {
            const int row = a.strip_band(m) * a.rows * a.conv.stride_h + input;
            int& step =
                last[a.strip_image(m) * pitch.image + row * pitch.row + 16 * (a.strip_across(m) + half)];
            step = std::max(step, input);
          }
      std::map<int, int> outputs;
      for (int m = 0; m < 16; ++m)
        for (int row = 0; a.is_strip(m) && row < a.rows; ++row) {
          ASSERT_LT(a.stored_after(row), a.strip_rows());
          ASSERT_GE(a.stored_after(row), row * a.conv.stride_h + a.conv.r - 1);
          for (int column = 0; column < 8; ++column) {
            const int at = a.outputs().offset(a.strip_image(m), a.strip_band(m) * a.rows + row,
                                              8 * a.strip_across(m) + column);
            ++outputs[at];
            const int in_plane = at % a.plane_bytes();
            ASSERT_LE(last[in_plane / 16 * 16], a.stored_after(row)) << text << " with " << to_string(config);
            ASSERT_LT(at, 2 * a.plane_bytes());
          }
        }
      EXPECT_EQ(static_cast<int>(outputs.size()), a.tile_pixels());
    }
  }
}

// With a residual they have a place of their own, where it waits for them: no two words of a block are in
// one.
TEST(DirectDepthwiseHalf, KeepsResidualsApart) {
  for (const char* text :
       {"g32mb2ic32ih28oc32kh7ph3", "g16mb4ic16ih14oc16kh6ph1", "g24mb1ic24ih9iw70oc24kh6kw5",
        "g16mb1ic16ih31iw31oc16kh7kw7sh2sw1ph1pw1", "g48mb3ic48ih7oc48kh7ph3"}) {
    const ConvProblem problem = parse_problem(std::string(text) + " layout=nhwc dtype=bf16 residual=1");
    const std::vector<Config> configs = candidates(problem);
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : spread(configs, 20)) {
      const auto a = kernel_of<DirectDepthwiseHalf>(problem, config);
      std::set<int> words;
      for (int pair = 0; pair < a.pairs(); ++pair)
        for (int image = 0; image < a.images; ++image)
          for (int row = 0; row < a.tile_rows(); ++row)
            for (int i = 0; i < a.tile_columns(); ++i) {
              const int at = a.smem().outputs + pair / 4 * a.outputs().octet + pair % 4 * a.outputs().pair +
                             a.outputs().offset(image, row, a.stored_column(i));
              ASSERT_TRUE(words.insert(at).second) << text << " with " << to_string(config);
            }
      EXPECT_EQ(a.smem().outputs % 8, 0);  // a lane's two words are loaded and stored at once
      EXPECT_EQ((a.outputs().pair | a.outputs().image | a.outputs().row) % 8, 0);
      EXPECT_GE(*words.begin(), a.smem().biases + 4 * a.channels());
      EXPECT_LE(*words.rbegin() + 4, a.smem_bytes());
    }
  }
}

TEST(DirectDepthwiseHalf, LaysStripsOutWithoutConflicts) {
  const auto kernel = [](const char* text, int rows, int bands, int across, int images) {
    DirectDepthwiseHalf a{.conv =
                              cuda::extents_of(parse_problem(std::string(text) + " layout=nhwc dtype=f16"))};
    a.rows = rows, a.bands = bands, a.across = across, a.images = images;
    return a;
  };
  const DirectDepthwiseHalf wide = kernel("g96mb64ic96ih56oc96kh7ph3", 4, 2, 7, 1);
  EXPECT_EQ(wide.slots_across(), 8);
  EXPECT_EQ(wide.pitch().conflicts, 0);
  EXPECT_EQ(wide.pitch().row, 128);
  const DirectDepthwiseHalf whole = kernel("g192mb32ic192ih28oc192kh7ph3", 7, 4, 4, 1);
  EXPECT_EQ(whole.pitch().conflicts, 0);
  const DirectDepthwiseHalf images = kernel("g384mb32ic384ih14oc384kh7ph3", 7, 2, 2, 4);
  EXPECT_EQ(images.pitch().conflicts, 0);
  EXPECT_TRUE(images.is_strip(15));
}

TEST(DirectDepthwiseHalf, TakesDepthwiseLayersEverywhere) {
  for (const char* type : {"f16", "bf16"})
    for (const ComputeCapability capability : kCapabilities)
      for (const char* text : {"mb64g96ic96ih56oc96kh7ph3", "mb1g960ic960ih7oc960kh7ph3",
                               "mb2g8ic8ih300oc8kh7kw5ph3pw2", "mb2g16ic16ih9oc16kh6"})
        EXPECT_FALSE(
            candidates(parse_problem(std::string(text) + " layout=nhwc dtype=" + type), capability).empty())
            << text;
}

TEST(DirectDepthwiseHalf, RefusesWithAReason) {
  expect_refusals(cuda::direct_depthwise_half(),
                  {{"mb2g32ic32ih32oc32kh3ph1 dtype=bf16", "NHWC"},
                   {"mb2g32ic32ih32oc32kh3ph1 layout=nhwc", "f32"},
                   {"mb2g32ic32ih32oc64kh3ph1 layout=nhwc dtype=bf16", "one filter a channel"},
                   {"mb2g20ic20ih32oc20kh7ph3 layout=nhwc dtype=bf16", "multiples of 8"},
                   {"mb2g32ic32ih32oc32kh7kw8ph3pw4 layout=nhwc dtype=bf16", "7x7"},
                   {"mb2g32ic32ih32oc32kh5ph2 layout=nhwc dtype=bf16", "26 taps"},
                   {"mb2g32ic32ih32oc32kh7sh2ph3 layout=nhwc dtype=bf16", "stride 1"},
                   {"mb2g32ic32ih32oc32kh7ph6dh1 layout=nhwc dtype=bf16", "dilation"},
                   // Its padding is as large as seven of its rows, and an int counts no more than two.
                   {"mb1g1024ic1024ih1iw1000000oc1024kh7ph3 layout=nhwc dtype=bf16", "too large"},
                   {"mb2g32ic32ih32oc32kh3ph1 layout=nhwc dtype=bf16", "8.0", {7, 5}}});
  const ConvProblem problem = parse_problem("g96mb64ic96ih56oc96kh7ph3 layout=nhwc dtype=bf16");
  expect_config_refusals(cuda::direct_depthwise_half(), problem,
                         "rows=4 bands=2 across=7 images=1 octets=4 warps=4 blocks=2",
                         {"rows=0", "rows=17", "bands=3", "images=2", "across=9", "octets=9", "warps=32",
                          "blocks=9", "octets=8 blocks=3"});
}

TEST(DirectDepthwiseHalf, CompilesWithTheLeastToSpare) {
  expect_tightest_compile<DirectDepthwiseHalf>(
      *cuda::kernel_algorithm(cuda::direct_depthwise_half()),
      {"g96mb64ic96ih56oc96kh7ph3 dtype=bf16 act=relu layout=nhwc",
       "g384mb32ic384ih14oc384kh7ph3 dtype=f16 layout=nhwc",
       "g144mb64ic144ih56oc144kh7kw5ph3pw2 dtype=bf16 residual=1 act=silu layout=nhwc",
       "g672mb32ic672ih14oc672kh7ph3 dtype=f16 act=silu residual=1 rounding=eager layout=nhwc"});
}

}  // namespace
}  // namespace convtune::direct_depthwise_half_test
