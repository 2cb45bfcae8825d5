// Named problems: the lists of cases/*.txt, built into the library so that they are always there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convtune/problem.h"

namespace convtune {

struct Suite {
  std::string name;  // "stem", "body", "depthwise", "modern", "half", "video", "medical", "audio", "edges"
  std::vector<ConvProblem> problems;
  bool in_all = false;  // "all" runs it
};

// The built-in suites' names, in their order. Nothing is parsed.
std::vector<std::string> suite_names();
// The built-in suites; those that `all` runs are the first, in its order.
const std::vector<Suite>& suites();

// A suite's name, "all" (stem, body and depthwise), or the path of a file with one problem a line
// ('#' starts a comment), benchdnn's input files for one. Throws Error: unknown names list the known ones;
// lines that cannot be used say FILE:LINE and why. With `left_out` they are put there instead, and only a
// file of which no line can be used throws.
std::vector<ConvProblem> load_suite(const std::string& name_or_path,
                                    std::vector<std::string>* left_out = nullptr);

// A built-in case's name, else a problem line. Throws Error{invalid_argument}; a name that is
// nearly right is answered with the nearest one.
ConvProblem find_problem(std::string_view name_or_text);

}  // namespace convtune
