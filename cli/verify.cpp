// convtune verify: every candidate against the oracle, or the random sweep.
#include "convtune/verify.h"

#include <fmt/format.h>

#include <limits>
#include <memory>
#include <optional>

#include "command.h"
#include "convtune/error.h"
#include "exit_code.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "report_files.h"
#include "target_sheet.h"

namespace convtune::cli {
namespace {

struct Verify {
  ProblemOptions problem;
  DeviceOptions device;
  ReportOptions results;
  std::optional<std::int64_t> random, seed;
  std::string algorithm, config, compile_only;
  bool depth = false, row = false;

  int run() const;
  int compile(const std::vector<ConvProblem>& problems, VerifyOptions options) const;
};

void add(VerifyReport& sum, const VerifyReport& part) {
  sum.problems += part.problems;
  sum.checks += part.checks;
  sum.compiled += part.compiled;
  sum.special += part.special;
  sum.mismatches += part.mismatches;
  sum.failures.insert(sum.failures.end(), part.failures.begin(), part.failures.end());
  sum.interrupted |= part.interrupted;
}

void add(CompileReport& sum, const CompileReport& part) {
  sum.problems += part.problems;
  sum.kernels += part.kernels;
  sum.failures.insert(sum.failures.end(), part.failures.begin(), part.failures.end());
  sum.interrupted |= part.interrupted;
}

void print(const VerifyReport& report, std::FILE* stream) {
  for (const Mismatch& mismatch : report.failures) {
    fmt::print(stream, "MISMATCH {} {} on {}\n  {}\n  again with: {}\n", mismatch.algorithm,
               to_string(mismatch.config), printable(to_string(mismatch.problem)), printable(mismatch.what),
               printable(mismatch.repro));
  }
  const auto listed = static_cast<std::int64_t>(report.failures.size());
  if (report.mismatches > listed) fmt::print(stream, "... and {} more\n", report.mismatches - listed);
  const std::string compiled =
      report.compiled > 0 ? fmt::format(" ({} of kernels compiled for their problem)", report.compiled) : "";
  fmt::print(stream, "{}, {}{}, {} on special numbers too, {}\n",
             counted(report.problems, "problem", "problems"), counted(report.checks, "check", "checks"),
             compiled, report.special, counted(report.mismatches, "mismatch", "mismatches"));
}

// A kernel that does not compile is wrong, as it is where problems are checked.
int Verify::compile(const std::vector<ConvProblem>& problems, VerifyOptions options) const {
  const Target target = find_target(compile_only);
  ProgressLine progress(stderr, style_of(stderr));
  options.progress = [&](std::int64_t done, std::int64_t total, std::int64_t failures) {
    progress.show(fmt::format("{}/{}, {} not compiled: kernels for {}", done, total, failures, target.name));
  };
  CompileReport report;
  if (random) report = compile_random(*random, options.seed, target, options);
  for (const ConvProblem& asked : problems) {
    if (interrupted()) break;
    add(report, compile_candidates(asked, target, options));
  }
  report.interrupted |= interrupted();
  progress.clear();
  for (const Uncompiled& one : report.failures)
    put(stderr, fmt::format("NOT COMPILED {} {} for {}\n  {}\n", one.algorithm, to_string(one.config),
                            printable(to_string(one.problem)), printable(one.why)));
  fmt::print("{}, {} compiled, {} not compiled\n", counted(report.problems, "problem", "problems"),
             counted(report.kernels, "kernel", "kernels"), report.failures.size());
  if (!report.interrupted) return report.failures.empty() ? kOk : kMismatch;
  put(stderr, "convtune: interrupted: the numbers are those of what was compiled\n");
  return kInterrupted;
}

int Verify::run() const {
  if (random && !problem.empty())
    throw Error(ErrorKind::invalid_argument,
                "--random makes its own problems: leave out PROBLEM and --suite");
  if (random && problem.batch)
    throw Error(ErrorKind::invalid_argument, "--random makes its own problems: leave out --batch");
  const std::vector<ConvProblem> problems = random ? std::vector<ConvProblem>{} : problem.problems();
  VerifyOptions options;
  options.algorithm = algorithm;
  options.config = parse_config(config);
  options.depth = depth, options.row = row;
  options.seed = static_cast<std::uint64_t>(seed.value_or(1));
  if (!problem.dtype.empty()) options.dtype = parse_dtypes(problem.dtype);
  if (!problem.layout.empty()) options.layout = parse_layout(problem.layout);
  if (!problem.dir.empty()) options.direction = parse_direction(problem.dir);
  options.cancel = interrupt_flag();
  options.stalled = [where = random ? "random sweep" : "convtune"](const std::string& what) {
    put(stderr, fmt::format("{}: {}\n", where, printable(what)));
  };
  if (!compile_only.empty()) return compile(problems, options);
  const DeviceInfo where = device.select();

  const ReportFiles files(results);
  ProgressLine progress(stderr, style_of(stderr));
  std::string name = "random sweep";
  options.progress = [&](std::int64_t done, std::int64_t total, std::int64_t mismatches) {
    progress.show(
        fmt::format("{}/{}, {}: {}", done, total, counted(mismatches, "mismatch", "mismatches"), name));
  };
  VerifyReport report;
  if (random) report = verify_random(*random, options.seed, where.device, options);
  for (const ConvProblem& asked : problems) {
    if (interrupted()) break;
    name = label(asked);
    add(report, convtune::verify(asked, where.device, options));
  }
  report.interrupted |= interrupted();
  progress.clear();
  print(report, files.table_stream());
  print_library_warnings();
  if (report.interrupted) put(stderr, "convtune: interrupted: the numbers are those of what was checked\n");
  if (report.checks == 0 && !report.interrupted)
    throw Error(ErrorKind::unsupported,
                "nothing was checked: no algorithm that was asked for supports the problem");
  if (files.wanted()) files.write({environment_of(where), report, report.interrupted});
  return exit_code(report);
}

}  // namespace

Command add_verify(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "verify", "Check answers against the double-precision oracle, on NaN, infinities and denormals too");
  const auto verify = std::make_shared<Verify>();
  verify->problem.add_to(*app);
  verify->device.add_to(*app);
  add_whole_number(*app, "--random", verify->random, 1, 1'000'000'000,
                   "Check this many random problems, biased to edges");
  add_whole_number(*app, "--seed", verify->seed, 0, std::numeric_limits<std::int64_t>::max(),
                   "Where the random problems and the data start (default: 1)");
  app->add_flag("--depth", verify->depth, "Of random problems only those of three dimensions")
      ->needs("--random");
  app->add_flag("--row", verify->row, "Of random problems one row each: those of one dimension")
      ->needs("--random")
      ->excludes("--depth");
  add_way(*app, verify->algorithm, verify->config, "Check only");
  verify->results.add_files_to(*app);
  app->add_option(
         "--compile-only", verify->compile_only,
         "Check nothing: compile what would be checked, for a GPU that need not be here, into the cache: " +
             target_help())
      ->type_name("TARGET")
      ->group(group::kWhere)
      ->excludes("--device")
      ->excludes("--threads")
      ->excludes("--json")
      ->excludes("--html");
  app->footer(
      "Examples:\n"
      "  convtune verify alexnet_conv1 --batch 2\n"
      "  convtune verify --random 20000 --seed 1\n"
      "  convtune verify --random 20000 --seed 1 --compile-only h100  # needs no GPU\n"
      "  convtune verify --random 500 --algorithm implicit_gemm --dtype f16\n"
      "  convtune verify mb1ic3ih17oc5kh3ph1 --algorithm direct\n\n"
      "Exit code 1 if any answer is wrong; every mismatch comes with the command that shows it again.");
  return {app, [verify] { return verify->run(); }};
}

}  // namespace convtune::cli
