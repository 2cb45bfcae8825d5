// The identity that the linker gave a shared library (its GNU build ID), which tells two builds of one
// version apart wherever the file lies. Used by the cache of compiled kernels.
#pragma once

#include <filesystem>
#include <string>

namespace convtune {

// The build ID of an ELF file of this processor's kind as hexadecimal digits. Where the file has none, its
// size and time of change instead: "109338064 bytes of 1760564160". Empty where the file cannot be read.
// Never throws.
std::string build_id(const std::filesystem::path& file);

}  // namespace convtune
