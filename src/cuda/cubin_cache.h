// Compiled kernels kept from one run to the next: one file a kernel, named by the digest of everything
// that the compiler saw. What cannot be trusted is a miss, with one warning (Database::take_warnings).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace convtune::cuda {

class CubinCache {
 public:
  // $CONVTUNE_CACHE_DIR, $XDG_CACHE_HOME/convtune or ~/.cache/convtune; empty where there is no home, and
  // then everything is a miss.
  static std::filesystem::path default_folder();
  explicit CubinCache(std::filesystem::path folder = default_folder());

  // What was stored under a key (64 hexadecimal digits). Never throws.
  std::optional<std::string> find(const std::string& key) const;
  // Beside and renamed, so that a reader sees all of it or nothing. Never throws: a folder that cannot be
  // written is warned of once, and costs a compilation the next time.
  void store(const std::string& key, std::string_view content) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace convtune::cuda
