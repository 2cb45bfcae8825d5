// SHA-256 (FIPS 180-4): names files by what is in them. It finds damage, not malice.
#pragma once

#include <string>
#include <string_view>

namespace convtune {

// 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace convtune
