// The text of a tuning stage as rules: its parameters, counts, conditions and prohibitions, sentence by
// sentence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convtune/error.h"
#include "convtune/refine.h"

namespace convtune {

// Reads what stands below a stage's heading. Every line is a sentence of the result; one that no rule takes
// has an empty rule. Throws Error{invalid_argument} for a parameter whose values are no numbers from 1 to 64,
// and for a text that names no parameter of a tuning stage.
RefineStage parse_stage(std::string_view text);

// The numbers of a text, in order: "1008 GB/s" has one, "2,4,8,16" four. A sign is no part of a number.
std::vector<double> numbers_of(std::string_view text);

// The lines of a text, without blanks at their ends.
std::vector<std::string_view> lines_of(std::string_view text);
std::string_view trimmed(std::string_view text);
std::string lower(std::string_view text);

// A document that cannot be read.
Error bad_document(const std::string& why);

}  // namespace convtune
