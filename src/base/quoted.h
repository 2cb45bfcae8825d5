// Text from outside as an error message shows it: quoted, shortened, unprintable bytes as \xNN.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace convtune {

inline std::string quoted(std::string_view text, std::size_t max_bytes = 60) {
  std::string result = "'";
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f)
      result += fmt::format("\\x{:02x}", byte);
    else
      result += c;
  }
  return result + (text.size() > max_bytes ? "…'" : "'");
}

}  // namespace convtune
