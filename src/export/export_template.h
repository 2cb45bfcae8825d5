// The files of src/export/: Python with words in it for a problem's numbers.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "convtune/problem.h"

namespace convtune {

using Words = std::map<std::string, std::string, std::less<>>;

// The file with "@WORD@" replaced; other '@' stay. What a word stands for is not looked into.
std::string fill_template(std::string_view file, const Words& words);

// Those of the layer as nn.Conv2d has it, by a problem's extents.
Words layer_words(const Conv2dProblem& problem);

// Throws Error{invalid_argument} unless it can name a class beside those names of the file.
void check_module_name(const std::string& name, std::initializer_list<std::string_view> taken);

}  // namespace convtune
