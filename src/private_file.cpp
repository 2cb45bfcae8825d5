// System calls, each checked. Relative to an open folder wherever there is one: a path is looked up
// once, and a check of its owner cannot be overtaken by a rename.
#include "private_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "convtune/error.h"

namespace convtune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLeftOver = ".new-";

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::string reason(int error) {
  return std::generic_category().message(error);
}

[[noreturn]] void throw_io(const fs::path& path, const std::string& why) {
  throw Error(ErrorKind::io, fmt::format("{}: {}", path.string(), why));
}

bool is_absent(int error) {
  return error == ENOENT || error == ENOTDIR;
}

// Why this file or folder cannot be trusted; empty if it can. Root is trusted by everyone already.
std::string distrust(const struct stat& status) {
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    return fmt::format("belongs to another user (id {})", status.st_uid);
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fmt::format("may be written by other users (mode {:o}); chmod go-w makes it private",
                       status.st_mode & 07777u);
  return {};
}

// An open folder that can be trusted, or -1 and why not; `why` stays empty where there is none.
int open_folder(const fs::path& path, std::string& why) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) {
    if (!is_absent(errno)) why = reason(errno);
    return -1;
  }
  struct stat status {};
  why = ::fstat(fd.get(), &status) != 0 ? reason(errno) : distrust(status);
  return why.empty() ? fd.release() : -1;
}

// All of an open file; empty with errno where reading fails, EFBIG where it is longer than max_bytes.
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

// Some file systems have no fsync; they say EINVAL, and a rename is the best they can do.
bool make_durable(int fd) {
  return ::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
}

// Writes beside `name` in the folder and renames; leaves nothing behind when it fails.
void replace_in(int folder, const fs::path& path, const std::string& name, std::string_view text,
                mode_t mode) {
  static std::atomic<unsigned> counter{0};
  std::string beside;
  int opened = -1;
  do {  // a name is taken only by what a killed process of the same id has left
    beside = fmt::format("{}{}-{}", kLeftOver, ::getpid(), counter++);
    opened = ::openat(folder, beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  } while (opened < 0 && errno == EEXIST);
  if (opened < 0) throw_io(path, fmt::format("cannot be written: {}", reason(errno)));
  Fd file(opened);
  int error = write_all(file.get(), text) && make_durable(file.get()) ? 0 : errno;
  if (::close(file.release()) != 0 && error == 0) error = errno;  // a network disk may say no only here
  if (error == 0 && ::renameat(folder, beside.c_str(), folder, name.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlinkat(folder, beside.c_str(), 0);
    throw_io(path, fmt::format("cannot be written, and is as it was: {}", reason(error)));
  }
  make_durable(folder);  // a crash before this may bring the old text back, whole
}

// An absolute path in the environment; XDG says that a relative one is to be ignored. Nothing in a
// program that runs with more rights than its caller.
std::optional<fs::path> folder_from_environment(const char* name) {
  const char* value = ::secure_getenv(name);
  if (value == nullptr || !fs::path(value).is_absolute()) return std::nullopt;
  return fs::path(value);
}

std::optional<fs::path> home_of_user() {
  passwd entry{}, *found = nullptr;
  std::string buffer(16384, '\0');
  if (::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr ||
      found->pw_dir == nullptr || !fs::path(found->pw_dir).is_absolute())
    return std::nullopt;
  return fs::path(found->pw_dir);
}

std::mutex warnings_mutex;
std::set<std::string> warned_paths;
std::vector<std::string> pending_warnings;

}  // namespace

void warn_once(const fs::path& path, const std::string& why) {
  const std::lock_guard lock(warnings_mutex);
  if (warned_paths.insert(path.string()).second)
    pending_warnings.push_back(fmt::format("{}: {}", path.string(), why));
}

std::vector<std::string> take_warnings() {
  const std::lock_guard lock(warnings_mutex);
  return std::exchange(pending_warnings, {});
}

fs::path user_folder(const char* own_variable, const char* xdg_variable, const char* below_home) {
  if (const char* value = ::secure_getenv(own_variable); value != nullptr && *value != '\0') return value;
  if (const auto base = folder_from_environment(xdg_variable)) return *base / "convtune";
  auto home = folder_from_environment("HOME");
  if (!home) home = home_of_user();
  return home ? *home / below_home / "convtune" : fs::path();
}

PrivateFolder::PrivateFolder(int fd, fs::path path) : fd_(fd), path_(std::move(path)) {}
PrivateFolder::PrivateFolder(PrivateFolder&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
PrivateFolder::~PrivateFolder() {
  if (fd_ >= 0) ::close(fd_);
}

std::optional<PrivateFolder> PrivateFolder::open(const fs::path& path) {
  std::string why;
  const int fd = open_folder(path, why);
  if (fd >= 0) return PrivateFolder(fd, path);
  if (!why.empty()) warn_once(path, fmt::format("{}; what is in it is not used", why));
  return std::nullopt;
}

PrivateFolder PrivateFolder::create(const fs::path& path) {
  if (path.empty())
    throw Error(ErrorKind::io, "there is no home folder to keep records in; set CONVTUNE_DATA_DIR");
  fs::path made;
  int error = ENOENT;
  for (const fs::path& part : path)
    if (::mkdir((made /= part).c_str(), 0700) != 0 && errno != EEXIST) error = errno;
  std::string why;
  const int fd = open_folder(path, why);
  if (fd < 0) throw_io(path, why.empty() ? fmt::format("the folder cannot be made: {}", reason(error)) : why);
  return PrivateFolder(fd, path);
}

std::optional<std::string> PrivateFolder::read(const std::string& name, std::size_t max_bytes) const {
  const auto refuse = [&](const std::string& why) -> std::optional<std::string> {
    warn_once(path_ / name, fmt::format("{}; it is not used", why));
    return std::nullopt;
  };
  // Non-blocking, so that a pipe in the place of a file does not hold the caller up.
  const Fd file(::openat(fd_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.ok()) {
    if (is_absent(errno)) return std::nullopt;
    return refuse(errno == ELOOP ? "is a symbolic link" : reason(errno));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return refuse(reason(errno));
  if (!S_ISREG(status.st_mode)) return refuse("is not a regular file");
  if (const std::string why = distrust(status); !why.empty()) return refuse(why);
  std::optional<std::string> text = read_all(file.get(), max_bytes);
  if (!text) return refuse(errno == EFBIG ? fmt::format("has more than {} bytes", max_bytes) : reason(errno));
  return text;
}

void PrivateFolder::replace(const std::string& name, std::string_view text) const {
  replace_in(fd_, path_ / name, name, text, 0600);
}

void PrivateFolder::append_line(const std::string& name, std::string_view line) const {
  const fs::path path = path_ / name;
  const Fd file(
      ::openat(fd_, name.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat status {};
  if (!file.ok() || ::fstat(file.get(), &status) != 0)
    throw_io(path, errno == ELOOP ? "is a symbolic link" : reason(errno));
  if (!S_ISREG(status.st_mode)) throw_io(path, "is not a regular file");
  if (const std::string why = distrust(status); !why.empty()) throw_io(path, why);
  char last = '\n';
  if (status.st_size > 0 && ::pread(file.get(), &last, 1, status.st_size - 1) != 1)
    throw_io(path, reason(errno));
  const std::string text = fmt::format("{}{}\n", last == '\n' ? "" : "\n", line);
  const ssize_t put = ::write(file.get(), text.data(), text.size());
  if (put < 0) throw_io(path, fmt::format("cannot be written: {}", reason(errno)));
  if (static_cast<std::size_t>(put) != text.size()) throw_io(path, "cannot be written: the disk is full");
}

bool PrivateFolder::remove(const std::string& name) const {
  if (::unlinkat(fd_, name.c_str(), 0) == 0) return true;
  if (errno != ENOENT) throw_io(path_ / name, fmt::format("cannot be removed: {}", reason(errno)));
  return false;
}

std::vector<std::string> PrivateFolder::names() const {
  std::vector<std::string> names;
  // A second descriptor, since reading a folder moves its place.
  Fd again(::openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* folder = again.ok() ? ::fdopendir(again.get()) : nullptr;
  if (folder == nullptr) return names;
  again.release();  // closedir closes it
  const std::unique_ptr<DIR, int (*)(DIR*)> closer(folder, &::closedir);
  while (const dirent* entry = ::readdir(folder)) names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

bool PrivateFolder::is_left_over(std::string_view name) {
  return name.starts_with(kLeftOver);
}

std::string read_named_file(const fs::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
  std::optional<std::string> text;
  if (file.ok()) text = read_all(file.get(), kMaxFileBytes);
  if (!text)
    throw_io(path, errno == EFBIG ? fmt::format("has more than {} bytes", kMaxFileBytes)
                                  : fmt::format("cannot be read: {}", reason(errno)));
  return *std::move(text);
}

void write_named_file(const fs::path& path, std::string_view text) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    const Fd file(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
    if (!file.ok() || !write_all(file.get(), text))
      throw_io(path, fmt::format("cannot be written: {}", reason(errno)));
    return;
  }
  // Through a link, the file that it points to is replaced, not the link.
  const fs::path real = fs::exists(status) ? fs::canonical(path, ignored) : path;
  const fs::path parent = real.has_parent_path() ? real.parent_path() : fs::path(".");
  const Fd folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.ok()) throw_io(path, fmt::format("cannot be written: {}", reason(errno)));
  replace_in(folder.get(), path, real.filename().string(), text, 0666);
}

}  // namespace convtune
