// convtune completion: the option table as scripts for bash, zsh and fish. Each needs nothing but its shell,
// and asks convtune nothing: what may stand where is written into it.
#include "completion.h"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <set>

#include "command.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"

namespace convtune::cli {
namespace {

using Words = std::vector<std::string>;

void for_each_command(const CommandEntry& command, const std::function<void(const CommandEntry&)>& take) {
  take(command);
  for (const CommandEntry& one : command.commands) for_each_command(one, take);
}

std::string replaced(std::string text, char what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) text.replace(at, 1, by);
  return text;
}

// 'text', for bash and zsh.
std::string quoted(const std::string& text) {
  return '\'' + replaced(text, '\'', "'\\''") + '\'';
}

// The commands below the root, quoted: 'convtune tune', 'convtune db list'.
Words command_names(const CommandEntry& root) {
  Words names;
  for_each_command(root, [&](const CommandEntry& command) {
    if (&command != &root) names.push_back(quoted(command.name));
  });
  return names;
}

// Returns the placeholders of options and arguments: FILE, PROBLEM, triton|cuda; each once.
std::set<std::string> values_in(const CommandEntry& root) {
  std::set<std::string> values;
  for_each_command(root, [&](const CommandEntry& command) {
    for (const auto* entries : {&command.arguments, &command.options})
      for (const OptionEntry& entry : *entries)
        if (!entry.value.empty()) values.insert(entry.value);
  });
  return values;
}

std::string bash_command(const CommandEntry& command) {
  Words options, commands;
  for (const OptionEntry& one : command.options)
    options.insert(options.end(), one.names.begin(), one.names.end());
  for (const CommandEntry& one : command.commands) commands.push_back(one.word);
  std::string text = fmt::format("    {})\n      options={} commands={}\n", quoted(command.name),
                                 quoted(fmt::format("{}", fmt::join(options, " "))),
                                 quoted(fmt::format("{}", fmt::join(commands, " "))));
  if (!command.arguments.empty())
    text += fmt::format("      argument={}\n", quoted(command.arguments.front().value));
  text += "      case $previous in\n";
  for (const OptionEntry& one : command.options)
    if (!one.value.empty())
      text += fmt::format("        {}) value={} ;;\n", fmt::join(one.names, " | "), quoted(one.value));
  return text + "      esac\n      ;;\n";
}

// The text in brackets of an _arguments spec.
std::string zsh_text(const std::string& text) {
  return replaced(replaced(replaced(text, '\\', "\\\\"), '[', "\\["), ']', "\\]");
}

std::string zsh_function(const std::string& command) {
  return '_' + replaced(replaced(command, ' ', "_"), '-', "_");
}

std::string zsh_option(const OptionEntry& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "" : ",") + name + (!option.value.empty() && name.starts_with("--") ? "=" : "");
  const std::string before = option.many ? "'*'" : quoted(fmt::format("({})", fmt::join(option.names, " ")));
  std::string text = quoted(fmt::format("[{}]", zsh_text(option.description)));
  if (!option.value.empty())
    text += quoted(fmt::format(":{0}:{{_convtune_values {1}}}", option.value, quoted(option.value)));
  return before + (option.names.size() > 1 ? '{' + names + '}' : names) + text;
}

std::string zsh_command(const CommandEntry& command) {
  std::string specs;
  for (const OptionEntry& one : command.options) specs += " \\\n    " + zsh_option(one);
  for (const OptionEntry& one : command.arguments)
    specs += " \\\n    " + quoted(fmt::format("{}:{}:{{_convtune_values {}}}",
                                              one.many       ? "*"
                                              : one.required ? "1"
                                                             : "1:",
                                              one.names.front(), quoted(one.value)));
  if (command.commands.empty())
    return fmt::format("{}() {{\n  _arguments{}\n}}\n\n", zsh_function(command.name), specs);
  std::string described, cases;
  for (const CommandEntry& one : command.commands) {
    described += "\n        " + quoted(one.word + ':' + replaced(one.summary, ':', "\\:"));
    cases += fmt::format("        {}) {} ;;\n", one.word, zsh_function(one.name));
  }
  return fmt::format(
      "{}() {{\n"
      "  local state line\n"
      "  local -a commands\n"
      "  local -A opt_args\n"
      "  _arguments -C{} \\\n    '1:command:->command' '*::argument:->argument'\n"
      "  case $state in\n"
      "    command)\n      commands=({})\n      _describe command commands\n      ;;\n"
      "    argument)\n      case $words[1] in\n{}      esac\n      ;;\n"
      "  esac\n"
      "}}\n\n",
      zsh_function(command.name), specs, described, cases);
}

std::string fish_quoted(const std::string& text) {
  return '\'' + replaced(replaced(text, '\\', "\\\\"), '\'', "\\'") + '\'';
}

// How fish completes a value: -r wants one, -f leaves files out, -F lets them in.
std::string fish_value(const std::string& value) {
  const Values values = values_of(value);
  std::string words = fmt::format("{}", fmt::join(values.words, " "));
  if (values.programs) words = "(__fish_complete_command)";
  return std::string(values.files ? " -F" : " -f") + (words.empty() ? "" : " -a " + fish_quoted(words));
}

std::string fish_command(const CommandEntry& command) {
  const std::string at = fmt::format("complete -c convtune -n '__convtune_at {}'", command.name);
  std::string text;
  for (const CommandEntry& one : command.commands)
    text += fmt::format("{} -a {} -d {}\n", at, one.word, fish_quoted(one.summary));
  for (const OptionEntry& one : command.arguments) text += at + fish_value(one.value) + '\n';
  for (const OptionEntry& one : command.options) {
    text += at;
    for (const std::string& name : one.names)
      text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    text += (one.value.empty() ? "" : " -r" + fish_value(one.value)) + " -d " + fish_quoted(one.description) +
            '\n';
  }
  return text;
}

}  // namespace

std::string bash_completion(const CommandEntry& root) {
  std::string commands, values;
  for_each_command(root, [&](const CommandEntry& command) { commands += bash_command(command); });
  for (const std::string& value : values_in(root)) {
    const Values all = values_of(value);
    if (!all.words.empty())
      values += fmt::format("    {}) words+={} ;;\n", quoted(value),
                            quoted(fmt::format(" {}", fmt::join(all.words, " "))));
  }
  Words files, programs;
  for (const std::string& value : values_in(root)) {
    if (values_of(value).files) files.push_back(quoted(value));
    if (values_of(value).programs) programs.push_back(quoted(value));
  }
  return fmt::format(
      R"(# bash completion of convtune, made by `convtune completion bash`.

_convtune() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local command=convtune options= commands= argument= value= words= kinds= i
  # Bash splits --device=cpu at its "=".
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${{COMP_WORDS[i]}}" in
      {0}) command+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case $command in
{1}  esac
  if [[ $value ]]; then
    :
  elif [[ $current == -* ]]; then
    words=$options
  else
    words=$commands value=$argument
  fi
  case $value in
{2}  esac
  case $value in
    {3})
      kinds=-f
      compopt -o filenames 2>/dev/null
      ;;
    {4}) kinds=-c ;;
  esac
  mapfile -t COMPREPLY < <(compgen $kinds -W "$words" -- "$current")
}}
complete -F _convtune convtune
)",
      fmt::join(command_names(root), " | "), commands, values, fmt::join(files, " | "),
      fmt::join(programs, " | "));
}

std::string zsh_completion(const CommandEntry& root) {
  std::string commands, values;
  for_each_command(root, [&](const CommandEntry& command) { commands += zsh_command(command); });
  for (const std::string& value : values_in(root)) {
    const Values all = values_of(value);
    std::string ways;
    if (!all.words.empty()) ways += fmt::format(" compadd -- {};", fmt::join(all.words, " "));
    if (all.files) ways += " _files;";
    if (all.programs) ways += " _command_names -e;";
    if (!ways.empty()) values += fmt::format("    {}){};\n", quoted(value), ways);
  }
  return fmt::format(
      R"(#compdef convtune
# zsh completion of convtune, made by `convtune completion zsh`.

_convtune_values() {{
  case $1 in
{}    *) _message -e values $1 ;;
  esac
}}

{}# Loaded as a function by its first use, or sourced.
if [[ $funcstack[1] == _convtune ]]; then
  _convtune "$@"
else
  compdef _convtune convtune
fi
)",
      values, commands);
}

std::string fish_completion(const CommandEntry& root) {
  std::string commands;
  for_each_command(root, [&](const CommandEntry& command) { commands += fish_command(command); });
  return fmt::format(
      R"(# fish completion of convtune, made by `convtune completion fish`.

# True if the words so far name this command.
function __convtune_at
    set -l command convtune
    for word in (commandline -opc)
        switch "$command $word"
            case {}
                set command "$command $word"
        end
    end
    test "$command" = "$argv"
end

complete -c convtune -f
{})",
      fmt::join(command_names(root), " "), commands);
}

Command add_completion(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("completion", "Print a script that completes convtune's words in a shell");
  const auto shell = std::make_shared<std::string>();
  add_choice(*app, "SHELL", *shell, {"bash", "zsh", "fish"}, "The shell: bash, zsh or fish")->required();
  app->footer(
      "Examples:\n"
      "  . <(convtune completion bash)                # in ~/.bashrc\n"
      "  . <(convtune completion zsh)                 # in ~/.zshrc, after compinit\n"
      "  convtune completion fish | source            # in ~/.config/fish/config.fish\n\n"
      "`make install PREFIX=...` puts the three where shells look for them; this is for where convtune came "
      "in "
      "another way, as in a Python wheel.");
  return {app, [shell, &parent] {
            const CommandEntry root = describe(parent);
            fmt::print("{}", *shell == "bash"  ? bash_completion(root)
                             : *shell == "zsh" ? zsh_completion(root)
                                               : fish_completion(root));
            return kOk;
          }};
}

}  // namespace convtune::cli
