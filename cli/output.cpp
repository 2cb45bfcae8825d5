// Messages, and files by write-beside-and-rename.
#include "output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>

#include "convtune/database.h"
#include "convtune/error.h"
#include "table.h"

namespace convtune::cli {
namespace {

namespace fs = std::filesystem;

Error cannot_write(const fs::path& path, int error) {
  return Error(ErrorKind::io, fmt::format("cannot write '{}': {}", path.string(), std::strerror(error)));
}

// Creates a file that was not there, or opens what is there if it is no regular file.
int open_for_writing(const fs::path& path, int flags, mode_t mode = 0600) {
  return ::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, mode);
}

// Gives a file the owner, group and mode of the one that it replaces, where there is one; where it may not,
// it is for its owner alone. 0 or errno.
int inherit_access(int fd, const fs::path& replaced) {
  struct stat before {};
  if (::stat(replaced.c_str(), &before) != 0) return 0;
  const bool belongs = ::fchown(fd, before.st_uid, before.st_gid) == 0;
  return ::fchmod(fd, belongs ? before.st_mode & 07777 : 0600) == 0 ? 0 : errno;
}

// 0 or errno.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// A message may have several lines; nothing else in it steers a terminal, and none of them passes for another
// message.
std::string printable_lines(std::string_view message) {
  std::string lines;
  for (std::size_t begin = 0; begin <= message.size();) {
    const std::size_t end = std::min(message.find('\n', begin), message.size());
    lines += (begin > 0 ? "\n  " : "") + printable(message.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

int stdout_error = 0;  // errno of the first of put()'s writes to standard output that failed

}  // namespace

void put(std::FILE* stream, std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0) return;
  if (stream == stdout && stdout_error == 0) stdout_error = errno;
}

void print_error(std::string_view message) {
  put(stderr, fmt::format("convtune: error: {}\n", printable_lines(message)));
}

void print_hint(std::string_view message) {
  put(stderr, fmt::format("convtune: hint: {}\n", printable_lines(message)));
}

void print_warning(std::string_view message) {
  static std::set<std::string, std::less<>> said;
  if (said.emplace(message).second)
    put(stderr, fmt::format("convtune: warning: {}\n", printable_lines(message)));
}

void print_library_warnings() {
  for (const std::string& warning : Database::take_warnings()) print_warning(warning);
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (path.empty() || is_stdout()) return;
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    if (fs::is_directory(status)) throw cannot_write(path_, EISDIR);
    if (::access(path_.c_str(), W_OK) != 0) throw cannot_write(path_, errno);
    return;  // /dev/null or a pipe: nothing to rename over
  }
  if (fs::exists(status)) {
    if (::access(path_.c_str(), W_OK) != 0) throw cannot_write(path_, errno);
    path_ = fs::canonical(path_);  // a link stays a link
  }
  beside_ = path_.parent_path() / fmt::format(".{}.{}.tmp", path_.filename().string(), ::getpid());
  const int fd = open_for_writing(beside_, O_CREAT | O_EXCL);
  if (fd < 0) throw cannot_write(path_, errno);
  ::close(fd);
  ::unlink(beside_.c_str());
}

void OutputFile::write(std::string_view text) const {
  if (path_.empty()) return;
  if (is_stdout()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return flush_stdout();
  }
  const bool in_place = beside_.empty();
  const fs::path& target = in_place ? path_ : beside_;
  std::error_code ignored;
  const int fd =
      open_for_writing(target, in_place ? 0 : O_CREAT | O_EXCL, fs::exists(path_, ignored) ? 0600 : 0666);
  if (fd < 0) throw cannot_write(path_, errno);
  int error = in_place ? 0 : inherit_access(fd, path_);
  if (error == 0) error = write_all(fd, text);
  if (error == 0 && !in_place && ::fsync(fd) != 0) error = errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && !in_place && ::rename(beside_.c_str(), path_.c_str()) != 0) error = errno;
  if (error == 0) return;
  if (!in_place) ::unlink(beside_.c_str());
  throw cannot_write(path_, error);
}

std::string counted(std::int64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

void flush_stdout() {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return;
  const int error = stdout_error != 0 ? stdout_error : errno != 0 ? errno : EIO;
  throw std::system_error(error, std::generic_category());
}

}  // namespace convtune::cli
