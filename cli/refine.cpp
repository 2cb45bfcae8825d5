// convtune refine: a Triton source with renewed autotune lists, by the rules of the last tuning stage.
#include "convtune/refine.h"

#include <fmt/format.h>

#include <algorithm>
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
#include "table.h"
#include "target_sheet.h"
#include "whole_answer.h"

namespace convtune::cli {
namespace {

constexpr int kIndent = 4;  // per sentence's second line, below those of the configs' too

struct Refine {
  std::string file, document, metrics, target, stage = "stage=micro", original, problem, kernel, output = "-";
  std::string order = "file";
  std::vector<std::string> let;
  std::string class_file, format = "triton";
  bool whole = false, keep = false, only_original = false, trust = false, no_import = false,
       no_compile = false, measure = false;
  std::string python = python_program(), min_gain, call;
  std::optional<std::int64_t> timeout;
  ReportOptions results;

  int run() const {
    const std::string& name = document.empty() ? file : document;
    RefineOptions options = refine_options();
    RefineDocument asked = document.empty() ? named_files() : load_document(document);
    if (!document.empty()) {
      options.in_order = asked.in_order || order == "seed";
      if (options.several == RefineOptions::Several::refuse) options.several = RefineOptions::Several::keep;
      options.stage = asked.stage;
      if (!target.empty()) asked.target = find_target(target);
      if (!metrics.empty()) asked.metrics = load_metrics(metrics);
      if (whole) return write_whole(asked);
    }
    if (!min_gain.empty()) options.stage.min_gain = gain();
    const OutputFile out(output);
    const ReportFiles files(results);
    if (out.is_stdout() && files.table_stream() == stderr)
      throw Error(ErrorKind::invalid_argument,
                  "the new file and --json or --html cannot both be standard output: name one with -o FILE");
    ProgressLine progress(stderr, style_of(stderr));
    options.progress = [&progress](const std::string& what) { progress.show(what); };
    Refined refined;
    try {
      refined = measure
                    ? refine_measured(asked.source, asked.metrics, asked.target, options, measure_options())
                    : refine(asked.source, asked.metrics, asked.target, options);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", printable(name), error.what()));
    }
    progress.clear();
    if (refined.interrupted) {
      put(stderr, "convtune: interrupted: nothing is written\n");
      return kInterrupted;
    }
    std::FILE* const report = out.is_stdout() || !document.empty() ? stderr : files.table_stream();
    for (const RefinedKernel& done : refined.kernels) say_lines(report, done.unknown);
    for (const std::string& note : asked.notes) say(report, note);
    for (const StageSentence& sentence : asked.stage.sentences)
      say(report, sentence.rule.empty()
                      ? fmt::format("not taken into account: {}", sentence.text)
                      : fmt::format("the stage says: {}: {}", sentence.text, sentence.rule));
    for (const RefinedKernel& done : refined.kernels) print_kernel(done, refined.kernels.size() > 1, report);
    for (const std::string& note : refined.notes) say(report, note);
    if (!document.empty())
      if (const std::string line = whole_answer().line(asked); !line.empty()) say(report, line);
    out.write(refined.source);
    if (files.wanted()) files.write({environment_of(asked.target), std::move(refined)});
    return kOk;
  }

  WholeAnswer whole_answer() const { return {whole, document, target, class_file, problem, python}; }

  int write_whole(const RefineDocument& asked) const {
    const OutputFile out(output);
    out.write(whole_answer().file(asked, format));
    say(stderr, whole_answer().line(asked));
    return kOk;
  }

  RefineDocument named_files() const {
    if (file.empty())
      throw Error(ErrorKind::invalid_argument, "name a FILE, or a --document; see `convtune refine --help`");
    if (target.empty()) throw Error(ErrorKind::invalid_argument, "--target is required: where the file runs");
    if (metrics.empty() && original.empty() && kernel.empty())
      throw Error(
          ErrorKind::invalid_argument,
          "--metrics is required: what was profiled; or name the --kernel or its --original, without it");
    RefineDocument asked;
    asked.target = find_target(target);
    if (!metrics.empty()) asked.metrics = load_metrics(metrics);
    asked.source = load_source(file);
    return asked;
  }

  RefineOptions refine_options() const {
    RefineOptions options;
    options.original = original, options.kernel = kernel, options.path = file;
    if (!problem.empty()) options.problem = one_problem(problem);
    for (const std::string& word : let) options.let.push_back(parse_let(word));
    if (original == "first") options.several = RefineOptions::Several::first;
    options.in_order = order == "seed";
    options.keep_list = keep, options.only_original = only_original;
    options.trust = trust, options.import_file = !no_import, options.compile = !no_compile;
    options.python = python;
    if (timeout) options.seconds = static_cast<double>(*timeout);
    options.cancel = interrupt_flag();
    return options;
  }

  RefineMeasureOptions measure_options() const {
    RefineMeasureOptions options;
    options.call = call;
    if (timeout) options.seconds = static_cast<double>(*timeout);
    return options;
  }

  double gain() const {
    const double share = parse_share(min_gain);
    if (share < 0.01)
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("--min-gain {} is less than 1 %, which is not worth a change", printable(min_gain)));
    return share;
  }

  static std::pair<std::string, std::string> parse_let(const std::string& word) {
    const std::size_t mark = std::min(word.find('='), word.size());
    return {word.substr(0, mark), word.substr(std::min(mark + 1, word.size()))};
  }

  static void say(std::FILE* report, const std::string& text, std::string_view begin = "") {
    const int width = style_of(report).width, used = static_cast<int>(begin.size());
    put(report, fmt::format("{}{}\n", begin, wrapped(printable(text), width, kIndent, used)));
  }

  static void say_lines(std::FILE* report, const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      say(report, text.substr(at, end - at));
      at = end + 1;
    }
  }

  void print_kernel(const RefinedKernel& done, bool with_name, std::FILE* report) const {
    if (with_name) say(report, fmt::format("{} (line {})", done.kernel, done.line));
    if (!document.empty())
      for (const Finding& finding : done.findings)
        say(report, fmt::format("{}: {}", finding.what, finding.text));
    for (const std::string& note : done.notes) say(report, note);
    for (const std::string& verdict : done.verdicts) say(report, verdict);
    for (const std::string& config : done.configs) say(report, config, "  ");
    if (done.configs.empty())
      say(report, !done.unknown.empty()   ? "keep: its list stays as it was"
                  : done.original.empty() ? std::string("keep: nothing is changed")
                                          : fmt::format("keep: {}{}", done.original,
                                                        only_original ? "; its list is reduced to it"
                                                                      : "; its list stays as it was"));
    if (done.measured.empty()) return;
    say(report, "on " + done.place);
    put(report, measured_table(done, report));
    say(report, done.changed ? "the new list is written: a neighbour is proven faster"
                             : "reverted: the list is written as it was");
  }

  static std::string measured_table(const RefinedKernel& done, std::FILE* report) {
    Table table({{"config"},
                 {"median us", Align::right},
                 {"deviation", Align::right, 2},
                 {"samples", Align::right, 1},
                 {"of the original", Align::right},
                 {"outputs"}});
    const double original_us = done.measured[0].time_us;
    for (const MeasuredConfig& one : done.measured) {
      const std::string config = fmt::format("{} ({})", printable(one.config), one.reason);
      if (!one.failure.empty())
        table.add_row({config, "-", "-", "-", "-", "FAILED: " + printable(one.failure)}, Tone::bad);
      else if (one.n == 0)
        table.add_row({config, "-", "-", "-", "-", one.output});
      else
        table.add_row({config, fmt::format("{:.1f}", one.time_us),
                       fmt::format("{:.1f} %", 100 * one.mad_us / one.time_us), fmt::format("{}", one.n),
                       fmt::format("{:.1f} %", 100 * one.time_us / original_us), one.output});
    }
    return table.render(style_of(report));
  }
};

}  // namespace

Command add_refine(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("refine", "Renew the autotune lists of a Triton file from its profile");
  const auto refine = std::make_shared<Refine>();
  begin_group(*app, group::kWhat);
  CLI::Option* file = app->add_option("FILE", refine->file, "A Triton source");
  CLI::Option* document =
      app->add_option(
             "--document", refine->document,
             "A text that asks for this stage: GPU sheet, stage with its rules, code, metrics; in place of "
             "FILE, --metrics and --target")
          ->type_name("FILE")
          ->excludes(file);
  app->add_option("--metrics", refine->metrics,
                  "Its profile, as `convtune analyze` reads it; without it occupancy is not measured")
      ->type_name("FILE");
  app->add_option("--target", refine->target, "Where it runs: " + target_help())
      ->type_name("TARGET")
      ->group(group::kWhere);
  add_choice(*app, "--set", refine->stage, {"stage=micro"},
             "The stage: stage=micro changes num_warps and num_stages alone")
      ->group(group::kHow);
  app->add_option("--kernel", refine->kernel,
                  "Which kernel, NAME or NAME:LINE (default: those that the metrics name)")
      ->type_name("NAME");
  app->add_option(
         "--original", refine->original,
         "The config that was profiled, as in \"BLOCK_M=32 num_stages=2\" or as Triton prints it "
         "(default: found by the grid, and by what the compiler says); first: where several fit, the "
         "first of them")
      ->type_name("CONFIG");
  app->add_option(
         "--problem", refine->problem,
         "What it computed: a case name or a benchdnn line (default: the case whose nn.Conv2d the file has)")
      ->type_name("PROBLEM");
  app->add_option(
         "--let", refine->let,
         "A value of the wrapper or of ModelNew's parameters, for the grid: M=4096, a tensor's shape "
         "\"x=[16, 3, 224, 224]\", \"kernel_size=(3, 5)\"; may be repeated")
      ->type_name("NAME=VALUE");
  begin_group(*app, group::kHow);
  CLI::Option* whole =
      app->add_flag("--whole", refine->whole,
                    "In place of the stage's answer: a whole kernel of ours for the document's convolution");
  whole->needs(document);
  add_choice(
      *app, "--format", refine->format, {"triton", "cuda"},
      "Of --whole: in Triton, in the document's order, not measured; or the kernel in CUDA C++ that the "
      "model speaks of")
      ->needs(whole);
  app->add_option(
         "--class", refine->class_file,
         "The Python file with the class Model that the document's ModelNew stands for: its layers and "
         "sizes; nothing of it is run")
      ->type_name("FILE")
      ->needs(document);
  add_output(*app, refine->output, "Where the new file goes");
  add_choice(
      *app, "--order", refine->order, {"file", "seed"},
      "file: nothing but the lists changes; seed: imports, constants, kernels, functions, classes, and no "
      "tests");
  app->add_flag("--keep", refine->keep, "Add to the list that there is, which may serve other shapes");
  app->add_flag("--only-original", refine->only_original,
                "Where the stage keeps the original, leave it alone in the list");
  app->add_flag(
      "--trust", refine->trust,
      "Where --python has Triton: compile the configs, and import the file, which runs it, where reading "
      "does not give its list and to check what is written");
  app->add_flag("--no-import", refine->no_import,
                "With --trust or --measure: do not import the file for that");
  app->add_flag("--no-compile", refine->no_compile,
                "With --trust or --measure: do not ask Triton's compiler; infer from the metrics");
  app->add_option("--python", refine->python, "The Python that reads the file; better one that has Triton")
      ->type_name("PROGRAM")
      ->capture_default_str();
  CLI::Option* measure = app->add_flag(
      "--measure", refine->measure,
      "Run the file with its configs here, beside the original, and keep the list as it was unless one is "
      "proven faster (needs PyTorch, Triton and a GPU; trusts the file)");
  app->add_option("--call", refine->call,
                  "What --measure runs: a call of the file's functions, \"matmul(a(512), b(512))\", or a .py "
                  "file whose "
                  "prepare(module) returns a function (default: the file's ModelNew)")
      ->type_name("CALL")
      ->needs(measure);
  app->add_option("--min-gain", refine->min_gain, "The gain that must be proven: 1% or more (default: 2%)")
      ->type_name("SHARE")
      ->needs(measure);
  add_whole_number(*app, "--timeout", refine->timeout, 1, 86'400,
                   "Seconds of the processor that a config may take to compile, or by the clock to answer");
  refine->results.add_files_to(*app);
  app->footer(
      "Examples:\n"
      "  convtune refine conv.py --metrics metrics.json --target rtx4090 -o refined.py\n"
      "  convtune refine conv.py --metrics m.json --target cuda:0 --measure -o new.py\n"
      "  convtune refine matmul.py --target h100 --original \"num_warps: 4\"\n"
      "  convtune refine --document question.txt -o refined.py\n"
      "  convtune refine --document question.txt --whole --class model.py -o new.py\n\n"
      "Only the lists change: 3 to 6 configs each, the original first, and every other byte stays. Where the "
      "rules leave fewer, the original is kept, and the report says why.\n\n"
      "Python reads the file and runs nothing of it: without --trust and --measure it may be anybody's. With "
      "--trust Triton's compiler says what each config needs and which are the same machine code, no GPU "
      "needed, of the kernel, the @triton.jit functions that it calls and constants alone. --trust also "
      "imports the file, which runs it as you; --no-import forbids that.\n\n"
      "Triton's autotuner picks among the new list, unless --measure decides first: it runs the file with "
      "each config in Python processes of its own, compares the outputs, and holds the fastest against the "
      "original in two contests.\n\n"
      "Exit code 2 and no file where the source is not understood or the original is not found; 3 where "
      "--measure finds no GPU.");
  return {app, [refine] { return refine->run(); }};
}

}  // namespace convtune::cli
