// The depthwise kernel in half precision for compute capability 9.0 without a GPU: its geometry, what its
// lanes read and store, its refusals, and its tightest configs compiled.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "cuda/algorithms/direct_depthwise_half_sm90/config.h"
#include "kernel_expectations.h"
#include "sums_by_definition.h"

namespace convtune::direct_depthwise_half_sm90_test {
namespace {

using Kernel = DirectDepthwiseHalfSm90;

std::vector<Config> candidates(const ConvProblem& problem) {
  return cuda::direct_depthwise_half_sm90().candidates(problem, gpu({9, 0}));
}

// Returns the address that TMA writes a byte of a box to: it exchanges bits of the address.
int exchanged(const Kernel& a, int at) {
  const int pieces = a.octets == 8 ? 7 : a.octets == 4 ? 3 : a.octets == 2 ? 1 : 0;
  return at ^ ((at >> 7 & pieces) << 4);
}

// A stage as TMA fills it: where each number of x is, by byte; -1 for a zero.
std::map<int, long long> filled(const Kernel& a, int chunk, int level, int side, int set, int input) {
  std::map<int, long long> numbers;
  for (int band = 0; band < a.bands; ++band)
    for (int image = 0; image < a.images; ++image)
      for (int column = 0; column < a.pitch(); ++column)
        for (int i = 0; i < a.channels(); ++i) {
          const int at = band * a.band_bytes() + ((image * a.pitch() + column) * a.channels() + i) * 2;
          const int n = set * a.images + image, channel = chunk * a.channels() + i;
          const int h = a.first_row(level) + band * a.band_rows() * a.conv.stride_h + input;
          const int w = a.first_column(side) + column;
          const bool inside =
              n < a.conv.n && h >= 0 && h < a.conv.h && w >= 0 && w < a.conv.w && channel < a.conv.c;
          EXPECT_TRUE(
              numbers.emplace(exchanged(a, at), inside ? a.conv.input_offset(n, channel, h, w) : -1).second);
          EXPECT_LT(at + 1, a.stage_bytes());
        }
  return numbers;
}

// Returns the part of the operand that lane `lane` of the warp of these channels and strips holds: entry
// (row, k) is x's number. As multiply.cuh loads and exchanges it.
long long operand(const Kernel& a, const std::map<int, long long>& stage, int quad, int group, int row, int k,
                  int channel) {
  const int strip = a.first_strip(a.read_unit(a.unit_of(group, row))), thread = k % 8 / 2;
  const bool swapped = row % 2 == 1;
  // The word's halves are columns `thread` and 4 on, or 8 and 12 on; each came with the load of that number.
  const int load = k / 8 * 2 + (k % 2 ^ static_cast<int>(swapped));
  const int column = thread + 4 * Kernel::loaded_column(load % 2, swapped);
  const int eights = a.paired() ? row / 8 + load / 2 : load / 2;
  const int at = a.offset(a.input_pixel(strip) + column, quad) + eights * (8 * a.pixel_bytes()) + 2 * channel;
  const auto found = stage.find(at);
  EXPECT_TRUE(found != stage.end()) << "a product of what was not filled";
  return found == stage.end() ? -1 : found->second;
}

long long weight(const Kernel& a, int channel, int r, int k, int n) {
  const int place = a.origin() + k % 8 / 2 - a.conv.stride_w * Kernel::output_column(n) + k / 8 * 8;
  EXPECT_GE(place, 0);
  EXPECT_LT(place, a.places());
  return a.source_of(2 * (1LL * channel * a.channel_words() + place * a.filter_words() + r) + k % 2);
}

// Every output of every tile once, from what its lanes read.
TEST(DirectDepthwiseHalfSm90, FindsEveryProductInItsSharedMemory) {
  for (const char* text :
       {"g24mb3ic24ih13iw19oc24kh7ph3", "g8mb1ic8ih30oc8kh6ph1", "g40mb5ic40ih7oc40kh5ph2",
        "g32mb2ic32ih14oc32kh7ph3", "g16mb2ic16ih20iw33oc16kh5kw6sh2sw1ph1pw2", "g64mb1ic64ih12oc64kh5sh2ph2",
        "g16mb1ic16ih17iw40oc16kh5kw5sh1sw2ph2pw0", "g32mb1ic32ih28oc32kh5sh2ph2"}) {
    const ConvProblem problem = parse_problem(std::string(text) + " layout=nhwc dtype=bf16");
    const std::vector<Config> configs = candidates(problem);
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : spread(configs, 4)) {
      const auto a = kernel_of<Kernel>(problem, config);
      std::map<long long, int> outputs;
      for (int set = 0; set < a.image_sets(); ++set)
        for (int chunk = 0; chunk < a.chunks(); ++chunk)
          for (int level = 0; level < a.levels(); ++level)
            for (int side = 0; side < a.sides(); ++side) {
              std::vector<std::map<int, long long>> stages;
              for (int input = 0; input < a.strip_rows(); ++input)
                stages.push_back(filled(a, chunk, level, side, set, input));
              for (int at_row = 0; at_row < 16 * a.groups; ++at_row) {
                const int group = at_row / 16, operand_row = at_row % 16;
                const int strip = a.strip_of(group, operand_row);
                if (strip < 0) continue;
                for (int row = 0; row < a.rows; ++row)
                  for (int column_number = 0; column_number < 8; ++column_number)
                    for (int i = 0; i < a.channels(); ++i) {
                      const int column = Kernel::output_column(column_number);
                      if (column >= a.width()) continue;
                      const int n = set * a.images + a.strip_image(strip), channel = chunk * a.channels() + i;
                      const int p = level * a.rows + a.strip_band(strip) * a.band_rows() + row;
                      const int q = side * a.tile_columns() + a.width() * a.strip_across(strip) + column;
                      if (n >= a.conv.n || p >= a.conv.p || q >= a.conv.q || channel >= a.conv.c) continue;
                      ++outputs[a.conv.output_offset(n, channel, p, q)];
                      long long sum = 0;
                      for (int r = 0; r < a.conv.r; ++r)
                        for (int k = 0; k < 16; ++k) {
                          const int input = row * a.conv.stride_h + r;
                          const long long tap = weight(a, channel, r, k, column_number);
                          const long long at = operand(a, stages[static_cast<std::size_t>(input)], i / 4,
                                                       group, operand_row, k, i % 4);
                          if (at >= 0 && tap >= 0) sum += 1LL * number(at) * number(tap + 3);
                        }
                      ASSERT_EQ(sum, sum_by_definition(a.conv, p, q, channel, n))
                          << text << " with " << to_string(config) << " at " << n << ", " << p << ", " << q
                          << ", " << channel;
                    }
              }
            }
      EXPECT_EQ(static_cast<long long>(outputs.size()), 1LL * a.conv.n * a.conv.p * a.conv.q * a.conv.c);
      for (const auto& [at, times] : outputs) ASSERT_EQ(times, 1) << at;
    }
  }
}

// A row of outputs as TMA stores it, and as lanes put it there.
TEST(DirectDepthwiseHalfSm90, StoresPixelsWhereTmaReadsThem) {
  for (const char* text : {"g96mb2ic96ih56oc96kh7ph3", "g40mb5ic40ih7oc40kh5ph2", "g64mb4ic64ih14oc64kh5ph2",
                           "g32mb2ic32ih56oc32kh5sh2ph2"}) {
    const ConvProblem problem = parse_problem(std::string(text) + " layout=nhwc dtype=bf16");
    for (const Config& config : candidates(problem)) {
      const auto a = kernel_of<Kernel>(problem, config);
      std::set<int> stored;
      for (int strip = 0; strip < a.strips(); ++strip)
        for (int column = 0; column < a.width(); ++column)
          for (int quad = 0; quad < a.quads(); ++quad)
            EXPECT_TRUE(stored.insert(a.offset(a.output_pixel(strip) + column, quad)).second);
      std::set<int> read;
      for (int band = 0; band < a.bands; ++band)
        for (int i = 0; i < a.images * a.tile_columns() * a.pixel_bytes(); i += 8)
          read.insert(exchanged(a, band * a.band_pixels() * a.pixel_bytes() + i));
      EXPECT_EQ(stored, read) << text << " with " << to_string(config);
      EXPECT_LE(*stored.rbegin() + 8, a.slot_bytes());
    }
  }
}

// Lanes that read or store at once, 16 of them 8 bytes each, meet twice at a bank and no more often: they
// want one half of pieces of 16 bytes.
TEST(DirectDepthwiseHalfSm90, ReadsAndStoresEightPixelsInARowInAllBanks) {
  for (const char* text : {"g96mb64ic96ih56oc96kh7ph3", "g144mb64ic144ih56oc144kh5ph2",
                           "g384mb32ic384ih14oc384kh7ph3", "g96mb64ic96ih112oc96kh5sh2ph2"}) {
    const ConvProblem problem = parse_problem(std::string(text) + " layout=nhwc dtype=bf16");
    for (const Config& config : spread(candidates(problem), 10)) {
      const auto a = kernel_of<Kernel>(problem, config);
      if (a.down() % 2 == 1) continue;
      for (int half = 0; half < 4; ++half) {
        std::map<int, std::set<int>> read, stored;  // by pairs of banks
        for (int lane = 0; lane < 16; ++lane) {
          const int row = half * 4 + lane / 4, strip = a.strip_of(0, row);
          if (strip < 0) continue;
          const int from =
              a.offset(a.input_pixel(strip) + lane % 4 + 4 * Kernel::loaded_column(0, row % 2 == 1), 0);
          const int to = a.offset(a.output_pixel(strip) + lane % 4 + 4 * a.stored_column(0, row % 2 == 1), 0);
          read[from % 128].insert(from);
          stored[to % 128].insert(to);
        }
        for (const auto& [bank, places] : read)
          EXPECT_LE(places.size(), 2u) << text << " with " << to_string(config);
        for (const auto& [bank, places] : stored)
          EXPECT_LE(places.size(), a.width() == 8 ? 2u : 4u) << text << " with " << to_string(config);
      }
    }
  }
}

TEST(DirectDepthwiseHalfSm90, RefusesWithAReason) {
  expect_refusals(cuda::direct_depthwise_half_sm90(),
                  {{"mb2g32ic32ih32oc32kh3ph1 dtype=bf16", "NHWC"},
                   {"mb2g32ic32ih32oc32kh3ph1 layout=nhwc", "f32"},
                   {"mb2g32ic32ih32oc64kh3ph1 layout=nhwc dtype=bf16", "one filter a channel"},
                   {"mb2g20ic20ih32oc20kh7ph3 layout=nhwc dtype=bf16", "multiples of 8"},
                   {"mb2g32ic32ih32oc32kh7kw8ph3pw4 layout=nhwc dtype=bf16", "7x7"},
                   {"mb2g32ic32ih32oc32kh3ph1 layout=nhwc dtype=bf16", "25 taps"},
                   {"mb2g32ic32ih32oc32kh7sh3ph3 layout=nhwc dtype=bf16", "strides 1 and 2"},
                   {"mb2g32ic32ih32oc32kh7ph6dh1 layout=nhwc dtype=bf16", "dilation"},
                   {"mb2g32ic32ih32oc32kh3ph1 layout=nhwc dtype=bf16", "9.0", {8, 0}}});
  const ConvProblem problem = parse_problem("g96mb64ic96ih56oc96kh7ph3 layout=nhwc dtype=bf16");
  expect_config_refusals(cuda::direct_depthwise_half_sm90(), problem,
                         "rows=7 bands=2 across=7 images=1 octets=4 groups=1 stages=16 blocks=1",
                         {"rows=0", "rows=17", "bands=3", "images=2", "across=9", "octets=6", "groups=2",
                          "stages=1", "blocks=9", "blocks=2"});
}

TEST(DirectDepthwiseHalfSm90, CompilesWithTheLeastToSpare) {
  expect_tightest_compile<Kernel>(
      *cuda::kernel_algorithm(cuda::direct_depthwise_half_sm90()),
      {"g96mb64ic96ih56oc96kh7ph3 dtype=bf16 act=relu layout=nhwc",
       "g384mb32ic384ih14oc384kh7ph3 dtype=f16 layout=nhwc",
       "g144mb64ic144ih56oc144kh5ph2 dtype=bf16 residual=1 act=silu layout=nhwc",
       "g672mb32ic672ih14oc672kh5ph2 dtype=f16 act=silu residual=1 rounding=eager layout=nhwc"});
}

}  // namespace
}  // namespace convtune::direct_depthwise_half_sm90_test
