// Texts that tests make of others, and look into.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace convtune {

// The text with the first `from` replaced, which must be there.
inline std::string with(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

inline void expect_in(const std::string& text, std::initializer_list<const char*> needles) {
  for (const char* needle : needles)
    EXPECT_NE(text.find(needle), text.npos) << "no '" << needle << "' in: " << text;
}

}  // namespace convtune
