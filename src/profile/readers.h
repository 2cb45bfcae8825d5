// The readers of a profile's forms, for parse_metrics() and profile().
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profile/raw_profile.h"

namespace convtune {

// Throws Error{invalid_argument} that names kernel and metric, or the byte where the text stops to be JSON.
RawProfile read_json(std::string_view json);

// Launches that ncu printed among the lines of the program that it ran.
struct NcuOutput {
  RawProfile profile;
  std::vector<std::string> messages = {};  // ncu's own: "ERROR: ..."
  std::vector<std::string> others = {};    // lines that are not ncu's
};

// True where a line is the head of a table of `ncu --csv`.
bool has_table(std::string_view output);
// Reads such a table: ncu's raw page or its details page. Throws Error{invalid_argument} with the line that
// does not belong.
NcuOutput read_table(std::string_view output);

// True where a line names a launch or a section as ncu's pages of text do.
bool has_page(std::string_view output);
NcuOutput read_page(std::string_view output);

}  // namespace convtune
