// See labels.h.
#include "page/labels.h"

#include <fmt/format.h>

namespace convtune::page {

std::string case_name(const ConvProblem& problem) {
  return fmt::format("{} (batch {})", problem.name.empty() ? key(problem) : problem.name, problem.n);
}

}  // namespace convtune::page
