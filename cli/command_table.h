// The option table as data, read from the parser itself: what --help, the man page and the shells'
// completions are made of, so that none of them can differ from what is parsed.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <utility>
#include <vector>

namespace convtune::cli {

struct OptionEntry {
  std::vector<std::string> names;  // "-o", "--output"; of a positional its one name
  // Placeholder of its value, as in "--output FILE": FILE, N, or its values, "triton|cuda". Empty: a flag.
  // Completion goes by it, see values_of().
  std::string value;
  std::string description;  // with its default, and with what it needs or excludes
  std::string group;        // the title that help lists it under
  bool required = false;
  bool many = false;

  std::string text() const;  // "-o, --output FILE", "PROBLEM..."
};

struct CommandEntry {
  std::string name;  // "convtune db list"
  std::string word;  // "list"
  std::string summary;
  std::string usage;   // "convtune db show [OPTIONS] PROBLEM..."
  std::string footer;  // examples and paragraphs
  std::vector<OptionEntry> arguments, options;
  std::vector<CommandEntry> commands;  // without the hidden ones
};

CommandEntry describe(const CLI::App& app);

// The options by their groups, in the order of the first of each; those that are in none, as --help, stand
// last.
std::vector<std::pair<std::string, std::vector<OptionEntry>>> by_group(
    const std::vector<OptionEntry>& options);

// With the commands above it: "convtune db list".
std::string full_name(const CLI::App& app);

// The words that may stand for an option's value, in full; and whether a file's name may, or a program's.
struct Values {
  std::vector<std::string> words;
  bool files = false, programs = false;
};
Values values_of(const std::string& value);

}  // namespace convtune::cli
