// The options that several subcommands share, and the parsers of their little languages.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convtune/device.h"
#include "convtune/error.h"
#include "convtune/model.h"
#include "convtune/problem.h"

namespace convtune::cli {

// Returns the error to throw for an argument that cannot be taken.
Error bad(const std::string& message);

// The Python that --python names unless it is given: CONVTUNE_PYTHON's, which `python -m convtune` sets to
// its own, else python3.
std::string python_program();

// Holds the problems that a subcommand works on. With a model, problem i is its convolution i.
struct Asked {
  std::vector<ConvProblem> problems;
  std::optional<Model> model;
};

// Options of one subcommand. They live as long as the process: the command line points into them.
struct ProblemOptions {
  std::vector<std::string> words;
  std::string suite, model, python = python_program(), dtype, layout, dir;
  std::vector<std::string> shapes;  // for the model's inputs
  std::optional<std::int64_t> batch;
  bool train = false;

  void add_to(CLI::App& app);
  // --model and what changes its problems, alone. Returns --model.
  CLI::Option* add_model_to(CLI::App& app);
  void add_train_to(CLI::App& app);
  bool empty() const { return words.empty() && suite.empty() && model.empty(); }
  // The words' problems, then the suite's; or the model's, whose skipped layers are told on stderr. With
  // batch, types and layout put in, in the direction that is asked for, or in all three of training. Throws
  // Error if there is none.
  Asked asked() const;
  std::vector<ConvProblem> problems() const { return asked().problems; }
  // With batch, types, layout and direction put in.
  ConvProblem changed(ConvProblem problem) const;

 private:
  Model read() const;
  void train_all(Asked& found) const;
};

struct DeviceOptions {
  std::string device = "auto";
  std::optional<std::int64_t> threads;  // none: as the environment has it

  void add_to(CLI::App& app);
  // Sets the threads and finds the device. Throws Error{invalid_argument} or Error{no_device}.
  DeviceInfo select() const;
};

// An option that takes a decimal whole number from low to high, and nothing that merely looks like
// one: CLI11 reads 010 as 8, -1 as the largest unsigned number, and cuts what is too large.
CLI::Option* add_whole_number(CLI::App& app, const std::string& name, std::optional<std::int64_t>& target,
                              std::int64_t low, std::int64_t high, const std::string& description);

// An option that takes one of these words. Help and completion name them.
CLI::Option* add_choice(CLI::App& app, const std::string& name, std::string& target,
                        const std::vector<std::string>& choices, const std::string& description);

// --algorithm and --config: `verb` ("Plan with") this algorithm, and this config.
void add_way(CLI::App& app, std::string& algorithm, std::string& config, const std::string& verb);

// --output: `where` ("Where the new file goes").
void add_output(CLI::App& app, std::string& path, const std::string& where);

// Names the group in a command's help for the options that are added from here on.
namespace group {
constexpr const char *kWhat = "What", *kWhere = "Where", *kHow = "How", *kOutput = "Output",
                     *kOthers = "Options";
}
void begin_group(CLI::App& app, const char* title);

// --color, to a command and to all below it.
void add_color(CLI::App& app);

// Checks a command and all below it: an empty word is refused where an option takes a file, a program or
// another name. An unset variable of a script is no name, and is not passed over.
void refuse_empty_names(CLI::App& app);

// How long a search may take: exactly one of the two is limited.
struct Budget {
  double seconds = 0;
  std::int64_t trials = 0;  // 0: no limit
};

// "90s", "1.5m", "500ms", "200 trials", "200t".
Budget parse_budget(std::string_view text);
// "2%" or "0.02"; at least 0 and less than 1.
double parse_share(std::string_view text);

// Problems out of command-line words: `key=value` words belong to the problem before them. A
// problem is a case name or a benchdnn line.
std::vector<ConvProblem> parse_problem_words(const std::vector<std::string>& words);

// Exactly one, out of the text of an option: "alexnet_conv1", "mb1ic3ih224oc64kh7 act=relu".
ConvProblem one_problem(const std::string& text);

// load_suite(), saying on stderr which lines of a file are left out, and why.
std::vector<ConvProblem> suite_problems(const std::string& name_or_path);
// Returns the help text of an option that takes a suite: "stem, body, all, or of a file".
std::string suite_help();
// Returns how many lines suite_problems() has left out by now. A command that has done the rest then still
// ends with kUsage.
std::int64_t lines_left_out();

// "alexnet_conv1", or the problem's text if it has no name.
std::string label(const ConvProblem& problem);

}  // namespace convtune::cli
