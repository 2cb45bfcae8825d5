// convtune doctor: what convtune looked for on this machine, and what it found.
#include <fmt/format.h>

#include "command.h"
#include "convtune/database.h"
#include "convtune/device.h"
#include "exit_code.h"
#include "output.h"
#include "table.h"
#include "version.h"

namespace convtune::cli {
namespace {

int run_doctor() {
  fmt::print("{}\n\n", version_line());
  Table table({{"looked for"}, {"found"}, {"detail"}});
  for (const Probe& probe : probe_environment())
    table.add_row({probe.what, probe.found ? "yes" : "no", probe.detail});
  fmt::print("{}\nconvolutions run on {} unless --device says otherwise\n", table.render(style_of(stdout)),
             to_string(best_device()));
  if (const std::size_t missing = missing_shipped_records().size(); missing > 0)
    fmt::print("{} among yours: `convtune db import --shipped` takes them over\n",
               counted(static_cast<std::int64_t>(missing), "shipped record fits the devices here and is not",
                       "shipped records fit the devices here and are not"));
  print_library_warnings();
  return kOk;
}

}  // namespace

Command add_doctor(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("doctor", "Show what was looked for on this machine, and found");
  app->footer("Example:\n  convtune doctor");
  return {app, run_doctor};
}

}  // namespace convtune::cli
