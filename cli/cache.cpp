// convtune cache: the compiled GPU kernels that are kept from one run to the next.
#include <fmt/format.h>

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

int clean() {
  const CubinCacheContents deleted = clean_cubin_cache();
  print_library_warnings();
  fmt::print("{} deleted in {}: {}\n", counted(deleted.kernels, "compiled kernel", "compiled kernels"),
             folder_of(deleted), mib(deleted.bytes));
  return kOk;
}

}  // namespace

Command add_cache(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("cache", "Show where compiled GPU kernels are kept, and how many");
  app->require_subcommand(0, 1);
  CLI::App* clean_app = app->add_subcommand("clean", "Delete every compiled kernel");
  app->footer(
      "Examples:\n"
      "  convtune cache\n"
      "  convtune cache clean\n\n"
      "A kernel that is not there is compiled again, in about a second. The kernels lie in "
      "$XDG_CACHE_HOME/convtune, or where CONVTUNE_CACHE_DIR says; when they are more than the limit, those "
      "used "
      "longest ago go.");
  return {app, [=] { return clean_app->parsed() ? clean() : show(); }};
}

}  // namespace convtune::cli
