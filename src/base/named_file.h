// Files that the user named, wherever they lie and whoever owns them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/file_calls.h"

namespace convtune {

// All of it. Throws Error{io}.
std::string read_named_file(const std::filesystem::path& path);
// Reads a line at a time, so that its length is no matter.
class NamedFileLines {
 public:
  explicit NamedFileLines(const std::filesystem::path& path);
  // False after the last. Throws Error{io}, also where one is longer than kMaxFileBytes.
  bool next(std::string& line);

 private:
  std::filesystem::path path_;
  Fd file_;
  std::string buffer_;     // text that was read and is not used up
  std::size_t begin_ = 0;  // in buffer_
  bool ended_ = false;
};
// Writes `text` to a file that the user named: a regular file is replaced whole; a device or a pipe is
// written to.
void write_named_file(const std::filesystem::path& path, std::string_view text);

}  // namespace convtune
