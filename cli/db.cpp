// convtune db: the tuned records of this user.
#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "comparison_table.h"
#include "convtune/database.h"
#include "convtune/error.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"
#include "table.h"

namespace convtune::cli {
namespace {

std::string times(const Record& record) {
  if (record.vendor_us <= 0 || record.time_us <= 0) return "-";
  return fmt::format("{:.2f}x{}{}", record.vendor_us / record.time_us, record.proven() ? "" : ", not proven",
                     renewal(record).empty() ? "" : ", old vendor");
}

int list() {
  const Database database;
  const std::vector<Record> records = database.list();
  print_library_warnings();
  if (records.empty()) {
    fmt::print("no records in {}\n", printable(database.folder().string()));
    return kOk;
  }
  Table table({{"problem"},
               {"device", Align::left, 1},
               {"us", Align::right},
               {"vendor us", Align::right, 3},
               {"speed-up", Align::right},
               {"date", Align::left, 2},
               {"algorithm and config"}});
  for (const Record& record : records)
    table.add_row({key(record.problem), record.device, fmt::format("{:.5g}", record.time_us),
                   record.vendor_us > 0 ? fmt::format("{:.5g}", record.vendor_us) : "-", times(record),
                   record.date, with_config(record.algorithm, record.config)});
  fmt::print("{}", table.render(style_of(stdout)));
  return kOk;
}

// A problem that leaves the precision open means the records of every precision.
bool asks_for(ConvProblem asked, const ConvProblem& recorded) {
  if (asked.precision == Precision::automatic) asked.precision = recorded.precision;
  return asked == recorded;
}

void print_record(const Database& database, const Record& record) {
  const auto line = [](std::string_view name, const std::string& value) {
    const std::string text = fmt::format("{:<12} {}", name, value.empty() ? "-" : printable(value));
    fmt::print("{}\n", wrapped(text, style_of(stdout).width, 13));
  };
  line("problem", to_string(record.problem));
  line("device", record.device);
  line("algorithm", with_config(record.algorithm, record.config));
  line("time",
       fmt::format("{:.5g} us, median of {}, MAD {:.3g} us", record.time_us, record.n, record.mad_us));
  line("roofline", fmt::format("{:.1f} %", 100 * record.roofline_fraction));
  line("max error", fmt::format("{:.2e}", record.max_error));
  line("runner-up",
       record.runner_up.empty() ? "" : fmt::format("{:.5g} us, {}", record.runner_up_us, record.runner_up));
  line("vendor", record.vendor.empty() ? "" : fmt::format("{:.5g} us, {}", record.vendor_us, record.vendor));
  line("decision", record.decision);
  line("kernel hash", record.kernel_hash);
  line("software", record.software);
  if (!record.compiler.empty()) line("compiler", record.compiler);
  if (const std::string older = renewal(record); !older.empty()) line("renewal", older);
  line("date", record.date);
  line("file", database.path_of(record.problem, record.device).string());
}

int show(const std::vector<std::string>& words) {
  const std::vector<ConvProblem> problems = parse_problem_words(words);
  const Database database;
  const std::vector<Record> records = database.list();
  print_library_warnings();
  bool first = true;
  for (const ConvProblem& problem : problems) {
    bool found = false;
    for (const Record& record : records) {
      if (!asks_for(problem, record.problem)) continue;
      if (!first) fmt::print("\n");
      print_record(database, record);
      first = false;
      found = true;
    }
    if (!found)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("no record for {} in {}; `convtune tune` makes one", key(problem),
                              database.folder().string()));
  }
  return kOk;
}

int import_shipped() {
  const ShippedRecords result = import_shipped_records();
  print_library_warnings();
  fmt::print(
      "{} imported, {} kept (an own record is there), {} of devices that are not here, {} of kernels that "
      "have changed since\n",
      result.imported, result.kept, result.elsewhere, result.outdated);
  return kOk;
}

int import(const std::vector<std::string>& files) {
  Database::ImportResult all;
  for (const std::string& file : files) {
    const Database::ImportResult result = Database().import_pack(file);
    for (const std::string& problem : result.problems) print_warning(problem);
    all.imported += result.imported;
    all.kept += result.kept;
    all.rejected += result.rejected;
  }
  print_library_warnings();
  fmt::print("{} imported, {} kept (an own record was as fast), {} rejected\n", all.imported, all.kept,
             all.rejected);
  return all.rejected > 0 ? kUsage : kOk;
}

int clean(bool yes) {
  const Database database;
  if (!yes) {
    const auto count = static_cast<std::int64_t>(database.list().size());
    print_library_warnings();
    throw Error(ErrorKind::invalid_argument,
                fmt::format("clean would delete {} in {}; say so with --yes",
                            counted(count, "record", "records"), database.folder().string()));
  }
  fmt::print("{} deleted in {}\n", counted(database.erase_all(), "record", "records"),
             printable(database.folder().string()));
  print_library_warnings();
  return kOk;
}

struct DbOptions {
  std::vector<std::string> words, files;
  std::string file;
  bool yes = false, shipped = false;
};

}  // namespace

Command add_db(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("db", "Look after the tuned records");
  const auto options = std::make_shared<DbOptions>();
  app->require_subcommand(1);
  CLI::App* list_app = app->add_subcommand("list", "List every record");
  CLI::App* show_app = app->add_subcommand("show", "Show all of a problem's records");
  show_app->add_option("PROBLEM", options->words, "A case name or a benchdnn line")->required();
  CLI::App* export_app = app->add_subcommand("export", "Write all records to a file, one a line");
  export_app->add_option("FILE", options->file, "Where to (- is standard output)")->required();
  CLI::App* import_app =
      app->add_subcommand("import", "Take over records that are faster than one's own, or shipped ones");
  CLI::Option* files =
      import_app->add_option("FILE", options->files, "What `convtune db export` wrote, or single records");
  import_app
      ->add_flag("--shipped", options->shipped, "Those that this version ships for the devices that are here")
      ->excludes(files);
  CLI::App* clean_app = app->add_subcommand("clean", "Delete every record, and what searches have tried");
  clean_app->add_flag("--yes", options->yes, "Really delete");
  app->footer(
      "Examples:\n"
      "  convtune db list\n"
      "  convtune db show alexnet_conv1\n"
      "  convtune db export records.jsonl\n"
      "  convtune db import /project/records/*.json\n"
      "  convtune db import --shipped\n"
      "  convtune db clean --yes\n\n"
      "The records lie in $XDG_DATA_HOME/convtune, or where CONVTUNE_DATA_DIR says.");
  return {app, [=]() -> int {
            if (list_app->parsed()) return list();
            if (show_app->parsed()) return show(options->words);
            if (import_app->parsed() && options->shipped) return import_shipped();
            if (import_app->parsed() && options->files.empty())
              throw Error(ErrorKind::invalid_argument, "import needs a FILE, or --shipped");
            if (import_app->parsed()) return import(options->files);
            if (clean_app->parsed()) return clean(options->yes);
            if (!export_app->parsed()) return kUsage;
            Database().export_pack(options->file);
            print_library_warnings();
            return kOk;
          }};
}

}  // namespace convtune::cli
