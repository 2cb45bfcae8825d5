// Files that only this user (or root) may have written: read and replaced so that neither another
// user, a planted link, a full disk nor a kill can put something else in their place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_calls.h"
#include "convtune/error.h"

namespace convtune {

// Collected for Database::take_warnings; a path is warned of once in a process.
void warn_once(const std::filesystem::path& path, const std::string& why);
// Warns once of an error, which names its file itself, and of what follows from it.
void warn_once(const std::filesystem::path& path, const Error& error, std::string_view what_follows);
std::vector<std::string> take_warnings();

// Returns the folder of a user's files of one kind: $own_variable; else convtune below $xdg_variable; else
// convtune below
// ~/below_home. Empty where there is no home. Nothing from the environment of a program that runs with more
// rights than its caller.
std::filesystem::path user_folder(const char* own_variable, const char* xdg_variable, const char* below_home);

// Holds the advice that messages give about a folder that cannot be used, or about a file in it.
struct WayOut {
  const char* variable = "CONVTUNE_DATA_DIR";  // names another folder
  bool records = false;                        // what lies in it can be imported
};

struct FileFacts {
  std::int64_t bytes = 0;
  std::filesystem::file_time_type written;
};

// A folder held open, so that what was checked is what is used. Names are names in it, not paths.
class PrivateFolder {
 public:
  // Nothing if it is not there, or, with one warning, if it is not safe: another user owns it or may write to
  // it, or everybody may put another in its place (docs/decisions/0024-files-that-processes-share.md).
  static std::optional<PrivateFolder> open(const std::filesystem::path& path, WayOut way_out = {});
  // Made with its parents, mode 0700, where it is not there. Throws Error{io} naming it.
  static PrivateFolder create(const std::filesystem::path& path, WayOut way_out = {});

  PrivateFolder(PrivateFolder&& other) noexcept;
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder();

  const std::filesystem::path& path() const { return path_; }
  // Nothing if it is not there, or, with one warning, if it cannot be trusted or read.
  std::optional<std::string> read(const std::string& name, std::size_t max_bytes) const;
  // Written beside, made durable, renamed: whatever happens, the name holds all of the old text or
  // all of the new. Throws Error{io} naming the file. A process's first call here removes left-overs, too.
  void replace(const std::string& name, std::string_view text) const;
  // One write(2) at the end, on a line of its own even where an earlier one was cut short. Throws.
  void append_line(const std::string& name, std::string_view line) const;
  // False if it was not there. Throws Error{io}.
  bool remove(const std::string& name) const;
  // Removes what killed writers have left beside files. Where nobody can know whether a writer still lives,
  // of another machine for one, it has a day.
  void remove_left_overs() const;
  std::vector<std::string> names() const;                         // sorted; left-overs among them
  std::optional<FileFacts> facts(const std::string& name) const;  // of a regular file
  void touch(const std::string& name) const;                      // as if written just now, where that may be

  // While it lives, no other process or thread holds one of the same folder.
  class Lock {
   public:
    explicit Lock(int fd) : fd_(fd) {}
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock();

   private:
    int fd_;  // the folder's, which must outlive it; -1 where nothing is held
  };
  // Never waits for ever: after so long (only once), or where the file system has no locks, it warns and goes
  // on without. On a network file system it may hold among the processes of one machine alone.
  [[nodiscard]] Lock lock(double seconds = 10) const;

 private:
  PrivateFolder(int fd, std::filesystem::path path, WayOut way_out);
  int fd_ = -1;
  std::filesystem::path path_;
  WayOut way_out_;
  mutable bool has_waited_ = false;  // for a lock, in vain
};

}  // namespace convtune
