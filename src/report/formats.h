// A refusal of a report that a format cannot say.
#pragma once

#include <string_view>

#include "convtune/error.h"
#include "convtune/report.h"

namespace convtune {

// "a report of verify has no table in Markdown; `whose` have".
Error has_no(const Report& report, std::string_view what, std::string_view whose);

}  // namespace convtune
