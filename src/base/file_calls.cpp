// System calls, each checked.
#include "base/file_calls.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "base/process_identity.h"
#include "convtune/error.h"

namespace convtune {
namespace {

namespace fs = std::filesystem;

// Some file systems have no fsync; they say EINVAL, and a rename is the best they can do.
bool make_durable(int fd) {
  return ::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

std::string reason(int error) {
  return std::generic_category().message(error);
}

void throw_io(const fs::path& path, const std::string& why) {
  throw Error(ErrorKind::io, fmt::format("{}: {}", path.string(), why));
}

std::optional<std::string> read_all(int fd, std::size_t max_bytes) {
  std::string text;
  char chunk[16384];
  while (true) {
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) return text;
    text.append(chunk, static_cast<std::size_t>(got));
    if (text.size() > max_bytes) {
      errno = EFBIG;
      return std::nullopt;
    }
  }
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

void replace_in(int folder, const fs::path& path, const std::string& name, std::string_view text, mode_t mode,
                const struct stat* before) {
  if (before) mode = 0600;
  static std::atomic<unsigned> counter{0};
  std::string beside;
  int opened = -1;
  do {  // a name is taken only where process_identity() could not tell this process from one before
    beside = fmt::format("{}{}-{}", kLeftOver, process_identity(), counter++);
    opened = ::openat(folder, beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  } while (opened < 0 && errno == EEXIST);
  if (opened < 0) throw_io(path, fmt::format("cannot be written: {}", reason(errno)));
  Fd file(opened);
  const bool belongs = before && ::fchown(file.get(), before->st_uid, before->st_gid) == 0;
  int error = (!belongs || ::fchmod(file.get(), before->st_mode & 07777) == 0) &&
                      write_all(file.get(), text) && make_durable(file.get())
                  ? 0
                  : errno;
  if (::close(file.release()) != 0 && error == 0) error = errno;  // a network disk may say no only here
  if (error == 0 && ::renameat(folder, beside.c_str(), folder, name.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlinkat(folder, beside.c_str(), 0);
    throw_io(path, fmt::format("cannot be written, and is as it was: {}", reason(error)));
  }
  make_durable(folder);  // a crash before this may bring the old text back, whole
}

}  // namespace convtune
