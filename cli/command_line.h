// Words the errors of a command line: those that CLI11 finds, and a first word that is no
// command.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace convtune::cli {

struct Complaint {
  std::string message;  // empty: nothing is wrong
  std::string hint;
};

// About the first word, which is a command or an option.
Complaint about_command(const CLI::App& app, const std::string& word);

// About what parsing threw. --help and --version are thrown, too, and nothing is wrong with them.
Complaint about_arguments(const CLI::App& app, const CLI::ParseError& error);

// The command as it was typed, quoted for a shell: for reports. remember_command() is told by main().
void remember_command(int argc, char** argv);
const std::string& typed_command();

}  // namespace convtune::cli
