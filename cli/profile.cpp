// convtune profile: a plan's kernel under NVIDIA's profiler, its metrics as JSON. And the hidden command that
// the profiler runs.
#include "convtune/profile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <memory>

#include "command.h"
#include "convtune/error.h"
#include "exit_code.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "table.h"

namespace convtune::cli {
namespace {

constexpr const char* kLaunch = "launch-for-profiler";

struct ProfileCommand {
  ProblemOptions problem;
  std::string device = "cuda:0", algorithm, config, output = "-";

  ConvProblem one() const {
    const std::vector<ConvProblem> all = problem.problems();
    if (all.size() != 1)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("{} problems are given; profile takes one", all.size()));
    return all[0];
  }
  Device gpu() const {
    const Device where = parse_device(device);
    if (where.kind != Device::Kind::cuda)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("--device {}: ncu measures GPUs alone; cuda:0 is one", printable(device)));
    return where;
  }
  // This program again, for ncu to run.
  std::vector<std::string> command() const {
    char self[PATH_MAX];
    const ssize_t length = ::readlink("/proc/self/exe", self, sizeof self);
    if (length <= 0) throw Error(ErrorKind::internal, "/proc/self/exe cannot be read");
    std::vector<std::string> words = {std::string(self, static_cast<std::size_t>(length)), kLaunch,
                                      to_string(one()), "--device", to_string(gpu())};
    if (!algorithm.empty()) words.insert(words.end(), {"--algorithm", algorithm});
    if (!config.empty()) words.insert(words.end(), {"--config", to_string(parse_config(config))});
    return words;
  }

  int run() const {
    const std::vector<std::string> words = command();
    const OutputFile out(output);
    Profile found;
    try {
      found = profile(words, {.cancel = interrupt_flag()});
    } catch (const Error&) {
      device_info(gpu());  // that there is no GPU is the better answer
      throw;
    }
    if (found.interrupted) {
      put(stderr, "convtune: interrupted: nothing is written\n");
      return kInterrupted;
    }
    put(stderr, printable(found.plan) + '\n');
    for (const std::string& note : found.notes) put(stderr, printable(note) + '\n');
    out.write(to_json(std::vector<KernelMetrics>{found.metrics}));
    return kOk;
  }

  int launch() const {
    fmt::print("{}\n", launch_for_profiler(one(), gpu(), algorithm, parse_config(config)));
    return kOk;
  }

  void add_to(CLI::App& app) {
    problem.add_to(app);
    app.add_option("--device", device, "cuda or cuda:N")
        ->type_name("DEVICE")
        ->capture_default_str()
        ->group(group::kWhere);
    add_way(app, algorithm, config, "Plan with");
  }
};

}  // namespace

Command add_profile(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("profile", "Measure a plan's kernel with Nsight Compute (ncu)");
  const auto profile = std::make_shared<ProfileCommand>();
  profile->add_to(*app);
  add_output(*app, profile->output, "Where the metrics go");
  app->footer(
      "Examples:\n"
      "  convtune profile alexnet_conv1 -o metrics.json\n"
      "  convtune analyze metrics.json --target cuda:0 --problem alexnet_conv1\n\n"
      "ncu is looked for on PATH, in $CUDA_HOME/bin and in /usr/local/cuda/bin; it runs the planned "
      "convolution three times in a process of its own, and is asked for the launch, throughputs, occupancy, "
      "what "
      "warps wait for, and traffic of local memory. Where this user may not read the GPU's counters the "
      "message says what allows it. Exit code 3 without a GPU.");
  return {app, [profile] { return profile->run(); }};
}

Command add_launch_for_profiler(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(kLaunch, "What `convtune profile` lets ncu run")->group("");
  const auto profile = std::make_shared<ProfileCommand>();
  profile->add_to(*app);
  return {app, [profile] { return profile->launch(); }};
}

}  // namespace convtune::cli
