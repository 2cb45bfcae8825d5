// CLI11's description of itself, in our words.
#include "command_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "convtune/cases.h"
#include "convtune/convolution.h"
#include "convtune/target.h"
#include "options.h"

namespace convtune::cli {
namespace {

// "needs --algorithm", "not with --target, --document"
std::string relation(const char* what, const std::set<CLI::Option*>& others) {
  std::vector<std::string> names;
  for (const CLI::Option* other : others) names.push_back(other->get_name());
  std::sort(names.begin(), names.end());  // the set is one of addresses
  return names.empty() ? "" : fmt::format("; {} {}", what, fmt::join(names, ", "));
}

OptionEntry entry_of(const CLI::Option& option) {
  OptionEntry entry;
  const bool positional = option.get_positional();
  if (positional) entry.names.push_back(option.get_name(true));
  for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  if (option.get_type_size() != 0) entry.value = option.get_type_name();
  if (positional && entry.value == "TEXT") entry.value = entry.names.front();
  entry.group = option.get_group();
  entry.required = option.get_required();
  entry.many = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  entry.description = option.get_description();
  if (!option.get_default_str().empty())
    entry.description += fmt::format(" (default: {})", option.get_default_str());
  entry.description += relation("needs", option.get_needs()) + relation("not with", option.get_excludes());
  if (entry.required && !positional) entry.description += "; required";
  return entry;
}

}  // namespace

std::string full_name(const CLI::App& app) {
  return (app.get_parent() ? full_name(*app.get_parent()) + ' ' : "") + app.get_name();
}

std::string OptionEntry::text() const {
  if (!names.front().starts_with('-')) return names.front() + (many ? "..." : "");
  return fmt::format("{}{}{}", fmt::join(names, ", "), value.empty() ? "" : " ", value);
}

CommandEntry describe(const CLI::App& app) {
  CommandEntry command;
  command.name = full_name(app);
  command.word = app.get_name();
  command.summary = app.get_description();
  command.footer = app.get_footer();
  command.usage = command.name + " [OPTIONS]";
  for (const CLI::Option* option : app.get_options()) {
    const OptionEntry entry = entry_of(*option);
    (option->get_positional() ? command.arguments : command.options).push_back(entry);
    if (option->get_positional())
      command.usage += entry.required ? ' ' + entry.text() : fmt::format(" [{}]", entry.text());
  }
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!one->get_group().empty()) command.commands.push_back(describe(*one));
  if (!command.commands.empty())
    command.usage += app.get_require_subcommand_min() > 0 ? " COMMAND" : " [COMMAND]";
  return command;
}

std::vector<std::pair<std::string, std::vector<OptionEntry>>> by_group(
    const std::vector<OptionEntry>& options) {
  std::vector<std::pair<std::string, std::vector<OptionEntry>>> groups;
  for (const OptionEntry& option : options) {
    auto found = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& one) { return one.first == option.group; });
    if (found == groups.end()) found = groups.insert(groups.end(), {option.group, {}});
    found->second.push_back(option);
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [](const auto& one) { return one.first != group::kOthers; });
  return groups;
}

Values values_of(const std::string& value) {
  Values all;
  if (value == "PROBLEM") {
    for (const Suite& suite : suites())
      for (const ConvProblem& problem : suite.problems) all.words.push_back(problem.name);
  } else if (value == "SUITE") {
    for (const std::string& name : suite_names()) all.words.push_back(name);
    all.words.push_back("all");
    all.files = true;
  } else if (value == "ALGORITHM") {
    for (const Device::Kind kind : {Device::Kind::cpu, Device::Kind::cuda})
      for (const std::string& name : algorithm_names(kind)) all.words.push_back(name);
  } else if (value == "TARGET") {
    for (const Target& target : known_targets()) all.words.push_back(target.name);
    all.files = true;
  } else if (value == "DEVICE") {
    all.words = {"auto", "cpu", "cuda"};
  } else if (value == "FILE") {
    all.files = true;
  } else if (value == "PROGRAM") {
    all.programs = true;
  } else if (!value.empty() && value[0] >= 'a' && value[0] <= 'z') {  // the words themselves: "triton|cuda"
    all.words = CLI::detail::split(value, '|');
  }
  return all;
}

}  // namespace convtune::cli
