// System calls, each checked. Relative to an open folder wherever there is one: a path is looked up
// once, and a check of its owner cannot be overtaken by a rename.
#include "base/private_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/fork_gate.h"
#include "base/process_identity.h"

namespace convtune {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kLongestWrite{24};  // so old, a left-over is nobody's

bool is_absent(int error) {
  return error == ENOENT || error == ENOTDIR;
}

// Why a file or a folder is not used, and what to do about it. Nothing where it is used.
struct Doubt {
  std::string why = {}, what_to_do = {};
  bool is_absent = false;

  explicit operator bool() const { return !why.empty(); }
  std::string text(std::string_view what_follows) const {
    return fmt::format("{}{}{}{}", why, what_follows, what_to_do.empty() ? "" : "; ", what_to_do);
  }
};

// Tells whether this file or folder can be trusted. Root is trusted by everyone already. `what_to_do()` is
// about what belongs to others.
Doubt distrust(const struct stat& status, const auto& what_to_do) {
  const bool is_mine = status.st_uid == ::geteuid();
  if (!is_mine && status.st_uid != 0)
    return {fmt::format("belongs to another user (id {})", status.st_uid), what_to_do()};
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return {fmt::format("may be written by other users (mode {:o})", status.st_mode & 07777u),
          is_mine ? "chmod go-w makes it private" : what_to_do()};
}

// A folder that everybody may write to, above this one: anybody may put another folder in its place, unless a
// sticky bit forbids it (/tmp). Looked for on the way that the path goes and, where there are links on it, on
// the one that they lead to: planning from a record asks this, and waits for little else.
Doubt distrust_above(const fs::path& path, bool is_link, const WayOut& way_out) {
  bool has_links = is_link;
  const auto distrust_way = [&](std::string above) -> Doubt {
    for (std::size_t end; above.size() > 1 && (end = above.rfind('/')) != above.npos;) {
      above.resize(std::max<std::size_t>(end, 1));
      struct stat status {};
      bool is_there = ::lstat(above.c_str(), &status) == 0;
      if (is_there && S_ISLNK(status.st_mode)) {
        has_links = true;
        is_there = ::stat(above.c_str(), &status) == 0;
      }
      if (is_there && (status.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH)
        return {fmt::format("may be exchanged by other users: {} above it is everybody's (mode {:o})", above,
                            status.st_mode & 07777u),
                fmt::format("chmod o-w or chmod +t on that one, or set {} to a folder elsewhere",
                            way_out.variable)};
    }
    return {};
  };
  std::error_code ignored;
  Doubt doubt = distrust_way(fs::absolute(path, ignored).string());
  if (!doubt && has_links) doubt = distrust_way(fs::weakly_canonical(path, ignored).string());
  return doubt;
}

std::string what_to_do(const fs::path& folder, const WayOut& way_out) {
  std::string text = fmt::format("set {} to a folder of your own", way_out.variable);
  if (way_out.records)
    text +=
        fmt::format(", into which `convtune db import {}/*.json` then takes its records", folder.string());
  return text;
}

// An open folder that can be trusted, or -1 and why not.
int open_folder(const fs::path& path, const WayOut& way_out, Doubt& doubt) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  const int not_a_link = ::open(path.c_str(), kFlags | O_NOFOLLOW);
  Fd fd(not_a_link >= 0 ? not_a_link : ::open(path.c_str(), kFlags));
  struct stat status {};
  if (!fd.ok() || ::fstat(fd.get(), &status) != 0) {
    doubt = {reason(errno), what_to_do(path, way_out), is_absent(errno)};
    return -1;
  }
  doubt = distrust(status, [&] { return what_to_do(path, way_out); });
  if (!doubt) doubt = distrust_above(path, not_a_link < 0, way_out);
  return doubt ? -1 : fd.release();
}

// Makes a folder with those above it. Empty, or what stopped it: the first that could not be made.
std::string make_folders(const fs::path& path) {
  fs::path made;
  for (const fs::path& part : path) {
    made /= part;
    if (::mkdir(made.c_str(), 0700) == 0) continue;
    const int error = errno;
    struct stat status {};
    const bool is_there = ::stat(made.c_str(), &status) == 0;
    if (is_there && S_ISDIR(status.st_mode)) continue;
    const std::string why = is_there ? "is not a folder" : reason(error);
    if (made == path) return is_there ? why : "cannot be made: " + why;
    return fmt::format("cannot be made: {}{} {}", made.string(), is_there ? "" : ":", why);
  }
  return {};
}

// Tells whether this process has not yet come to a folder to write.
bool is_first_visit(const fs::path& folder) {
  static constinit Mutex mutex;
  auto& visited = once([] { return std::set<fs::path>(); });
  const std::lock_guard lock(mutex);
  return visited.insert(folder).second;
}

void for_each_name(int folder, const auto& action) {
  // A second descriptor, since reading a folder moves its place.
  Fd again(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const opened = again.ok() ? ::fdopendir(again.get()) : nullptr;
  if (opened == nullptr) return;
  again.release();  // closedir closes it
  const std::unique_ptr<DIR, int (*)(DIR*)> closer(opened, &::closedir);
  while (const dirent* entry = ::readdir(opened)) action(std::string(entry->d_name));
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

constinit Mutex warnings_mutex;
std::set<std::string> warned_paths;
std::vector<std::string> pending_warnings;

}  // namespace

void warn_once(const fs::path& path, const std::string& why) {
  const std::lock_guard lock(warnings_mutex);
  if (warned_paths.insert(path.string()).second)
    pending_warnings.push_back(fmt::format("{}: {}", path.string(), why));
}

void warn_once(const fs::path& path, const Error& error, std::string_view what_follows) {
  const std::lock_guard lock(warnings_mutex);
  if (warned_paths.insert(path.string()).second)
    pending_warnings.push_back(fmt::format("{}; {}", error.what(), what_follows));
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

PrivateFolder::PrivateFolder(int fd, fs::path path, WayOut way_out)
    : fd_(fd), path_(std::move(path)), way_out_(way_out) {}
PrivateFolder::PrivateFolder(PrivateFolder&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), way_out_(other.way_out_) {}
PrivateFolder::~PrivateFolder() {
  if (fd_ >= 0) ::close(fd_);
}

std::optional<PrivateFolder> PrivateFolder::open(const fs::path& path, WayOut way_out) {
  Doubt doubt;
  const int fd = open_folder(path, way_out, doubt);
  if (fd >= 0) return PrivateFolder(fd, path, way_out);
  if (!doubt.is_absent) warn_once(path, doubt.text("; what is in it is not used"));
  return std::nullopt;
}

PrivateFolder PrivateFolder::create(const fs::path& path, WayOut way_out) {
  if (path.empty())
    throw Error(ErrorKind::io, "there is no home folder to keep records in; set CONVTUNE_DATA_DIR");
  std::error_code ignored;
  Doubt doubt = distrust_above(path, fs::is_symlink(path, ignored), way_out);
  if (!doubt) doubt = {make_folders(path), fmt::format("set {} to a folder of your own", way_out.variable)};
  const int fd = doubt ? -1 : open_folder(path, way_out, doubt);
  if (fd < 0) throw_io(path, doubt.text(""));
  return PrivateFolder(fd, path, way_out);
}

std::optional<std::string> PrivateFolder::read(const std::string& name, std::size_t max_bytes) const {
  const auto refuse = [&](const Doubt& doubt) -> std::optional<std::string> {
    warn_once(path_ / name, doubt.text("; it is not used"));
    return std::nullopt;
  };
  // Non-blocking, so that a pipe in the place of a file does not hold the caller up.
  const Fd file(::openat(fd_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.ok()) {
    if (is_absent(errno)) return std::nullopt;
    return refuse({errno == ELOOP ? "is a symbolic link" : reason(errno)});
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return refuse({reason(errno)});
  if (!S_ISREG(status.st_mode)) return refuse({"is not a regular file"});
  const auto what_to_do = [&] {
    return way_out_.records ? fmt::format("`convtune db import {}` takes it over", (path_ / name).string())
                            : std::string();
  };
  if (const Doubt doubt = distrust(status, what_to_do)) return refuse(doubt);
  std::optional<std::string> text = read_all(file.get(), max_bytes);
  if (!text)
    return refuse({errno == EFBIG ? fmt::format("has more than {} bytes", max_bytes) : reason(errno)});
  return text;
}

void PrivateFolder::replace(const std::string& name, std::string_view text) const {
  if (is_first_visit(path_)) remove_left_overs();
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
  if (const Doubt doubt = distrust(status, [] { return ""; })) throw_io(path, doubt.text(""));
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

void PrivateFolder::remove_left_overs() const {
  for_each_name(fd_, [&](const std::string& name) {
    if (!name.starts_with(kLeftOver)) return;
    const std::string_view rest = std::string_view(name).substr(kLeftOver.size());
    const Life life = life_of(rest.substr(0, rest.rfind('-')));
    const auto left = facts(name);
    if (life == Life::living || !left) return;
    if (life == Life::dead || left->written + kLongestWrite < fs::file_time_type::clock::now())
      ::unlinkat(fd_, name.c_str(), 0);
  });
}

std::vector<std::string> PrivateFolder::names() const {
  std::vector<std::string> names;
  for_each_name(fd_, [&](std::string name) { names.push_back(std::move(name)); });
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<FileFacts> PrivateFolder::facts(const std::string& name) const {
  struct stat status {};
  if (::fstatat(fd_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode))
    return std::nullopt;
  const auto since_1970 =
      std::chrono::seconds(status.st_mtim.tv_sec) + std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  return FileFacts{status.st_size, std::chrono::file_clock::from_sys(
                                       std::chrono::sys_time<std::chrono::nanoseconds>(since_1970))};
}

void PrivateFolder::touch(const std::string& name) const {
  ::utimensat(fd_, name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

PrivateFolder::Lock::~Lock() {
  if (fd_ >= 0) ::flock(fd_, LOCK_UN);  // not by closing: a child of a fork may hold the folder open
}

PrivateFolder::Lock PrivateFolder::lock(double seconds) const {
  const auto start = std::chrono::steady_clock::now();
  const auto time_is_up = [&] {
    return std::chrono::steady_clock::now() - start >= std::chrono::duration<double>(seconds);
  };
  while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    const bool is_held = errno == EWOULDBLOCK;
    if (is_held && !has_waited_ && !time_is_up()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    has_waited_ = true;
    warn_once(path_ / "lock",
              is_held ? "another process keeps the folder locked; written without waiting for it any longer"
                      : reason(errno) + "; of two that write at once the slower record may stay");
    return Lock(-1);
  }
  return Lock(fd_);
}

}  // namespace convtune
