// Hashes that the build makes of the code of the CPU's algorithms (cmake/source_hashes.cmake).
#pragma once

#include <string_view>

namespace convtune::cpu {

// Changes when the code that an algorithm runs does: the files of its folder, and those of the folders below
// src/cpu/tile that they include. Empty for a name without a folder in src/cpu/algorithms.
std::string_view source_hash_of(std::string_view algorithm);

}  // namespace convtune::cpu
