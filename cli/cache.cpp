// convtune cache: the compiled GPU kernels that are kept from one run to the next, and graphs beside them.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "command.h"
#include "convtune/cubin_cache.h"
#include "convtune/error.h"
#include "exit_code.h"
#include "output.h"
#include "table.h"

namespace convtune::cli {
namespace {

std::string mib(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// The folder that kernels lie in; throws Error where there is none for them.
std::string folder_of(const CubinCacheContents& kernels) {
  if (kernels.folder.empty())
    throw Error(ErrorKind::io, "there is no home folder to keep kernels in; set CONVTUNE_CACHE_DIR");
  return printable(kernels.folder.string());
}

int show() {
  const CubinCacheContents kept = cubin_cache_contents();
  print_library_warnings();
  fmt::print("{} in {}: {}, at most {}\n", counted(kept.kernels, "compiled kernel", "compiled kernels"),
             folder_of(kept), mib(kept.bytes), mib(kept.limit_bytes));
  return kOk;
}

bool is_left_over(std::string_view name) {
  return name.starts_with("unfinished-");
}

bool is_graph(std::string_view name) {
  return name.size() == 32 && std::ranges::all_of(name, [](unsigned char c) { return std::isxdigit(c); });
}

// Deletes the graphs of torch.compile that the Python package has remembered (torch/graph/remembered.py),
// named by their keys, and the parts that killed writers have left; returns how many graphs those were.
// Other files in the folder are not ours and stay. Throws Error{io} naming the folder, or the first file that
// cannot be removed, once all that can be are.
std::int64_t delete_graphs(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return 0;
  std::vector<fs::path> found;
  fs::directory_iterator at(folder, error);
  for (const fs::directory_iterator end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code gone;
    if ((is_graph(name) || is_left_over(name)) && fs::is_regular_file(at->symlink_status(gone)))
      found.push_back(at->path());
  }
  std::string failed;
  if (error) failed = fmt::format("{}: cannot be read: {}", printable(folder.string()), error.message());
  std::int64_t graphs = 0;
  for (const fs::path& file : found) {
    std::error_code kept;
    if (fs::remove(file, kept)) graphs += is_graph(file.filename().string());
    if (kept && failed.empty())
      failed = fmt::format("{}: cannot be removed: {}", printable(file.string()), kept.message());
  }
  if (!failed.empty()) throw Error(ErrorKind::io, failed);
  return graphs;
}

int clean() {
  const CubinCacheContents deleted = clean_cubin_cache();
  print_library_warnings();
  const std::string folder = folder_of(deleted);
  const std::int64_t graphs = delete_graphs(deleted.folder / "graphs");
  fmt::print("{} deleted in {}: {}{}\n", counted(deleted.kernels, "compiled kernel", "compiled kernels"),
             folder, mib(deleted.bytes),
             graphs > 0 ? ", and " + counted(graphs, "graph", "graphs") + " of torch.compile" : "");
  return kOk;
}

}  // namespace

Command add_cache(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("cache", "Show where compiled GPU kernels are kept, and how many");
  app->require_subcommand(0, 1);
  CLI::App* clean_app = app->add_subcommand("clean", "Delete every compiled kernel and remembered graph");
  app->footer(
      "Examples:\n"
      "  convtune cache\n"
      "  convtune cache clean\n\n"
      "A kernel that is not there is compiled again, in about a second. The kernels lie in "
      "$XDG_CACHE_HOME/convtune, or where CONVTUNE_CACHE_DIR says; when they are more than the limit, those "
      "used "
      "longest ago go. Graphs of torch.compile that are remembered lie there in the folder graphs.");
  return {app, [=] { return clean_app->parsed() ? clean() : show(); }};
}

}  // namespace convtune::cli
