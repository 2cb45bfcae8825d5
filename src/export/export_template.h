// The files of src/export/: Python with words in it for a problem's numbers.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convtune/problem.h"

namespace convtune {

using Words = std::map<std::string, std::string, std::less<>>;

// The file with "@WORD@" replaced; other '@' stay. What a word stands for is not looked into.
std::string fill_template(std::string_view file, const Words& words);

// Those of the layer as nn.Conv2d has it, by a problem's extents.
Words layer_words(const ConvProblem& problem);

// Throws Error{unsupported} where the file, which has an nn.Conv2d and a kernel for tensors of those types,
// cannot be the problem; Error{invalid_argument} unless the name can be a class's beside the other names of
// the file.
void check_layer(const ConvProblem& problem, std::vector<DType> types, const std::string& name,
                 std::initializer_list<std::string_view> taken);

// How refusals of a problem begin.
[[noreturn]] void refuse_export(const ConvProblem& problem, const std::string& why);

}  // namespace convtune
