// Defines a subcommand: its place on the command line and its action. One file each.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>

namespace convtune::cli {

struct Command {
  CLI::App* app;             // parsed() after the command line named it
  std::function<int()> run;  // returns the exit code; throws convtune::Error
};

// Every subcommand in the order of the help, the hidden ones last: add_NAME() of each.
#define CONVTUNE_COMMANDS(X) \
  X(tune)                    \
  X(bench)                   \
  X(verify)                  \
  X(plan)                    \
  X(profile)                 \
  X(analyze)                 \
  X(refine)                  \
  X(export)                  \
  X(cases)                   \
  X(db)                      \
  X(cache)                   \
  X(devices)                 \
  X(report)                  \
  X(doctor)                  \
  X(completion)              \
  X(man_page)                \
  X(launch_for_profiler)

#define CONVTUNE_DECLARE(name) Command add_##name(CLI::App& parent);
CONVTUNE_COMMANDS(CONVTUNE_DECLARE)
#undef CONVTUNE_DECLARE

}  // namespace convtune::cli
