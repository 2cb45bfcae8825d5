// See direct_candidates.h.
#include "cpu/direct_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cpu/direct_kernels.h"

namespace convtune::cpu {
namespace {

// A thread's staging memory may not grow past this: offsets are 32 bits, and a window far larger
// than any cache has lost its purpose.
constexpr double kMaxScratchBytes = 256.0 * 1024 * 1024;
constexpr std::int64_t kDefaultL2Bytes = 512 * 1024;

// The scratch bytes of a config, in doubles: extents from outside may overflow integers.
double scratch_bytes(const Conv2dProblem& problem, const DirectConfig& config, int lanes) {
  const double p = static_cast<double>(problem.p()), q = static_cast<double>(problem.q());
  const double rows = std::min<double>(config.rows, p),
               cols = config.cols == 0 ? q : std::min<double>(config.cols, q);
  const double span_h = static_cast<double>((problem.r - 1) * problem.dilation_h / problem.stride_h);
  const double span_w = static_cast<double>((problem.s - 1) * problem.dilation_w / problem.stride_w);
  const double phases =
      static_cast<double>(std::min(problem.r, problem.stride_h) * std::min(problem.s, problem.stride_w));
  const double plane = (rows + span_h) * (cols + span_w) + 32;
  const double window = static_cast<double>(problem.c / problem.groups) * phases * plane;
  const double positions = rows * (cols + span_w) + config.vectors * lanes;
  const double filters = static_cast<double>(problem.k / problem.groups) + config.channels;
  const bool keeps_all = config.taps != 0;
  return 4 * (window + positions * (keeps_all ? filters : config.channels));
}

struct Ranked {
  double estimate;
  DirectConfig config;

  bool operator<(const Ranked& other) const { return estimate < other.estimate; }
};

// An estimate of a config's time, in core cycles over all threads: register tiles at two vector
// multiply-adds a cycle unless loads or too few accumulators bind, plus what each tile, each staged
// window and the stores cost. Only the order matters: the tuner measures.
double estimate(const Conv2dProblem& problem, const DeviceInfo& info, const DirectConfig& config,
                const DirectGeometry& g) {
  const double accumulators = config.channels * config.vectors;
  const double loads = config.channels + 2.0 * config.vectors;  // a window load mostly crosses a cache line
  const double cycles_a_tap = std::max({accumulators / 2, loads / 2, 4.0});  // 4: latency of a multiply-add
  const double width = static_cast<double>(direct_vector_bits(info)) / config.vector_bits;
  const double tile_taps = g.issued_multiply_adds / (static_cast<double>(g.block) * config.channels);
  const double passes = static_cast<double>((g.taps + g.pass_taps - 1) / g.pass_taps);
  const double tiles = tile_taps / static_cast<double>(g.taps) * passes;
  // Going through the buffer costs a store and a load a vector, and the cutting into rows.
  double cycles = tile_taps * cycles_a_tap * width + tiles * (20 + (g.straight ? 1.5 : 3.5) * accumulators);

  const double l2 = static_cast<double>(info.l2_bytes > 0 ? info.l2_bytes : kDefaultL2Bytes);
  const double window = 4.0 * static_cast<double>(g.window);
  const double windows = static_cast<double>(problem.n * problem.groups * g.row_tiles * g.col_tiles);
  const double restaged = windows * std::max(1.0, static_cast<double>(info.units * g.filter_tasks) /
                                                      static_cast<double>(g.tasks + 1));
  cycles +=
      restaged * static_cast<double>(g.channel * g.group_channels) * (problem.stride_w <= 4 ? 0.3 : 1.2);
  // A register tile reads its share of the window from whichever cache holds it.
  const double l1 = static_cast<double>(info.l1_bytes > 0 ? info.l1_bytes : 32 * 1024);
  const double reach =
      4.0 * static_cast<double>(std::min<std::int64_t>(g.pass_taps, g.taps)) * static_cast<double>(g.block) /
      (problem.stride_w == 1 ? static_cast<double>(std::max<std::int64_t>(problem.s, 1)) : 1.0);
  if (reach > l1) cycles *= 1.05;
  if (window + 4.0 * static_cast<double>(g.acc) > 0.75 * l2) cycles *= 1.0 + 0.1 * std::log2(1 + window / l2);
  // Threads that find no task.
  const double threads = static_cast<double>(info.units);
  const double rounds = std::ceil(static_cast<double>(g.tasks) / threads) * threads;
  if (g.tasks > 0) cycles *= rounds / static_cast<double>(g.tasks);
  // Stores past the caches pay when the output does not stay in them.
  const double output = 4.0 * static_cast<double>(problem.output_elements());
  const bool leaves_cache = output > static_cast<double>(info.l3_bytes);
  const double store_cycles =
      output / 4 * (leaves_cache ? (config.stream ? 0.3 : 0.6) : (config.stream ? 0.6 : 0.2));
  return cycles + store_cycles;
}

}  // namespace

int direct_vector_bits(const DeviceInfo& info) {
  int bits = 0;
  if (info.isa == "avx512") bits = 512;
  if (info.isa == "avx2") bits = 256;
  if (info.isa == "sse4" || info.isa == "neon") bits = 128;
  while (bits >= 128 && !direct_kernels(bits)) bits /= 2;
  return bits >= 128 ? bits : 0;
}

Support direct_supports(const Conv2dProblem& problem, const DeviceInfo& info) {
  if (problem.dtype != DType::f32)
    return Support::no(fmt::format("it reads f32 tensors only, not {}", to_string(problem.dtype)));
  const int bits = direct_vector_bits(info);
  if (bits == 0) return Support::no(fmt::format("it has no code for the instruction set '{}'", info.isa));
  const DirectConfig smallest{.vector_bits = bits, .channels = 1, .vectors = 8, .rows = 1, .cols = bits / 32};
  const double bytes = scratch_bytes(problem, smallest, bits / 32);
  if (bytes > kMaxScratchBytes)
    return Support::no(
        fmt::format("the input window of one vector of outputs takes {:.0f} MiB, more than {:.0f} MiB",
                    bytes / 1048576, kMaxScratchBytes / 1048576));
  return Support::yes();
}

Support direct_accepts(const Conv2dProblem& problem, const DeviceInfo& info, const DirectConfig& config) {
  if (Support support = direct_supports(problem, info); !support) return support;
  const DirectKernels* kernels =
      config.vector_bits <= direct_vector_bits(info) ? direct_kernels(config.vector_bits) : nullptr;
  if (!kernels) return Support::no(fmt::format("vector_bits={} is not to be had here", config.vector_bits));
  const bool known = std::any_of(kernels->tiles.begin(), kernels->tiles.end(), [&](const TileShape& tile) {
    return tile.channels == config.channels && tile.vectors == config.vectors;
  });
  if (!known)
    return Support::no(fmt::format("there is no {}x{} register tile", config.channels, config.vectors));
  if (config.rows < 1 || config.cols < 0 || config.taps < 0 || config.filters < 0)
    return Support::no("rows must be at least 1; cols, taps and filters at least 0");
  if (config.flat < 0 || config.flat > 1 || config.stream < 0 || config.stream > 1)
    return Support::no("flat and stream must be 0 or 1");
  if (config.flat == 0 && problem.layout != Layout::nchw)
    return Support::no("flat=0 stores rows of NCHW outputs");
  if (const double bytes = scratch_bytes(problem, config, kernels->lanes); bytes > kMaxScratchBytes)
    return Support::no(fmt::format("its staging memory would be {:.0f} MiB a thread", bytes / 1048576));
  if (config.stream == 1 && !DirectGeometry(problem, config, kernels->lanes).straight)
    return Support::no(
        "stream=1 needs outputs that go straight from registers: flat=0, or no halo between rows");
  return Support::yes();
}

std::vector<DirectConfig> direct_candidates(const Conv2dProblem& problem, const DeviceInfo& info) {
  const std::int64_t p = problem.p(), q = problem.q(), k = problem.k / problem.groups;
  const std::int64_t taps = problem.c / problem.groups * problem.r * problem.s;
  const double l2 = static_cast<double>(info.l2_bytes > 0 ? info.l2_bytes : kDefaultL2Bytes);

  std::vector<int> row_choices;
  for (int rows = 1; rows < p && rows <= 64; rows *= 2) row_choices.push_back(rows);
  if (p <= 256) row_choices.push_back(static_cast<int>(p));
  std::vector<int> col_choices{0};
  for (int cols = 64; cols < q && cols <= 256; cols *= 2) col_choices.push_back(cols);
  std::vector<int> tap_choices{0};
  for (int pass = 64; pass < taps && pass <= 512; pass *= 2) tap_choices.push_back(pass);

  // The best by estimate of every register tile, fewer of the narrower instruction sets: enough to
  // climb from, few enough to verify whole.
  const int widest = direct_vector_bits(info);
  std::vector<Ranked> all;
  for (int bits = widest; bits >= 128; bits /= 2) {
    const DirectKernels* kernels = direct_kernels(bits);
    if (!kernels) continue;
    const std::size_t quota = bits == widest ? 24 : bits == widest / 2 ? 6 : 2;
    for (const TileShape& tile : kernels->tiles) {
      // A tile far wider than the filters wastes most of itself.
      if (tile.channels > 1 && tile.channels >= 2 * k) continue;
      std::vector<Ranked> of_tile;
      for (const int rows : row_choices)
        for (const int cols : col_choices)
          for (const int pass : tap_choices)
            for (const int filters : {0, tile.channels, 4 * tile.channels})
              for (const auto& [flat, stream] :
                   {std::pair{1, 0}, std::pair{0, 0}, std::pair{0, 1}, std::pair{1, 1}}) {
                if (filters >= k) continue;
                const DirectConfig config{bits, tile.channels, tile.vectors, rows,  cols,
                                          pass, filters,       flat,         stream};
                const bool smallest = rows == 1 && (cols == 64 || q <= 64);
                if (!smallest && scratch_bytes(problem, config, kernels->lanes) > 2 * l2) continue;
                if (!direct_accepts(problem, info, config)) continue;
                const DirectGeometry geometry(problem, config, kernels->lanes);
                of_tile.push_back({estimate(problem, info, config, geometry), config});
              }
      std::stable_sort(of_tile.begin(), of_tile.end());
      of_tile.resize(std::min(of_tile.size(), quota));
      all.insert(all.end(), of_tile.begin(), of_tile.end());
    }
  }
  std::stable_sort(all.begin(), all.end());
  std::vector<DirectConfig> configs;
  for (const Ranked& ranked : all) configs.push_back(ranked.config);
  return configs;
}

}  // namespace convtune::cpu
