// The implicit GEMM in TF32 without a GPU: what its threads would load, multiply and store, step by step on a
// host; refusals; and that what is offered compiles without spills.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cuda/algorithms/implicit_gemm_sm90/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "kernel_expectations.h"
#include "problem/forward_parts.h"

namespace convtune::implicit_gemm_sm90_test {
namespace {

using Kernel = ImplicitGemmSm90;
constexpr std::int64_t kSmem = 227 * 1024;

const Algorithm& algorithm() {
  return cuda::implicit_gemm_sm90();
}

// ---- The kernel on a host: integers in place of numbers, so that every difference shows ------------

int input_at(const ConvExtents& a, int image, int row, int column, int channel) {
  if (image >= a.n || row < 0 || row >= a.h || column < 0 || column >= a.w || channel >= a.c) return 0;
  return static_cast<int>(
             random_bits(1, static_cast<std::uint64_t>(a.input_offset(image, channel, row, column))) % 7) -
         3;
}
int weight_at(long long index) {
  return static_cast<int>(random_bits(2, static_cast<std::uint64_t>(index)) % 7) - 3;
}

// Every output of the problem, summed up by blocks that do what the kernel's do.
void expect_computes(const Kernel& kernel) {
  const ConvExtents& a = kernel.conv;
  ASSERT_TRUE(kernel.valid(kSmem));
  std::vector<int> times(static_cast<std::size_t>(a.weights()));
  for (long long i = 0; i < kernel.packed().prepared; ++i)
    if (const long long source = kernel.source_of(i); source >= 0) ++times[static_cast<std::size_t>(source)];
  for (const int some : times) ASSERT_EQ(some, 1);
  std::vector<int> y(static_cast<std::size_t>(kernel.pixels() * a.k)), stored(y.size());
  for (int tile = 0; tile < kernel.tiles(); ++tile)
    for (int rank = 0; rank < kernel.cluster_blocks(); ++rank) {
      const int pixel = kernel.first_pixel(tile, rank), filter = kernel.first_filter(tile);
      const int from = kernel.split > 1 ? kernel.first_step(rank) : 0;
      const int to = kernel.split > 1 ? kernel.first_step(rank + 1) : kernel.steps();
      ASSERT_LT(from, to);
      for (int step = from; step < to; ++step) {
        const long long weights =
            (1LL * (tile % kernel.filter_blocks()) * kernel.steps() + step) * kernel.weight_bytes() / 4;
        for (int row = 0; row < kernel.tile_rows() && pixel + row < kernel.pixels(); ++row) {
          const Kernel::Pixel at = kernel.output_at(pixel + row);
          for (int column = 0; column < kernel.filters && filter + column < a.k; ++column) {
            int sum = 0;
            for (int i = 0; i < kernel.channels; ++i) {
              const long long word = weights + i / 4 * 4 * kernel.filters + column * 4 + i % 4;
              const long long source = kernel.source_of(word);
              sum += source < 0
                         ? 0
                         : weight_at(source) *
                               input_at(a, at.image, at.row * a.stride_h - a.pad_top + kernel.tap_row(step),
                                        at.column * a.stride_w - a.pad_left + kernel.tap_column(step),
                                        kernel.first_channel(step) + i);
            }
            const auto index = static_cast<std::size_t>((pixel + row) * a.k + filter + column);
            y[index] += sum;
            stored[index] += step == kernel.steps() - 1;
          }
        }
      }
    }
  for (const int some : stored) ASSERT_EQ(some, 1);
  for (int pixel = 0; pixel < kernel.pixels(); ++pixel)
    for (int filter = 0; filter < a.k; ++filter) {
      const Kernel::Pixel at = kernel.output_at(pixel);
      int want = 0;
      for (int channel = 0; channel < a.c; ++channel)
        for (int r = 0; r < a.r; ++r)
          for (int s = 0; s < a.s; ++s)
            want += input_at(a, at.image, at.row * a.stride_h + r * a.dilation_h - a.pad_top,
                             at.column * a.stride_w + s * a.dilation_w - a.pad_left, channel) *
                    weight_at(((1LL * filter * a.c + channel) * a.r + r) * a.s + s);
      ASSERT_EQ(y[static_cast<std::size_t>(pixel * a.k + filter)], want)
          << "pixel " << pixel << ", filter " << filter;
    }
}

// The kernel of a transposed layer's only part.
Kernel transposed(const std::string& text, int filters) {
  const std::vector<ForwardPart> parts =
      forward_parts(tf32(text + " dir=transposed"), {.joined = true, .bare = true});
  EXPECT_EQ(parts.size(), 1u) << text;
  return {.conv = cuda::extents_of(cuda::computed_part(parts.front())), .filters = filters, .channels = 16};
}

TEST(ImplicitGemmSm90, ResiduesOfARowAreAbreast) {
  for (const auto& [text, filters, abreast] : {std::tuple{"mb1ic16ih6oc12kh3sh2ph1", 16, 2},
                                               {"mb1ic16ih6oc12kh4sh2ph1", 48, 2},
                                               {"mb1ic16ih6oc5kh5sh3ph1", 24, 3},
                                               {"mb1ic16ih6oc5kh5sh3ph1", 16, 1},
                                               {"mb1ic16iw9oc3kw16sw8pw4", 24, 8},
                                               {"mb1ic16ih6oc12kh3ph1", 16, 1}}) {
    const Kernel kernel = transposed(text, filters);
    EXPECT_EQ(kernel.abreast(), abreast) << text << " by tiles of " << filters;
    std::set<int> all;
    for (int place = 0; place < kernel.conv.k; ++place) {
      const int filter = kernel.filter_of(place), results = kernel.conv.group_results();
      all.insert(filter);
      if (place % abreast > 0)
        EXPECT_EQ(filter, kernel.filter_of(place - 1) + results) << text << ", place " << place;
    }
    EXPECT_EQ(std::ssize(all), kernel.conv.k) << text;
    EXPECT_EQ(*all.rbegin(), kernel.conv.k - 1) << text;
  }
}

TEST(ImplicitGemmSm90, TilesOfResiduesLeaveOutTheRowThatTheyLack) {
  for (const char* text : {"mb1ic40ih6oc12kh3sh2ph1", "mb1ic24ih6iw5oc9kh5kw3sh3sw2ph2pw1"}) {
    const Kernel kernel = transposed(text, 16);
    int lacking = 0;
    for (int tile = 0; tile < kernel.filter_blocks(); ++tile) {
      const int filter = kernel.filter_of(kernel.first_filter(tile));
      const bool lacks = kernel.conv.lies.lacks_row(filter / kernel.conv.group_results());
      EXPECT_EQ(kernel.lacks_row(tile), lacks) << text;
      lacking += lacks;
      std::vector<int> steps, wanted;
      for (int i = 0; i < kernel.tile_steps(tile); ++i) steps.push_back(kernel.step_of(tile, i));
      for (int step = 0; step < kernel.steps(); ++step)
        if (!lacks || kernel.tap_row(step) > 0) wanted.push_back(step);
      EXPECT_EQ(steps, wanted) << text << ", tile " << tile;
      Kernel shared = kernel;  // by blocks that have steps each
      for (shared.split = 2; shared.split <= 4; shared.split *= 2) {
        EXPECT_EQ(shared.first_step(tile, 0), 0) << text;
        EXPECT_LT(shared.first_step(tile, shared.split - 1), shared.tile_steps(tile)) << text;
        EXPECT_EQ(shared.first_step(tile, shared.split), shared.tile_steps(tile)) << text;
      }
    }
    EXPECT_GT(lacking, 0) << text;
    EXPECT_LT(lacking, kernel.filter_blocks()) << text;
  }
}

TEST(ImplicitGemmSm90, LaunchesATransposedLayerOnce) {
  for (const char* text : {"mb1ic64ih32oc32kh3sh2ph1", "mb1ic64ih32oc32kh4sh2ph1", "mb1ic64ih32oc32kh2sh2",
                           "mb1ic64iw320oc32kw16sw8pw4", "mb1g4ic64iw320oc32kw3sw2pw1"}) {
    const ConvProblem problem = tf32(std::string(text) + " dir=transposed");
    const Config config = algorithm().candidates(problem, gpu()).front();
    EXPECT_TRUE(cuda::kernel_algorithm(algorithm())->plan(problem, gpu(), config).more.empty()) << text;
  }
}

// No kernel of their own stores what lies between the residues of a row; rows without a tap have one.
TEST(ImplicitGemmSm90, FillsRowsBetweenTheirResidues) {
  const auto bare_steps = [](const std::string& text) {
    const ConvProblem problem = tf32(text + " dir=transposed");
    const Config config = algorithm().candidates(problem, gpu()).front();
    return std::ranges::count_if(
        cuda::kernel_algorithm(algorithm())->plan(problem, gpu(), config).run,
        [](const cuda::Step& step) { return std::holds_alternative<cuda::Bare>(step); });
  };
  EXPECT_EQ(bare_steps("mb1ic64iw320oc32kw3sw2pw1dw1"), 0);
  EXPECT_EQ(bare_steps("mb1ic64iw320oc32kw3sw5pw1dw1"), 0);
  EXPECT_EQ(bare_steps("mb1ic64ih32oc32kh3sh2ph1dh1"), 1);
  EXPECT_EQ(bare_steps("mb1ic64iw320oc32kw5sw8"), 1);  // more than four residues
}

TEST(ImplicitGemmSm90, ComputesWhatItShouldWhateverTheTile) {
  for (const char* text :
       {"mb2ic72ih11iw9oc70kh2kw3sh1sw2ph1", "mb3ic20ih6oc33kh1", "mb2ic9ih7oc12kh3dh1ph2"})
    for (const Kernel& choices :
         {Kernel{.conv = {}, .consumers = 1, .row_blocks = 1, .filters = 24, .channels = 16, .stages = 2},
          Kernel{.conv = {}, .consumers = 2, .row_blocks = 2, .filters = 48, .channels = 32, .stages = 2},
          Kernel{.conv = {},
          .consumers = 2,
          .row_blocks = 1,
          .filters = 80,
          .stages = 2,
          .ping_pong = true,
          .cluster = 2},
          Kernel{.conv = {}, .consumers = 2, .row_blocks = 2, .filters = 8, .stages = 3, .cluster = 2},
          Kernel{.conv = {},
          .consumers = 1,
          .row_blocks = 2,
          .filters = 16,
          .channels = 16,
          .stages = 4,
          .split = 2}}) {
      Kernel kernel = choices;
      kernel.conv = cuda::extents_of(tf32(text));
      SCOPED_TRACE(std::string(text) + " with " + to_string(to_config(kernel)));
      expect_computes(kernel);
    }
}

// Each of a block's steps is some team's, whose slots are always the same; and a team's threads write each
// number of a stage once, in the order in which load() goes through them.
TEST(ImplicitGemmSm90, TeamsLoadEveryStageOnce) {
  for (const char* text : {"mb3ic40ih9oc24kh1sh2", "mb3ic48ih8oc24kh1", "mb2ic40ih9oc24kh3ph1"})
    for (const int row_blocks : {1, 2})
      for (const int consumers : {1, 2})
        for (const int stages : {2, 3, 4, 6, 8}) {
          const Kernel kernel{.conv = cuda::extents_of(tf32(text)),
                              .consumers = consumers,
                              .row_blocks = row_blocks,
                              .filters = 24,
                              .channels = 16,
                              .stages = stages};
          ASSERT_TRUE(kernel.valid(kSmem));
          ASSERT_EQ(stages % kernel.teams(), 0);
          constexpr int kTiles = 5;
          std::vector<int> loaded(static_cast<std::size_t>(kTiles * kernel.steps()));
          for (int team = 0; team < kernel.teams(); ++team) {
            int ahead = team, slot = team;
            for (int tile = 0; tile < kTiles; ++tile) {
              int step = ahead;
              for (; step < kernel.steps(); step += kernel.teams()) {
                const int number = tile * kernel.steps() + step;
                ++loaded[static_cast<std::size_t>(number)];
                ASSERT_EQ(number % stages, slot);
                slot = (slot + kernel.teams()) % stages;
              }
              ahead = step - kernel.steps();
            }
          }
          for (const int times : loaded) ASSERT_EQ(times, 1);

          const int threads = kernel.team_threads(), together = std::max(threads / kernel.places(), 1);
          std::vector<int> written(static_cast<std::size_t>(kernel.channels * kernel.tile_rows()));
          for (int thread = 0; thread < threads; ++thread)
            for (int i = 0; i < std::max(kernel.places() / threads, 1); ++i)
              for (int c = 0; c < kernel.channels / together; ++c)
                for (int pixel = 0; pixel < kernel.at_once(); ++pixel) {
                  const int row =
                      thread % kernel.places() * kernel.at_once() + i * threads * kernel.at_once();
                  const int channel = thread / kernel.places() + c * together;
                  ++written.at(static_cast<std::size_t>(channel * kernel.tile_rows() + row + pixel));
                }
          for (const int times : written) ASSERT_EQ(times, 1);
        }
}

// No two threads of those that load together meet at a bank: 8 that read 16 bytes, 16 that read 8.
TEST(ImplicitGemmSm90, LoadsPixelsWithoutConflicts) {
  for (const int consumers : {1, 2})
    for (const int row_blocks : {1, 2}) {
      const Kernel kernel{.conv = {}, .consumers = consumers, .row_blocks = row_blocks};
      const int together = row_blocks == 2 ? 8 : 16;
      for (int first = 0; first < 32; first += together) {
        std::set<int> banks;
        for (int lane = first; lane < first + together; ++lane)
          for (int i = 0; i < 2 * row_blocks; ++i)
            banks.insert((lane % 4 * kernel.pitch() / 4 + lane / 4 * 2 * row_blocks + i) % 32);
        EXPECT_EQ(banks.size(), 32u) << consumers << ' ' << row_blocks;
      }
    }
}

TEST(ImplicitGemmSm90, AlignsItsRegions) {
  for (const char* text : {"mb8ic320ih32oc320kh3ph1", "mb64ic250ih14oc255kh1 residual=1"}) {
    const ConvProblem problem = tf32(text);
    for (const Config& config : algorithm().candidates(problem, gpu())) {
      const Kernel kernel = kernel_of<Kernel>(problem, config);
      EXPECT_EQ(kernel.stage_bytes() % 128, 0) << to_string(config);
      EXPECT_EQ(kernel.input_bytes() % 128, 0) << to_string(config);
      EXPECT_EQ(kernel.staging_bytes() % 16, 0) << to_string(config);
      EXPECT_EQ(kernel.smem().full % 8, 0) << to_string(config);
      EXPECT_EQ(kernel.weight_bytes() / kernel.cluster % 16, 0) << to_string(config);
    }
  }
}

// Each part has a place, and its turn comes again when the part is stored.
TEST(ImplicitGemmSm90, AsksForResidualsAhead) {
  const auto ahead = [](const char* text, Kernel kernel) {
    kernel.conv = cuda::extents_of(tf32(text));
    if (kernel.parts_ahead() > 0) EXPECT_EQ(kernel.parts() % kernel.parts_ahead(), 0);
    EXPECT_EQ(kernel.smem().addends % 16, 0);
    // 4 bytes of every pixel and filter of the parts on their way.
    EXPECT_EQ(kernel.smem().finite - kernel.smem().addends,
              4LL * kernel.parts_ahead() * std::min(kernel.stored_filters(), kernel.filters) *
                  kernel.consumers * 64 * kernel.row_blocks);
    return kernel.parts_ahead();
  };
  const char* const wide = "mb64ic64ih56oc256kh1 residual=1";
  const char* const strided = "mb64ic256ih56oc512kh1sh2 residual=1";
  EXPECT_EQ(ahead(wide, {.filters = 128}), 2);
  EXPECT_EQ(ahead(wide, {.filters = 96}), 3);
  EXPECT_EQ(ahead(wide, {.row_blocks = 1, .filters = 256, .ping_pong = true}), 2);
  EXPECT_EQ(ahead(wide, {.row_blocks = 1, .filters = 64}), 1);
  EXPECT_EQ(ahead(wide, {.filters = 8}), 1);
  EXPECT_EQ(ahead(strided, {.row_blocks = 1, .filters = 256, .ping_pong = true}), 2);
  EXPECT_EQ(ahead(strided, {.row_blocks = 1, .filters = 256}), 0);
  EXPECT_EQ(ahead(wide, {.filters = 128, .split = 2}), 0);
  EXPECT_EQ(ahead("mb64ic64ih56oc256kh1", {.filters = 128}), 0);
  // Smaller parts leave L1 60 KB where six stages of a strided layer would leave it 28.
  const Kernel in_turns{.conv = cuda::extents_of(tf32(strided)),
                        .consumers = 2,
                        .row_blocks = 1,
                        .filters = 256,
                        .channels = 16,
                        .stages = 6,
                        .ping_pong = true};
  EXPECT_EQ(in_turns.stored_filters(), 32);
  EXPECT_LE(in_turns.smem_bytes(), 195 << 10);
}

// ---- Problems that it takes
// ---------------------------------------------------------------------------------

TEST(ImplicitGemmSm90, RefusesWithAReason) {
  const std::string shape = "mb2ic16ih32oc17kh3ph1";
  expect_refusals(algorithm(), {{shape, "this is 8.0", {8, 0}},
                                {shape, "this is 10.0", {10, 0}},
                                {shape + " layout=nhwc", "NCHW"},
                                {shape + " precision=fp32", "less than fp32"},
                                {shape + " dir=bwd_w", "forward"},
                                {"mb2g4ic16ih32oc16kh3ph1", "groups of 8 channels"},
                                {"mb2ic7ih32oc16kh3ph1", "8 input channels"},
                                {"mb1048576ic8ih1024oc8kh1", "30 bits"}});
  for (const char* good : {"mb2ic16ih32oc17kh3ph1 residual=1 act=gelu_erf", "mb1ic8ih1oc1kh1",
                           "mb1ic40ih60oc16kh5sh3dh7ph29 bias=0"})
    EXPECT_EQ(algorithm().supports(tf32(good), gpu()).reason(), "");
  expect_config_refusals(
      algorithm(), tf32("mb64ic128ih28oc128kh3ph1"),
      "consumers=2 row_blocks=1 filters=128 channels=32 stages=5 ping_pong=0 cluster=2 split=1",
      {"consumers=0", "consumers=3", "row_blocks=2 filters=256", "filters=40", "filters=144", "channels=24",
       "channels=80", "stages=1", "stages=8", "consumers=1 ping_pong=1", "ping_pong=1 split=2 cluster=1",
       "split=2", "cluster=3", "cluster=1 split=9"});
}

TEST(ImplicitGemmSm90, OffersWhatItAccepts) {
  for (const std::string suite : {"body", "modern"})
    for (ConvProblem problem : load_suite(suite)) {
      problem.dtype = DType::f32, problem.layout = Layout::nchw, problem.precision = Precision::tf32;
      if (problem.groups > 1 || problem.c < 8) continue;
      const std::vector<Config> configs = algorithm().candidates(problem, gpu());
      ASSERT_FALSE(configs.empty()) << to_string(problem);
      for (const Config& config : configs)
        EXPECT_TRUE(algorithm().accepts(problem, gpu(), config)) << to_string(config);
    }
}

// Tiles alike are offered with several numbers of stages where pixels are copied one by one, which leave more
// or less to L1, and else with as many as there is room for.
TEST(ImplicitGemmSm90, OffersFewerStagesWherePixelsComeOneByOne) {
  const auto most_alike = [](const char* text) {
    const std::vector<Config> configs = algorithm().candidates(tf32(text), gpu());
    std::ptrdiff_t most = 0;
    for (const Config& one : configs)
      most = std::max(most, std::count_if(configs.begin(), configs.end(), [&](Config other) {
                        for (auto& [field, value] : other.values)
                          if (field == "stages") value = one.at("stages");
                        return other == one;
                      }));
    return most;
  };
  EXPECT_GE(most_alike("mb64ic512ih7oc2048kh1"), 2);
  EXPECT_GE(most_alike("mb64ic256ih56oc512kh1sh2 residual=1"), 2);
  EXPECT_EQ(most_alike("mb64ic256ih14oc1024kh1"), 1);
}

// Compiles, for every kind of block, the config with the most sums and the epilogue that takes most
// registers; and a problem that leaves nothing even.
TEST(ImplicitGemmSm90, CompilesWithTheMostSums) {
  std::vector<PlannedKernel> kernels;
  const ConvProblem problem = tf32("mb64ic128ih28oc256kh3sh2ph1 act=gelu_erf residual=1");
  for (const char* config :
       {"consumers=2 row_blocks=1 filters=256 channels=32 stages=3 ping_pong=0 cluster=2 split=1",
        "consumers=2 row_blocks=2 filters=128 channels=16 stages=4 ping_pong=1 cluster=2 split=1",
        "consumers=2 row_blocks=2 filters=64 channels=64 stages=2 ping_pong=0 cluster=1 split=1",
        "consumers=1 row_blocks=2 filters=128 channels=32 stages=4 ping_pong=0 cluster=1 split=1",
        "consumers=2 row_blocks=1 filters=256 channels=32 stages=3 ping_pong=0 cluster=1 split=8"})
    kernels.push_back({problem, parse_config(config)});
  kernels.push_back({problem, kernels.front().config, {9, 0}, true});
  for (const char* text :
       {"mb1ic256ih14oc256kh3ph1 residual=1", "mb2ic45ih33iw41oc13kh5kw3sh2sw3ph1pw2 residual=1 act=silu"}) {
    const ConvProblem other = tf32(text);
    kernels.push_back({other, algorithm().candidates(other, gpu()).front()});
  }
  expect_compiles_as_planned(*cuda::kernel_algorithm(algorithm()), kernels);
}

}  // namespace
}  // namespace convtune::implicit_gemm_sm90_test
