# cmake -DSOURCE=... -DFILE=... -P commit.cmake: writes the commit of the checkout into a C++ file, when it changes.
# Empty where the sources are no checkout of their own, as in an archive.
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-prefix
                OUTPUT_VARIABLE inner RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
set(commit)
if(NOT failed AND inner STREQUAL "")
  execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --exclude=* "--dirty= and changes"
                  OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
file(CONFIGURE OUTPUT ${FILE} @ONLY CONTENT [[
// Written by cmake/commit.cmake.
#include "version.h"

namespace convtune::cli {
const char* const kCommit = "@commit@";
}
]])
