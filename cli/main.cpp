// The convtune command: names the subcommands, runs one, and turns errors into messages and exit codes.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <new>
#include <system_error>
#include <vector>

#include "command.h"
#include "command_line.h"
#include "convtune/error.h"
#include "exit_code.h"
#include "help.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "version.h"

namespace {

using namespace convtune;
using namespace convtune::cli;

int fail(ExitCode code, const std::string& message, const std::string& hint = "") {
  print_library_warnings();
  print_error(message);
  if (!hint.empty()) print_hint(hint);
  return code;
}

// `help`, `help tune` and `version` are other ways to write --help, tune --help and --version.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty() || (words[0] != "help" && words[0] != "version")) return words;
  const std::string option = "--" + words[0];
  words.erase(words.begin());
  words.push_back(option);
  return words;
}

int run(int argc, char** argv) {
  CLI::App app("Convolutions as fast as the hardware allows", "convtune");
  app.formatter_fn([](const CLI::App* of, const std::string&, CLI::AppFormatMode) {
    return help_text(describe(*of), style_of(stdout));
  });
  app.set_version_flag("--version,-V", version_text,
                       "Print versions: convtune's, its compiler's, the libraries'");
  app.require_subcommand(1);
#define CONVTUNE_ADD(name) add_##name(app),
  const std::vector<Command> commands = {CONVTUNE_COMMANDS(CONVTUNE_ADD)};
#undef CONVTUNE_ADD
  add_color(app);
  refuse_empty_names(app);
  app.footer(
      "A problem is a case name (see `convtune cases`) or a line of benchdnn's convolution grammar.\n\n"
      "`convtune help COMMAND` says more about one.\n\n"
      "Examples:\n"
      "  convtune tune alexnet_conv1 --batch 8\n"
      "  convtune bench --suite stem --batch 8 --json stem.json\n"
      "  convtune plan mb1ic3ih224oc64kh7sh2ph3 act=relu\n\n"
      "A table that is too wide for the terminal leaves out columns, the least important one first; a pipe "
      "gets "
      "all of them.\n\n"
      "Exit codes: 0 ok, 1 wrong answer, 2 bad input, or the result could not be "
      "written, 3 no such device, 4 internal error, 130 interrupted.");
  std::vector<std::string> words = words_of(argc, argv);
  if (words.empty()) {  // a mistake in a script, so that the exit code says so; to a person, a beginning
    put(stderr, start_page(style_of(stderr)));
    return kUsage;
  }
  if (const Complaint unknown = about_command(app, words[0]); !unknown.message.empty())
    return fail(kUsage, unknown.message, unknown.hint);
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    const Complaint complaint = about_arguments(app, error);
    if (complaint.message.empty()) return app.exit(error);  // --help, --version
    return fail(kUsage, complaint.message, complaint.hint);
  }
  for (const Command& command : commands)
    if (command.app->parsed()) return command.run();
  return kUsage;
}

// A stream that was closed before we started: the next file opened would have its number, and messages would
// be written into it. What is opened here cannot be used, as the closed one could not.
void fill_closed_streams() {
  for (int stream = 0; stream < 3; ++stream)
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace

int main(int argc, char** argv) {
  fill_closed_streams();
  catch_interrupts();
  // A file size limit then is an error that can be told, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  // A reader that is gone is no reason to stop: what was found is still recorded.
  std::signal(SIGPIPE, SIG_IGN);
  // Whoever started us may ignore it, and then no child's exit code would be known.
  std::signal(SIGCHLD, SIG_DFL);
  remember_command(argc, argv);
  try {
    const int code = run(argc, argv);
    flush_stdout();
    if (code == kOk && lines_left_out() > 0)
      return fail(kUsage, fmt::format("{} left out, as warned above; the rest is done",
                                      counted(lines_left_out(), "line was", "lines were")));
    return code;
  } catch (const Error& error) {
    return fail(exit_code(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(kUsage, "not enough memory", "a smaller --batch needs less");
  } catch (const std::system_error& error) {  // fmt::print's and flush_stdout's: the output is full or gone
    if (error.code() == std::errc::broken_pipe) return kUsage;  // a reader that saw enough, as `head` does
    return fail(exit_code(ErrorKind::io), "cannot write standard output: " + error.code().message());
  } catch (const std::exception& error) {
    return fail(kInternal, error.what());
  }
}
