// Wraps the calls that files of every kind need: open descriptors, whole reads and writes, and replacing a
// file by one written beside it.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace convtune {

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

std::string reason(int error);  // errno's, in words
// Error{io} naming the file.
[[noreturn]] void throw_io(const std::filesystem::path& path, const std::string& why);

// All of an open file; empty with errno where reading fails, EFBIG where it is longer than max_bytes.
std::optional<std::string> read_all(int fd, std::size_t max_bytes);
bool write_all(int fd, std::string_view text);  // or false with errno

// Suffix of a file that is written beside its final place: this, process_identity() and a number.
constexpr std::string_view kLeftOver = ".new-";
// Writes beside `name` in the open folder, makes it durable, renames; leaves nothing behind when it fails.
// Throws Error{io} naming `path`. A file that was there may be passed: the new one has its owner, group and
// mode, or where they cannot be had is for its owner alone.
void replace_in(int folder, const std::filesystem::path& path, const std::string& name, std::string_view text,
                mode_t mode, const struct stat* before = nullptr);

}  // namespace convtune
