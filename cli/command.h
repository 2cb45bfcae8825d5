// What a subcommand is: its place on the command line and what it does. One file each.
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

Command add_tune(CLI::App& parent);
Command add_bench(CLI::App& parent);
Command add_verify(CLI::App& parent);
Command add_plan(CLI::App& parent);
Command add_cases(CLI::App& parent);
Command add_analyze(CLI::App& parent);
Command add_refine(CLI::App& parent);
Command add_profile(CLI::App& parent);
Command add_launch_for_profiler(CLI::App& parent);
Command add_export(CLI::App& parent);
Command add_db(CLI::App& parent);
Command add_cache(CLI::App& parent);
Command add_devices(CLI::App& parent);
Command add_doctor(CLI::App& parent);
Command add_completion(CLI::App& parent);
Command add_man_page(CLI::App& parent);
Command add_report(CLI::App& parent);

}  // namespace convtune::cli
