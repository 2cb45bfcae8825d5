// See profiled_tile.h.
#include "triton/profiled_tile.h"

#include <fmt/format.h>

#include "base/quoted.h"
#include "triton/refine_original.h"

namespace convtune {
namespace {

constexpr std::int64_t kLargestTile = 256;

std::string grid_of(std::int64_t blocks) {
  return fmt::format("a grid of {} {}", blocks, blocks == 1 ? "block" : "blocks");
}

// Says which config of the source was profiled. A source that does not hold the kernel, or no list,
// is said and stops nothing.
std::string listed_config(const TritonKernel& kernel, std::int64_t blocks, const AnalyzeOptions& options,
                          TritonFile& file, std::int64_t& warps) {
  if (kernel.configs.empty())
    return fmt::format("{}; the kernel's configs are not known: {}", grid_of(blocks), kernel.why);
  std::optional<ConvProblem> problem;
  std::string why;
  std::vector<TritonConfig> found = profiled_configs(
      file, kernel, blocks, options.problem ? std::vector<ConvProblem>{*options.problem} : file.cases(), {},
      problem, why);
  if (found.empty() && kernel.configs.size() == 1) found = kernel.configs;
  if (found.empty()) return fmt::format("{}: {}", grid_of(blocks), why);
  std::string tile, which;
  for (const auto& [name, value] : found[0].meta) tile += fmt::format("{}={} ", name, value);
  bool one_tile = true;
  for (const TritonConfig& config : found) one_tile &= config.same_blocks(found[0]);
  for (const TritonConfig& config : found) {
    which += fmt::format("{}{} (line {})", which.empty() ? "" : " or ",
                         one_tile ? to_string(config.stage) : to_string(config), config.line);
    warps = warps == 0 || warps == config.stage.warps ? config.stage.warps : -1;
  }
  if (kernel.configs.size() == 1)
    return fmt::format("{} of the only config: {}{}", grid_of(blocks), tile, which);
  return fmt::format(
      "{}{} is that of {}{}{}", grid_of(blocks),
      problem ? fmt::format(" for {}", problem->name.empty() ? to_string(*problem) : problem->name) : "",
      one_tile ? tile : "", one_tile && !tile.empty() ? "and no other tile of the list: " : "", which);
}

// Without a list: the tiles of an implicit matrix product that make such a grid.
std::string any_tile(const ConvProblem& problem, std::int64_t blocks) {
  const std::int64_t rows = problem.n * problem.p() * problem.q(), columns = problem.k / problem.groups;
  std::string tiles;
  for (std::int64_t m = 1; m <= kLargestTile; m *= 2)
    for (std::int64_t n = 1; n <= kLargestTile; n *= 2) {
      const std::int64_t m_blocks = (rows + m - 1) / m, n_blocks = (columns + n - 1) / n * problem.groups;
      if (n > 1 && n / 2 >= columns) continue;  // a wider tile of the same single column of blocks
      if (m_blocks > 0 && blocks % m_blocks == 0 && blocks / m_blocks == n_blocks)
        tiles += fmt::format("{}{}x{} (ceil({}/{}) x ceil({}/{}))", tiles.empty() ? "" : " or ", m, n, rows,
                             m, columns, n);
    }
  if (tiles.empty())
    return fmt::format("{} is no tiling of {} output positions by {} channels", grid_of(blocks), rows,
                       columns);
  return fmt::format("{} is a tile of {} (positions x channels); --source says which of a list",
                     grid_of(blocks), tiles);
}

}  // namespace

ProfiledTile profiled_tile(const std::string& kernel, const KnownMetrics& metrics,
                           const AnalyzeOptions& options, TritonFile* file) {
  ProfiledTile tile;
  const TritonKernel* found = nullptr;
  if (file)
    for (const TritonKernel& one : file->kernels())
      if (is_kernel_name(kernel, one.name)) found = &one;
  if (found) tile.loops = found->loops;
  if (!metrics.grid) return tile;
  if (found)
    tile.text = listed_config(*found, *metrics.grid, options, *file, tile.warps);
  else if (file)
    tile.text = fmt::format("{}; the source has no kernel {} that it tunes or launches",
                            grid_of(*metrics.grid), convtune::quoted(kernel));
  else if (options.problem)
    tile.text = any_tile(*options.problem, *metrics.grid);
  else
    tile.text = fmt::format("{}; --problem and --source would say of which tile", grid_of(*metrics.grid));
  return tile;
}

}  // namespace convtune
