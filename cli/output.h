// The places where words go: messages on standard error, and result files that appear whole or not at all.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

namespace convtune::cli {

// Writes at once, and goes on where that fails: that standard error cannot be written nobody could be told,
// and of standard output flush_stdout() tells it at the end. For what must not be lost to it, as a search.
void put(std::FILE* stream, std::string_view text);

void print_error(std::string_view message);
void print_hint(std::string_view message);
// Each message once in a process.
void print_warning(std::string_view message);
// The library's warnings since the last call.
void print_library_warnings();

// A file to write results to. Made before the measuring, so that a path that cannot be written is
// found out before time is spent; written beside the target, and renamed.
// "-" is standard output; an empty path writes nothing; a device or pipe is written in place.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);  // throws Error{io}
  bool is_stdout() const { return path_ == "-"; }
  explicit operator bool() const { return !path_.empty(); }
  bool is_replaced() const { return !beside_.empty(); }  // whole, each time: it may be written more than once
  void write(std::string_view text) const;  // throws Error{io}; what was there before is still there then

 private:
  std::filesystem::path path_, beside_;
};

// "1 case", "2 cases".
std::string counted(std::int64_t count, std::string_view one, std::string_view many);

// A write to standard output that failed (a full disk, say) is seen here. Throws std::system_error, as
// fmt::print does.
void flush_stdout();

}  // namespace convtune::cli
