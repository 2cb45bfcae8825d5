// CLI11 tells its errors by class and a text that begins or ends with the option's name.
#include "command_line.h"

#include <fmt/format.h>

#include <vector>

#include "command_table.h"
#include "convtune/error.h"
#include "convtune/spelling.h"
#include "options.h"
#include "table.h"

namespace convtune::cli {
namespace {

std::string with_guess(const std::string& message, const std::string& word,
                       const std::vector<std::string>& names) {
  const std::string guess = did_you_mean(word, names);
  return guess.empty() ? message : message + "; " + guess;
}

// A word that must be one of these commands, and is none.
std::string no_command(const std::string& name, const std::string& word,
                       const std::vector<std::string>& names) {
  const std::string message = fmt::format("there is no command '{}'", printable(name)),
                    guessed = with_guess(message, word, names);
  return guessed == message ? fmt::format("{}; there are {}", message, fmt::join(names, ", ")) : guessed;
}

// The options that help lists.
std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

bool is_problem(const std::string& word) {
  try {
    parse_problem_words({word});
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A word that nothing takes.
std::string unexpected(const CLI::App& used, const std::string& word) {
  if (!word.starts_with('-'))
    return commands_of(used).empty() ? fmt::format("'{}' is one word too many", printable(word))
                                     : no_command(full_name(used) + ' ' + word, word, commands_of(used));
  const std::string option = word.substr(0, word.find('='));
  if (used.get_option_no_throw(option))
    return fmt::format("{} belongs behind the command: {} … {}", option, full_name(used), option);
  return with_guess(fmt::format("there is no option {}", printable(option)), option, options_of(used));
}

// "FILE is missing: A Triton source with one @triton.autotune list"
std::string with_description(const CLI::App& used, const std::string& name, const std::string& what) {
  const CLI::Option* option = used.get_option_no_throw(name);
  const std::string description = option ? option->get_description() : "";
  return name + what + (description.empty() ? "" : ": " + description);
}

std::string missing(const CLI::App& used, const std::string& text) {
  if (text.starts_with("A subcommand"))
    return fmt::format("{} what? There are {}", full_name(used), fmt::join(commands_of(used), ", "));
  return with_description(used, text.substr(0, text.find(' ')), " is missing");
}

// "--budget: 1 required TEXT missing", "--budget: At Most 1 required but received 2"
std::string miscounted(const CLI::App& used, const std::string& text) {
  const std::string name = text.substr(0, text.find(':'));
  if (text.find("At Most") != text.npos) return name + " is given more than once";
  return with_description(used, name, " needs a value");
}

std::string typed;

}  // namespace

void remember_command(int argc, char** argv) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  typed = "convtune";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool plain = !word.empty() && word.find_first_not_of(kPlain) == word.npos;
    typed += ' ';
    if (plain) {
      typed += word;
      continue;
    }
    typed += '\'';
    for (const char c : word) typed += c == '\'' ? std::string("'\\''") : std::string(1, c);
    typed += '\'';
  }
}

const std::string& typed_command() {
  return typed;
}

Complaint about_command(const CLI::App& app, const std::string& word) {
  const auto is_it = [&](const CLI::App* command) { return command->get_name() == word; };
  if (word.empty() || word.starts_with('-') || !app.get_subcommands(is_it).empty()) return {};
  if (is_problem(word))
    return {
        fmt::format("there is no command '{}'; it is a problem", printable(word)),
        fmt::format("`convtune tune {0}` searches for the fastest way to run it, `convtune plan {0}` shows "
                    "what would run",
                    printable(word))};
  return {no_command(word, word, commands_of(app)), "see `convtune --help`"};
}

Complaint about_arguments(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* used = &app;
  while (!used->get_subcommands().empty()) used = used->get_subcommands().front();
  if (error.get_exit_code() == 0) {  // --help or --version, of a command that there must be
    const std::vector<std::string> extras = app.remaining(true);
    if (commands_of(*used).empty() || extras.empty() || extras.front().starts_with('-')) return {};
  }
  const std::string text = error.what(), kind = error.get_name();
  std::string message = printable(text);  // it may quote an argument
  // A word that was mistyped is the reason for what is missing.
  const std::vector<std::string> extras = app.remaining(true);
  if (!extras.empty())
    message = unexpected(*used, extras.front());
  else if (kind == "RequiredError")
    message = missing(*used, text);
  else if (kind == "ArgumentMismatch")
    message = miscounted(*used, text);
  else if (kind == "ExcludesError")
    message = std::string(text).replace(text.find(" excludes "), 10, " cannot be given together with ");
  return {message, fmt::format("see `{} --help`", full_name(*used))};
}

}  // namespace convtune::cli
