// Help is prose: it is wrapped in a pipe, too, and on a wide terminal.
#include "help.h"

#include <fmt/format.h>

#include <algorithm>

#include "version.h"

namespace convtune::cli {
namespace {

constexpr int kPipeWidth = 80, kMostWidth = 100;
constexpr int kTextAt = 26;  // the column at which descriptions begin

int width_of(const Style& style) {
  return style.width > 0 ? std::min(style.width, kMostWidth) : kPipeWidth;
}

// "  --budget TIME           How long ...": a long name has a line of its own.
std::string described(const std::string& name, const std::string& description, int width) {
  std::string line = "  " + name;
  const int gap = kTextAt - display_width(line);
  line += gap >= 2 ? std::string(static_cast<std::size_t>(gap), ' ') : '\n' + std::string(kTextAt, ' ');
  return line + wrapped(description, width, kTextAt, kTextAt) + '\n';
}

std::string list_of(const char* title, const std::vector<OptionEntry>& entries, int width) {
  std::string text = entries.empty() ? "" : fmt::format("\n{}:\n", title);
  for (const OptionEntry& entry : entries) text += described(entry.text(), entry.description, width);
  return text;
}

// Paragraphs are wrapped; what is indented, an example, stays as it is.
std::string footer_of(const std::string& footer, int width) {
  std::string text;
  for (std::size_t begin = 0; begin < footer.size();) {
    const std::size_t end = std::min(footer.find('\n', begin), footer.size());
    const std::string line = footer.substr(begin, end - begin);
    text += (line.starts_with(' ') ? line : wrapped(line, width, 0)) + '\n';
    begin = end + 1;
  }
  return text;
}

}  // namespace

std::string help_text(const CommandEntry& command, const Style& style) {
  const int width = width_of(style);
  std::string text = fmt::format("{}\n\nUsage: {}\n", wrapped(command.summary, width, 0), command.usage);
  text += list_of("Arguments", command.arguments, width);
  for (const auto& [title, options] : by_group(command.options))
    text += list_of(title.c_str(), options, width);
  if (!command.commands.empty()) text += "\nCommands:\n";
  for (const CommandEntry& one : command.commands) text += described(one.word, one.summary, width);
  return text + (command.footer.empty() ? "" : '\n' + footer_of(command.footer, width));
}

std::string start_page(const Style& style) {
  return version_line() + "\n\n" +
         footer_of(
             "convtune finds the fastest way to run a convolution on this machine, checks every candidate "
             "against a double-precision oracle, and replaces the vendor's library (oneDNN, cuDNN) only "
             "where "
             "a gain is proven.\n\n"
             "To start with:\n"
             "  convtune doctor                          # what is found on this machine\n"
             "  convtune cases                           # convolutions that have a name\n"
             "  convtune tune alexnet_conv1 --batch 8    # find the fastest way, and keep it\n"
             "  convtune bench alexnet_conv1 --batch 8   # measure it beside the vendor's library\n\n"
             "`convtune --help` lists every command, `convtune help tune` explains one.",
             width_of(style));
}

}  // namespace convtune::cli
