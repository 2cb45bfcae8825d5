// The compiled GPU kernels that are kept from one run to the next: how many, how large, and away with them.
#pragma once

#include <cstdint>
#include <filesystem>

#include "convtune/language.h"

namespace convtune {

struct CubinCacheContents {
  std::filesystem::path folder;  // empty where there is no home for it
  std::int64_t kernels = 0, bytes = 0;
  std::int64_t limit_bytes = 0;  // about: what was used longest ago goes first
};
CubinCacheContents cubin_cache_contents();

// Deletes the cache and returns its size. A deleted kernel is compiled again when it is needed. Throws
// Error{io}.
CubinCacheContents clean_cubin_cache();

}  // namespace convtune
