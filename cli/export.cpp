// convtune export: a problem as source code that stands alone.
#include "convtune/export.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "command.h"
#include "convtune/error.h"
#include "convtune/refine.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"
#include "table.h"
#include "target_sheet.h"

namespace convtune::cli {
namespace {

struct Export {
  ProblemOptions problem;
  std::string format = "triton", output = "-", device, target, config, class_file, precision, ties = "away";
  CudaExportOptions options;

  int run() const {
    if (format == "triton" &&
        !(device.empty() && target.empty() && options.algorithm.empty() && ties == "away"))
      throw bad(
          "--device, --target, --algorithm and --ties are for --format cuda; a Triton file is for any GPU "
          "that "
          "Triton knows");
    const ExportModule module = asked();
    const OutputFile out(output);
    out.write(format == "triton" ? export_triton(module, options) : cuda(module));
    return kOk;
  }

  // The class's, or the problem's alone.
  ExportModule asked() const {
    std::optional<ConvProblem> named;
    if (class_file.empty() || !problem.empty()) {
      const std::vector<ConvProblem> problems = problem.problems();
      if (problems.size() != 1)
        throw bad(fmt::format("{} problems are too many for one file; name one", problems.size()));
      named = problems[0];
    }
    ExportModule module = class_file.empty() ? ExportModule(*named) : class_module(named);
    for (ExportLayer& layer : module.layers) {
      layer.problem = problem.changed(layer.problem);
      if (!precision.empty()) layer.problem.precision = parse_precision(precision);
    }
    return module;
  }

  ExportModule class_module(const std::optional<ConvProblem>& named) const {
    ReadModuleOptions reading{.problem = named, .python = problem.python};
    try {
      if (auto found = read_module(load_source(class_file), reading)) return *std::move(found);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", printable(class_file), error.what()));
    }
    throw bad(fmt::format("{}: it has no class Model with an nn.Conv layer", printable(class_file)));
  }

  std::string cuda(const ExportModule& of) const {
    CudaExportOptions all = options;
    all.config = parse_config(config);
    all.ties_to_even = ties == "even";
    const CudaExport exported =
        target.empty() ? export_cuda(of, gpu(), all) : export_cuda(of, find_target(target), all);
    print_library_warnings();
    if (!exported.note.empty()) print_hint(exported.note);
    for (const auto& [plan, us] : exported.kernels)
      if (exported.note.empty() && plan.source == PlanSource::estimate)
        print_hint(fmt::format("{} {}: {}", plan.algorithm, to_string(plan.config), plan.why));
    return exported.text;
  }

  Device gpu() const {
    const Device found = device.empty() || device == "auto" ? best_device() : parse_device(device);
    if (found.kind != Device::Kind::cuda)
      throw bad(fmt::format(
          "--format cuda is for an NVIDIA GPU, and {}; name one with --target, as in --target h100",
          device.empty() || device == "auto" ? "none is found here" : to_string(found) + " is none"));
    return found;
  }
};

}  // namespace

Command add_export(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("export", "Write a problem's kernel as a Python file that stands alone");
  const auto command = std::make_shared<Export>();
  command->problem.add_to(*app);
  add_choice(
      *app, "--format", command->format, {"triton", "cuda"},
      "triton: an autotuned implicit-GEMM kernel in Triton; cuda: the plan's own kernel in CUDA C++, as "
      "tuned");
  app->add_option(
         "--class", command->class_file,
         "A Python file with a class Model of convolutions, and get_inputs: its constructor, layers and "
         "sizes are taken; nothing of it is run")
      ->type_name("FILE")
      ->group(group::kWhat);
  add_choice(*app, "--precision", command->precision, {"auto", "fp32", "tf32", "fp16", "bf16"},
             "Use this precision instead of the problem's");
  add_choice(
      *app, "--ties", command->ties, {"away", "even"},
      "With cuda: how TF32 operands half way between two numbers are rounded; even: as cuDNN does for 1x1 "
      "layers");
  app->add_option("--module-name", command->options.module_name, "The name of the nn.Module in the file")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--device", command->device, "With cuda: the GPU whose plan it is (default: the first)")
      ->type_name("DEVICE")
      ->group(group::kWhere);
  app->add_option("--target", command->target,
                  "With cuda: for a GPU that need not be here, a first guess: " + target_help())
      ->type_name("TARGET")
      ->group(group::kWhere)
      ->excludes("--device");
  CLI::Option* algorithm =
      app->add_option("--algorithm", command->options.algorithm, "With cuda: this algorithm's kernel")
          ->type_name("ALGORITHM");
  app->add_option("--config", command->config, "With this config, as in \"consumers=3 units=5 filters=96\"")
      ->type_name("CONFIG")
      ->needs(algorithm);
  add_output(*app, command->output, "Where the file goes");
  app->footer(
      "Examples:\n"
      "  convtune export alexnet_conv1 -o conv.py\n"
      "  convtune export alexnet_conv1 --format cuda -o conv.py   # as `tune` found it\n"
      "  convtune export alexnet_conv1 --format cuda --target rtx4090 -o conv.py\n"
      "  convtune export mb1ic3ih224oc64kh7sh2ph3 act=relu --module-name Stem\n"
      "  convtune export --class model.py --format cuda --target h100 -o new.py\n\n"
      "A Triton file's autotune list is a start that was not measured for the problem; `convtune refine` "
      "goes "
      "on from a profile. A CUDA file is built by PyTorch and nvcc where it is imported; its kernel is for "
      "the exact extents.");
  return {app, [command] { return command->run(); }};
}

}  // namespace convtune::cli
