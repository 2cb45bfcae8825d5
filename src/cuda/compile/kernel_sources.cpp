// Follows #include "..." lines through a flat folder: names are never paths.
#include "cuda/compile/kernel_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
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

// The end of the comment, or of the string or character literal, that begins at `begin`.
std::size_t end_of_comment_or_literal(std::string_view text, std::size_t begin) {
  if (text.substr(begin, 2) == "//") return std::min(text.find('\n', begin), text.size());
  if (text[begin] == '/') return std::min(text.find("*/", begin + 2), text.size() - 2) + 2;
  std::size_t end = begin + 1;
  while (end < text.size() && text[end] != text[begin]) end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

// A text without its comments, indentation and empty lines: none of them changes machine code.
std::string code_of(std::string_view text) {
  std::string code;
  const auto separate = [&](char space) {
    while (!code.empty() && code.back() == ' ') code.pop_back();
    if (!code.empty() && code.back() != '\n') code += space;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view two = text.substr(at, 2);
    const bool digit_separator =
        at > 0 && text[at] == '\'' && std::isxdigit(static_cast<unsigned char>(text[at - 1]));
    if (two == "//" || two == "/*") {
      separate(' '), at = end_of_comment_or_literal(text, at);
    } else if (text[at] == '"' || (text[at] == '\'' && !digit_separator)) {
      const std::size_t end = end_of_comment_or_literal(text, at);
      code += text.substr(at, end - at), at = end;
    } else if (std::isspace(static_cast<unsigned char>(text[at]))) {
      separate(text[at++] == '\n' ? '\n' : ' ');
    } else {
      code += text[at++];
    }
  }
  return code;
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
  for (const KernelSource& source : kernel_sources(file)) {
    const std::string code = code_of(source.text);
    all += fmt::format("{} {}\n{}", source.name, code.size(), code);
  }
  return sha256(all).substr(0, 16);
}

}  // namespace convtune::cuda
