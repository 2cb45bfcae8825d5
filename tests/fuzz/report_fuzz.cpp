// A report's JSON, whatever it holds: a report that can be written, read back as itself and drawn, or
// Error{invalid_argument}.
#include <cstdlib>

#include "convtune/error.h"
#include "convtune/report.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    const convtune::Report report = convtune::parse_report({reinterpret_cast<const char*>(data), size});
    const std::string json = convtune::report_json(report);
    if (convtune::report_json(convtune::parse_report(json)) != json) std::abort();
    if (!convtune::report_page({report}).starts_with("<!DOCTYPE html>")) std::abort();
  } catch (const convtune::Error& error) {
    if (error.kind() != convtune::ErrorKind::invalid_argument) std::abort();
  }
  return 0;
}
