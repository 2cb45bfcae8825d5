// Follows #include "..." lines through a flat folder: names are never paths.
#include "cuda/compile/kernel_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/embedded.h"
#include "base/named_file.h"
#include "base/sha256.h"
#include "convtune/error.h"

namespace convtune::cuda {
namespace {

std::string read_source(const std::string& name) {
  if (const char* folder = ::secure_getenv("CONVTUNE_KERNEL_DIR"); folder != nullptr && *folder != '\0')
    return read_named_file(std::filesystem::path(folder) / name);
  for (const EmbeddedFile& file : embedded_kernels())
    if (file.name == name) return std::string(file.text);
  throw Error(ErrorKind::io, fmt::format("there is no kernel file {} in this build", name));
}

// The name in a line `#include "name"`.
std::optional<std::string> included_name(std::string_view line) {
  const auto skip = [&](std::string_view word) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (!line.starts_with(word)) return false;
    line.remove_prefix(word.size());
    return true;
  };
  if (!skip("#") || !skip("include") || !skip("\"")) return std::nullopt;
  const std::size_t end = line.find('"');
  if (end == line.npos) return std::nullopt;
  return std::string(line.substr(0, end));
}

}  // namespace

std::vector<KernelSource> kernel_sources(const std::string& file) {
  std::vector<KernelSource> sources = {{file, read_source(file)}};
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::string text = sources[i].text;  // a copy: the vector grows below
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const auto name = included_name(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
      if (!name) continue;
      const auto same = [&](const KernelSource& source) { return source.name == *name; };
      if (std::none_of(sources.begin(), sources.end(), same)) sources.push_back({*name, read_source(*name)});
    }
  }
  return sources;
}

std::string kernel_source_hash(const std::string& file) {
  std::string all;
  for (const KernelSource& source : kernel_sources(file))
    all += fmt::format("{} {}\n{}", source.name, source.text.size(), source.text);
  return sha256(all).substr(0, 16);
}

}  // namespace convtune::cuda
