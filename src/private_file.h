// Files that only this user (or root) may have written: read and replaced so that neither another
// user, a planted link, a full disk nor a kill can put something else in their place.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convtune {

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;

// Collected for Database::take_warnings; a path is warned of once in a process.
void warn_once(const std::filesystem::path& path, const std::string& why);
std::vector<std::string> take_warnings();

// Where a user's files of one kind go: $own_variable; else convtune below $xdg_variable; else convtune below
// ~/below_home. Empty where there is no home. Nothing from the environment of a program that runs with more
// rights than its caller.
std::filesystem::path user_folder(const char* own_variable, const char* xdg_variable, const char* below_home);

// A folder held open, so that what was checked is what is used. Names are names in it, not paths.
class PrivateFolder {
 public:
  // Nothing if it is not there, or, with one warning, if it is not safe: another user owns it or may
  // write to it.
  static std::optional<PrivateFolder> open(const std::filesystem::path& path);
  // Made with its parents, mode 0700, where it is not there. Throws Error{io} naming it.
  static PrivateFolder create(const std::filesystem::path& path);

  PrivateFolder(PrivateFolder&& other) noexcept;
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder();

  // Nothing if it is not there, or, with one warning, if it cannot be trusted or read.
  std::optional<std::string> read(const std::string& name, std::size_t max_bytes) const;
  // Written beside, made durable, renamed: whatever happens, the name holds all of the old text or
  // all of the new. Throws Error{io} naming the file.
  void replace(const std::string& name, std::string_view text) const;
  // One write(2) at the end, on a line of its own even where an earlier one was cut short. Throws.
  void append_line(const std::string& name, std::string_view line) const;
  // False if it was not there. Throws Error{io}.
  bool remove(const std::string& name) const;
  std::vector<std::string> names() const;  // sorted; left-overs of killed writers among them
  static bool is_left_over(std::string_view name);

 private:
  PrivateFolder(int fd, std::filesystem::path path);
  int fd_ = -1;
  std::filesystem::path path_;
};

// A file that the user named, wherever it lies and whoever owns it. Throws Error{io}.
std::string read_named_file(const std::filesystem::path& path);
// The same for writing: a regular file is replaced whole; a device or a pipe is written to.
void write_named_file(const std::filesystem::path& path, std::string_view text);

}  // namespace convtune
