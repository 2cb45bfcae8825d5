// renewal(): whether a record is of an older library of the vendor's, or another compiler, than those found
// here.
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "convtune/database.h"
#include "plan/algorithms.h"
#include "plan/kernel_compiler.h"

namespace convtune {
namespace {

using Version = std::array<long, 3>;

Version parse_version(const std::string& text) {
  Version version{};
  const char* at = text.c_str();
  for (long& part : version) {
    char* end = nullptr;
    part = std::strtol(at, &end, 10);
    at = end + (*end == '.');
  }
  return version;
}

// The version that `software` gives for `library`; empty where it does not name it.
std::string version_in(const std::string& software, const std::string& library) {
  const auto at = software.find(library + ' ');
  if (at == std::string::npos) return {};
  const auto begin = at + library.size() + 1;
  return software.substr(begin, software.find(',', begin) - begin);
}

// Records of before the field name no compiler, and are believed.
std::string other_compiler(const Record& record) {
  if (record.compiler.empty() || kernel_compiler().empty() || record.compiler == kernel_compiler()) return {};
  return fmt::format(
      "measured with machine code of {}, and {} is here now: `convtune tune --retune` renews it",
      record.compiler, kernel_compiler());
}

}  // namespace

std::string renewal(const Record& record) {
  if (std::string other = other_compiler(record); !other.empty()) return other;
  const auto kind = record.device.starts_with("cpu|") ? Device::Kind::cpu : Device::Kind::cuda;
  const std::string here = vendor_library(kind);
  if (here.empty()) return {};
  const std::string library = here.substr(0, here.find(' '));
  const std::string before = version_in(record.software, library);
  if (!before.empty() && parse_version(before) >= parse_version(version_in(here, library))) return {};
  return fmt::format(
      "proven against {}, and {} is here now: `convtune tune --retune` renews it",
      before.empty() ? "a " + library + " that it does not name, or none" : library + ' ' + before, here);
}

}  // namespace convtune
