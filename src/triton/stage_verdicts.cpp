// See stage_verdicts.h.
#include "triton/stage_verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <tuple>

namespace convtune {
namespace {

constexpr double kIdleThatCounts = 0.1;   // for the multiprocessors' time
constexpr double kUsefulOccupancy = 0.5;  // more warps hide no more latency to speak of
constexpr std::size_t kMostTiles = 8;
constexpr std::int64_t kSmallest = 16, kLargest = 1024;  // side of a tile that is offered

std::int64_t whole_of(const std::string& text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? value : 0;
}

bool is_side(const std::pair<std::string, std::string>& field) {
  const std::int64_t value = whole_of(field.second);
  return field.first != "num_warps" && field.first != "num_stages" &&
         field.first.find("GROUP") == std::string::npos && value >= kSmallest && value <= kLargest &&
         (value & (value - 1)) == 0;
}

// Waves of a grid, and the share of their time in which multiprocessors have nothing to do.
struct Waves {
  double count = 0, idle = 0;
};
Waves waves_of(std::int64_t grid, std::int64_t resident, const Target& target) {
  const double at_once = static_cast<double>(resident) * target.multiprocessors;
  const double count = static_cast<double>(grid) / at_once;
  return {count, 1 - count / std::ceil(count)};
}

std::string percent(double share) {
  return fmt::format("{:.3g} %", 100 * share);
}

// A tile as it is ranked.
struct Judged {
  const TileFacts* tile = nullptr;
  bool fails = false, spills = false;
  double idle = 0, occupancy = 0;  // shares
  std::string text;
};

Judged judge(const TileFacts& tile, std::optional<double> least_lanes, const Target& target) {
  Judged judged{&tile, false, false, 0, 0, {}};
  std::int64_t resident = 0;
  if (tile.made && !tile.made->failure.empty()) {
    judged.fails = true, judged.text = tile.made->failure;
    return judged;
  }
  if (tile.made) {
    OccupancyEvidence evidence;
    evidence.registers = tile.made->registers, evidence.smem_bytes = tile.made->smem_bytes;
    const Occupancy bound = known_occupancy(tile.config.stage.warps, evidence, target).bound;
    resident = bound.blocks;
    judged.spills = tile.made->spilled_bytes > 0, judged.occupancy = bound.share,
    judged.fails = resident == 0;
    judged.text = fmt::format(
        "{} registers, {}, {} bytes of shared memory: {} blocks a multiprocessor, {} of its warps",
        tile.made->registers,
        judged.spills ? fmt::format("{} bytes spilled", tile.made->spilled_bytes) : "no spills",
        tile.made->smem_bytes, resident, percent(bound.share));
  }
  double busy = 1;
  if (tile.grid && tile.grid->is_whole) {
    const Waves waves = waves_of(tile.grid->blocks, std::max<std::int64_t>(resident, 1), target);
    busy = 1 - waves.idle;
    judged.text += fmt::format("{}{} blocks{}", judged.text.empty() ? "" : "; ", tile.grid->blocks,
                               resident > 0 ? fmt::format(" are {:.3g} waves, {} of their time idle",
                                                          waves.count, percent(waves.idle))
                                            : "");
    if (least_lanes && tile.grid->lanes > 1) {
      const double share =
          *least_lanes / (static_cast<double>(tile.grid->blocks) * static_cast<double>(tile.grid->lanes));
      busy *= share;
      judged.text +=
          fmt::format(", {} of its lanes masked more than of the tile with fewest", percent(1 - share));
    }
  }
  judged.idle = 1 - busy;
  return judged;
}

}  // namespace

std::string grid_verdict(const KnownMetrics& known, std::optional<std::int64_t> warps, const Target& target) {
  const std::string head = "verdict on the grid, by the profile: ";
  if (!known.grid) return head + "launch__grid_size is not in the metrics, and nothing is known of it";
  const std::int64_t grid = *known.grid, units = target.multiprocessors;
  if (grid < units)
    return fmt::format(
        "{}{} blocks for {} multiprocessors: {} have nothing to do; smaller blocks, or an axis of the sum "
        "that is split, would give them some",
        head, grid, units, units - grid);
  if (!warps && known.block) warps = std::max<std::int64_t>(1, *known.block / target.warp_size);
  std::int64_t resident = 1;
  if (warps) {
    OccupancyEvidence evidence;
    evidence.registers = known.registers, evidence.smem_bytes = known.smem_bytes;
    resident = std::max(1, known_occupancy(*warps, evidence, target).bound.blocks);
    if (known.achieved_occupancy)  // this many were there
      resident =
          std::clamp<std::int64_t>(std::llround(*known.achieved_occupancy * target.warps_per_multiprocessor /
                                                static_cast<double>(*warps)),
                                   1, resident);
  }
  const Waves waves = waves_of(grid, resident, target);
  const std::string counted =
      warps ? fmt::format("{} blocks are {:.3g} waves of {} a multiprocessor", grid, waves.count, resident)
            : fmt::format("{} blocks for {} multiprocessors, {:.3g} each", grid, units, waves.count);
  if (waves.idle > kIdleThatCounts)
    return fmt::format(
        "{}{}, and in the last one part has nothing to do, {} of the time at most: another number of blocks "
        "may fill it",
        head, counted, percent(waves.idle));
  return fmt::format(
      "{}{}, and at most {} of the time is lost at their end: nothing to gain from the grid alone", head,
      counted, percent(waves.idle));
}

std::vector<TritonConfig> tiles_to_rank(const TritonKernel& kernel) {
  std::vector<TritonConfig> tiles;
  const auto add = [&](const TritonConfig& config) {
    if (tiles.size() < kMostTiles && std::none_of(tiles.begin(), tiles.end(), [&](const TritonConfig& one) {
          return one.same_blocks(config) && one.stage == config.stage;
        }))
      tiles.push_back(config);
  };
  for (TritonConfig config : kernel.configs) {
    if (!kernel.listed) config.meta = kernel.blocks;
    if (config.hidden.empty() && !config.meta.empty()) add(config);
  }
  if (tiles.size() != 1) return tiles;
  const TritonConfig only = tiles[0];
  for (std::size_t side = 0; side < only.meta.size(); ++side)
    for (const double factor : {0.5, 2.0}) {
      TritonConfig other = only;
      other.meta[side].second =
          fmt::format("{:g}", factor * static_cast<double>(whole_of(only.meta[side].second)));
      if (is_side(only.meta[side]) && is_side(other.meta[side])) add(other);
    }
  return tiles;
}

std::vector<std::string> tile_verdicts(std::vector<TileFacts> tiles, const Target& target) {
  std::optional<double> least;
  for (const TileFacts& tile : tiles)
    if (tile.grid && tile.grid->is_whole && tile.grid->lanes > 1) {
      const double lanes = static_cast<double>(tile.grid->blocks) * static_cast<double>(tile.grid->lanes);
      least = std::min(least.value_or(lanes), lanes);
    }
  std::vector<Judged> judged;
  for (const TileFacts& tile : tiles) judged.push_back(judge(tile, least, target));
  const auto key = [](const Judged& one) {
    constexpr double kSteps = 20;  // steps of 5 %: less is within what such sums are off
    return std::tuple(one.fails, one.spills, std::lround(kSteps * one.idle),
                      -std::lround(kSteps * std::min(one.occupancy, kUsefulOccupancy)));
  };
  std::stable_sort(judged.begin(), judged.end(),
                   [&](const Judged& a, const Judged& b) { return key(a) < key(b); });
  if (std::all_of(judged.begin(), judged.end(), [](const Judged& one) { return one.text.empty(); }))
    return {
        "verdict on the tiles: nothing tells them apart; --trust lets Triton compile them, --let says the "
        "sizes of their "
        "grids"};
  const bool compiled =
      std::any_of(tiles.begin(), tiles.end(), [](const TileFacts& tile) { return tile.made.has_value(); });
  std::vector<std::string> lines = {
      fmt::format("verdict on the tiles, {}, none of them measured: no spills first, then the fewest idle "
                  "lanes, then the most active warps",
                  compiled ? "by what Triton compiles" : "by their grids alone, since nothing was compiled")};
  for (std::size_t i = 0; i < judged.size(); ++i)
    lines.push_back(fmt::format(
        "tile {}: {}{}: {}", i + 1, to_string(judged[i].tile->config),
        judged[i].tile->config.line > 0 ? fmt::format(" (line {})", judged[i].tile->config.line) : "",
        judged[i].text.empty() ? "nothing is known of it" : judged[i].text));
  return lines;
}

}  // namespace convtune
