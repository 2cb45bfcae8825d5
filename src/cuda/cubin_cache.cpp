// A file is one line, "convtune-cubin 1 KEY DIGEST", and the content whose SHA-256 is DIGEST. The digest
// finds damage; against malice stand the folder's owner and mode (private_file.h).
#include "cuda/cubin_cache.h"

#include <fmt/format.h>

#include "convtune/error.h"
#include "private_file.h"
#include "sha256.h"

namespace convtune::cuda {
namespace {

std::string header(const std::string& key, std::string_view content) {
  return fmt::format("convtune-cubin 1 {} {}\n", key, sha256(content));
}

std::string file_name(const std::string& key) {
  return key + ".cubin";
}

}  // namespace

std::filesystem::path CubinCache::default_folder() {
  return user_folder("CONVTUNE_CACHE_DIR", "XDG_CACHE_HOME", ".cache");
}

CubinCache::CubinCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

std::optional<std::string> CubinCache::find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  const auto folder = PrivateFolder::open(folder_);
  if (!folder) return std::nullopt;
  std::optional<std::string> text = folder->read(file_name(key), kMaxFileBytes);
  if (!text) return std::nullopt;
  const std::size_t begin = std::min(text->find('\n'), text->size() - 1) + 1;  // of the content
  if (text->empty() ||
      std::string_view(*text).substr(0, begin) != header(key, std::string_view(*text).substr(begin))) {
    warn_once(folder_ / file_name(key), "is damaged; the kernel is compiled again");
    return std::nullopt;
  }
  text->erase(0, begin);
  return text;
}

void CubinCache::store(const std::string& key, std::string_view content) const {
  if (folder_.empty() || content.size() > kMaxFileBytes / 2) return;
  try {
    PrivateFolder::create(folder_).replace(file_name(key), header(key, content).append(content));
  } catch (const Error& error) {
    warn_once(folder_, fmt::format("compiled kernels are not kept: {}", error.what()));
  }
}

}  // namespace convtune::cuda
