// convtune man-page, hidden: the manual page out of the option table. The build asks for it.
#include <fmt/format.h>

#include "command.h"
#include "command_table.h"
#include "exit_code.h"

namespace convtune::cli {
namespace {

struct Meaning {
  const char *word, *text;
};

// docs/command.md has them too; tests/cli/completion_test.py holds the two together.
constexpr Meaning kExitCodes[] = {
    {"0", "Done, and all is well."},
    {"1", "A wrong answer was found."},
    {"2", "Bad options, problem or file; or what was found could not be written."},
    {"3", "There is no such device here."},
    {"4",
     "An internal error, or a kernel broke the device; after the latter the same command again goes on."},
    {"130", "Interrupted; what was found so far is kept."},
};
constexpr Meaning kVariables[] = {
    {"CONVTUNE_DATA_DIR", "The folder of the tuned records."},
    {"XDG_DATA_HOME", "Else the records are in $XDG_DATA_HOME/convtune, else in ~/.local/share/convtune."},
    {"CONVTUNE_CACHE_DIR",
     "The folder of compiled GPU kernels; else $XDG_CACHE_HOME/convtune, else ~/.cache/convtune."},
    {"CONVTUNE_PYTHON",
     "The Python of --python, where that is not given; python -m convtune names its own. Else python3."},
    {"CONVTUNE_ONEDNN",
     "The file of oneDNN, where it is not found by itself, or where another one is meant."},
    {"CONVTUNE_NVRTC", "The file of NVIDIA's run-time compiler, where it is not found by itself."},
    {"CONVTUNE_NVML", "The file of NVIDIA's management library, which tells why a GPU's clock is lowered."},
    {"CONVTUNE_LIBRARY", "The file of the library that Python loads, in place of its own."},
    {"CONVTUNE_TORCH_OPERATOR",
     "python or c++: whose the operators of PyTorch's compiled graphs are; else C++'s on CPUs, Python's with "
     "a GPU."},
    {"CONVTUNE_KERNEL_DIR",
     "Read GPU kernels below this folder, a copy of src/, to edit them without a build."},
    {"CONVTUNE_CAPABILITY", "8.0: treat GPUs as of this lower compute capability, to see what those get."},
    {"CONVTUNE_VERBOSE",
     "1: every plan that a program makes is a line on standard error, with where it is from."},
    {"OMP_NUM_THREADS", "CPU threads to start with; --threads changes it."},
    {"NO_COLOR", "If not empty: no colors, unless --color says otherwise."},
};

// Text that groff takes as it is: a hyphen that is one, and no request at the start of a line.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n'))
      out += std::string("\\&") + c;
    else
      out += c;
  }
  return out;
}

std::string item(const std::string& name, const std::string& text) {
  return fmt::format(".TP\n.B {}\n{}\n", escaped(name), escaped(text));
}

// Paragraphs, and examples as they are written.
std::string prose(const std::string& footer) {
  std::string text;
  bool example = false;
  for (const std::string& line : CLI::detail::split(footer, '\n')) {
    if (example != line.starts_with(' ')) text += example ? ".EE\n" : ".EX\n";
    example = line.starts_with(' ');
    text += line.empty() ? ".PP\n" : escaped(line) + '\n';
  }
  return text + (example ? ".EE\n" : "");
}

std::string section_of(const CommandEntry& command) {
  std::string text = fmt::format(".SS {}\n{}.\n.PP\n.B {}\n", escaped(command.name), escaped(command.summary),
                                 escaped(command.usage));
  for (const OptionEntry& entry : command.arguments) text += item(entry.text(), entry.description);
  const auto groups = by_group(command.options);
  for (const auto& [title, options] : groups) {
    if (groups.size() > 1) text += fmt::format(".PP\n{}:\n", escaped(title));
    for (const OptionEntry& entry : options) text += item(entry.text(), entry.description);
  }
  if (!command.footer.empty()) text += ".PP\n" + prose(command.footer);
  for (const CommandEntry& one : command.commands) text += section_of(one);
  return text;
}

std::string man_page(const CommandEntry& root) {
  std::string text = fmt::format(
      ".\\\" Made by `convtune man-page`.\n"
      ".TH CONVTUNE 1 \"\" \"convtune {}\" \"User Commands\"\n"
      ".SH NAME\nconvtune \\- {}\n.SH SYNOPSIS\n.B {}\n.SH DESCRIPTION\n{}.SH OPTIONS\n",
      CONVTUNE_VERSION, escaped(root.summary), escaped(root.usage), prose(root.footer));
  for (const OptionEntry& entry : root.options) text += item(entry.text(), entry.description);
  text += ".SH COMMANDS\n";
  for (const CommandEntry& one : root.commands) text += section_of(one);
  text += ".SH EXIT STATUS\n";
  for (const Meaning& one : kExitCodes) text += item(one.word, one.text);
  text += ".SH ENVIRONMENT\n";
  for (const Meaning& one : kVariables) text += item(one.word, one.text);
  return text;
}

}  // namespace

Command add_man_page(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("man-page", "Print the manual page")->group("");
  return {app, [&parent] {
            fmt::print("{}", man_page(describe(parent)));
            return kOk;
          }};
}

}  // namespace convtune::cli
