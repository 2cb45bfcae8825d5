// Text files that the build put into the library (cmake/embed.cmake).
#pragma once

#include <span>
#include <string_view>

namespace convtune {

struct EmbeddedFile {
  std::string_view name;  // "stem.txt"
  std::string_view text;
};
std::span<const EmbeddedFile> embedded_cases();
std::span<const EmbeddedFile> embedded_kernels();  // device code below src/cuda/
std::span<const EmbeddedFile> embedded_exports();  // src/export/
std::span<const EmbeddedFile> embedded_runners();  // programs in Python
std::span<const EmbeddedFile> embedded_pages();    // src/page/templates/
std::span<const EmbeddedFile> embedded_records();  // records/

}  // namespace convtune
