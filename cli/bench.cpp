// convtune bench: what plan() answers, measured beside every variant of the vendor's library.
#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "convtune/convolution.h"
#include "convtune/error.h"
#include "convtune/tuner.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "report_cases.h"

namespace convtune::cli {
namespace {

struct Bench {
  ProblemOptions problem;
  DeviceOptions device;
  ReportOptions results;
  double seconds = 3;

  int run() const {
    const Asked asked = problem.asked();
    if (!(seconds > 0 && seconds <= 86400))  // so written, it refuses NaN too
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("--seconds {} is not above 0 and at most a day", seconds));
    const DeviceInfo where = device.select();
    CompareOptions options;
    options.seconds_per_case = seconds;
    options.cancel = interrupt_flag();
    return report_cases(
        asked, where, results,
        [&](const ConvProblem& one, const CasePlace& place, ProgressLine& progress) -> CaseResult {
          const double left = place.mean_seconds * static_cast<double>(place.behind + 1);
          progress.show(fmt::format("{}measuring for {:g} s: {}",
                                    left > 0 ? duration_text(left) + " left, " : std::string(), seconds,
                                    place.label));
          // The slow reference would take nearly all of the model's time, and hide where the rest goes.
          if (asked.model && convtune::plan(one, where.device).plan().algorithm == "reference")
            throw Error(ErrorKind::unsupported, "only the reference runs it, which is right, and slow");
          ReportRow row;
          row.comparison = compare(one, where.device, options);
          if (machine_is_busy(row.comparison)) {
            progress.clear();
            print_warning(
                fmt::format("{}: the machine is busy: {}", place.label, interruptions(row.comparison)));
          }
          // Cut short, the numbers rest on too few samples to be shown.
          if (interrupted()) return {};
          return {std::move(row), {}};
        });
  }
};

}  // namespace

Command add_bench(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("bench", "Measure convtune beside the vendor's library, in one run");
  const auto bench = std::make_shared<Bench>();
  bench->problem.add_to(*app);
  bench->problem.add_train_to(*app);
  bench->device.add_to(*app);
  app->add_option("--seconds", bench->seconds, "Measuring time of a case, shared by the providers")
      ->type_name("SECONDS")
      ->capture_default_str();
  bench->results.add_to(*app);
  app->footer(
      "Examples:\n"
      "  convtune bench alexnet_conv1 --batch 8\n"
      "  convtune bench --suite all --batch 8 --seconds 5 --json bench.json\n"
      "  convtune bench --suite stem --csv - > stem.csv\n"
      "  convtune bench --model unet.onnx --dtype bf16 --layout nhwc\n"
      "  convtune bench --suite body --dtype bf16 --layout nhwc --dir bwd_w\n\n"
      "bench never tunes: run `convtune tune` on the same problems first.");
  return {app, [bench] { return bench->run(); }};
}

}  // namespace convtune::cli
