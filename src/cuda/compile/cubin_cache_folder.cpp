// A file is one line, "convtune-cubin 1 KEY DIGEST", and the content whose SHA-256 is DIGEST. The digest
// finds damage; against malice stand the folder's owner and mode (private_file.h). A file's time is that of
// its last use.
#include "cuda/compile/cubin_cache_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <vector>

#include "base/sha256.h"
#include "convtune/error.h"

namespace convtune::cuda {
namespace {

namespace fs = std::filesystem;

std::string header(const std::string& key, std::string_view content) {
  return fmt::format("convtune-cubin 1 {} {}\n", key, sha256(content));
}

constexpr std::string_view kExtension = ".cubin";
constexpr WayOut kWayOut{"CONVTUNE_CACHE_DIR", false};
constexpr std::chrono::hours kNoted{1};  // a use is written down once in so long

std::string file_name(const std::string& key) {
  return fmt::format("{}{}", key, kExtension);
}

struct Entry {
  std::string name;
  FileFacts facts;
};

std::vector<Entry> entries(const PrivateFolder& folder) {
  std::vector<Entry> found;
  for (std::string& name : folder.names()) {
    const std::size_t digits = std::min(name.find_first_not_of("0123456789abcdef"), name.size());
    if (digits != 64 || std::string_view(name).substr(digits) != kExtension) continue;
    if (const auto facts = folder.facts(name)) found.push_back({std::move(name), *facts});
  }
  return found;
}

// Looking at a whole folder is dear, so only one store in many does it: once in about 1/64 of the limit
// written, by whichever processes. The key, a digest, is as good as a die, and no count has to be kept
// anywhere.
bool is_time_to_look(const std::string& key, std::size_t bytes, std::int64_t limit_bytes) {
  std::uint32_t die = 0;
  std::from_chars(key.data(), key.data() + std::min<std::size_t>(key.size(), 8), die, 16);
  return std::ldexp(die, -32) * static_cast<double>(limit_bytes) < 64 * static_cast<double>(bytes);
}

}  // namespace

std::filesystem::path CubinCache::default_folder() {
  return user_folder("CONVTUNE_CACHE_DIR", "XDG_CACHE_HOME", ".cache");
}

CubinCache::CubinCache(std::filesystem::path folder, std::int64_t limit_bytes)
    : folder_(std::move(folder)), limit_bytes_(limit_bytes) {}

std::optional<std::string> CubinCache::find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  const auto folder = PrivateFolder::open(folder_, kWayOut);
  if (!folder) return std::nullopt;
  std::optional<std::string> text = folder->read(file_name(key), kMaxFileBytes);
  if (!text) return std::nullopt;
  const std::size_t begin = std::min(text->find('\n'), text->size() - 1) + 1;  // for the content
  if (text->empty() ||
      std::string_view(*text).substr(0, begin) != header(key, std::string_view(*text).substr(begin))) {
    warn_once(folder_ / file_name(key), "is damaged; the kernel is compiled again");
    return std::nullopt;
  }
  text->erase(0, begin);
  const auto facts = folder->facts(file_name(key));
  if (facts && facts->written + kNoted < fs::file_time_type::clock::now()) folder->touch(file_name(key));
  return text;
}

void CubinCache::store(const std::string& key, std::string_view content) const {
  if (folder_.empty() || content.size() > kMaxFileBytes / 2) return;
  const std::string text = header(key, content).append(content);
  try {
    const PrivateFolder folder = PrivateFolder::create(folder_, kWayOut);
    folder.replace(file_name(key), text);
    if (is_time_to_look(key, text.size(), limit_bytes_)) trim(folder);
  } catch (const Error& error) {
    warn_once(folder_, error, "compiled kernels are not kept");
  }
}

// A tenth more than needed, so that the next look does not have to. Who has opened a file that goes reads it
// to its end, and who comes later compiles it again.
void CubinCache::trim(const PrivateFolder& folder) const {
  std::vector<Entry> kept = entries(folder);
  std::int64_t bytes = 0;
  for (const Entry& entry : kept) bytes += entry.facts.bytes;
  if (bytes <= limit_bytes_) return;
  std::sort(kept.begin(), kept.end(),
            [](const Entry& a, const Entry& b) { return a.facts.written < b.facts.written; });
  for (const Entry& entry : kept) {
    if (bytes <= limit_bytes_ - limit_bytes_ / 10) return;
    folder.remove(entry.name);
    bytes -= entry.facts.bytes;
  }
}

CubinCacheContents CubinCache::contents() const {
  CubinCacheContents found{folder_, 0, 0, limit_bytes_};
  if (folder_.empty()) return found;
  if (const auto folder = PrivateFolder::open(folder_, kWayOut))
    for (const Entry& entry : entries(*folder)) ++found.kernels, found.bytes += entry.facts.bytes;
  return found;
}

CubinCacheContents CubinCache::clean() const {
  CubinCacheContents deleted{folder_, 0, 0, limit_bytes_};
  if (folder_.empty()) return deleted;
  const auto folder = PrivateFolder::open(folder_, kWayOut);
  if (!folder) return deleted;
  folder->remove_left_overs();
  for (const Entry& entry : entries(*folder))
    if (folder->remove(entry.name)) ++deleted.kernels, deleted.bytes += entry.facts.bytes;
  return deleted;
}

}  // namespace convtune::cuda

namespace convtune {

CubinCacheContents cubin_cache_contents() {
  return cuda::CubinCache().contents();
}

CubinCacheContents clean_cubin_cache() {
  return cuda::CubinCache().clean();
}

}  // namespace convtune
