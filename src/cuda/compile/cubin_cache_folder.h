// Compiled kernels kept from one run to the next: one file a kernel, named by the digest of everything
// that the compiler saw. What cannot be trusted is a miss, with one warning (Database::take_warnings).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/private_file.h"
#include "convtune/cubin_cache.h"

namespace convtune::cuda {

class CubinCache {
 public:
  static constexpr std::int64_t kLimitBytes = std::int64_t{1} << 30;
  // $CONVTUNE_CACHE_DIR, $XDG_CACHE_HOME/convtune or ~/.cache/convtune; empty where there is no home, and
  // then everything is a miss.
  static std::filesystem::path default_folder();
  explicit CubinCache(std::filesystem::path folder = default_folder(),
                      std::int64_t limit_bytes = kLimitBytes);

  // Returns the module stored under a key (64 hexadecimal digits). Never throws.
  std::optional<std::string> find(const std::string& key) const;
  // Beside and renamed, so that a reader sees all of it or nothing. Never throws: a folder that cannot be
  // written is warned of once, and costs a compilation the next time.
  void store(const std::string& key, std::string_view content) const;

  CubinCacheContents contents() const;
  CubinCacheContents clean() const;  // the entries deleted. Throws Error{io}

 private:
  void trim(const PrivateFolder& folder) const;
  std::filesystem::path folder_;
  std::int64_t limit_bytes_;
};

}  // namespace convtune::cuda
