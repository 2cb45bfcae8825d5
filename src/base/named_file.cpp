// Files of the user's choice: pipes and devices among them, and nothing is asked of their owner.
#include "base/named_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace convtune {

namespace fs = std::filesystem;

std::string read_named_file(const fs::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
  std::optional<std::string> text;
  if (file.ok()) text = read_all(file.get(), kMaxFileBytes);
  if (!text)
    throw_io(path, errno == EFBIG ? fmt::format("has more than {} bytes", kMaxFileBytes)
                                  : fmt::format("cannot be read: {}", reason(errno)));
  return *std::move(text);
}

NamedFileLines::NamedFileLines(const fs::path& path)
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC)) {
  if (!file_.ok()) throw_io(path, fmt::format("cannot be read: {}", reason(errno)));
}

bool NamedFileLines::next(std::string& line) {
  line.clear();
  while (true) {
    const std::size_t end = std::min(buffer_.find('\n', begin_), buffer_.size());
    line.append(buffer_, begin_, end - begin_);
    begin_ = end;
    if (begin_ < buffer_.size()) return ++begin_, true;
    if (ended_) return !line.empty();
    if (line.size() > kMaxFileBytes)
      throw_io(path_, fmt::format("has a line of more than {} bytes", kMaxFileBytes));
    buffer_.resize(std::size_t{1} << 16);
    ssize_t got = 0;
    do got = ::read(file_.get(), buffer_.data(), buffer_.size());
    while (got < 0 && errno == EINTR);
    if (got < 0) throw_io(path_, fmt::format("cannot be read: {}", reason(errno)));
    buffer_.resize(static_cast<std::size_t>(got));
    begin_ = 0;
    ended_ = got == 0;
  }
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
  if (fs::exists(status) && ::access(path.c_str(), W_OK) != 0)
    throw_io(path, fmt::format("cannot be written: {}", reason(errno)));
  const fs::path parent = real.has_parent_path() ? real.parent_path() : fs::path(".");
  const Fd folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.ok()) throw_io(path, fmt::format("cannot be written: {}", reason(errno)));
  struct stat before {};
  const bool is_there = ::fstatat(folder.get(), real.filename().c_str(), &before, 0) == 0;
  replace_in(folder.get(), path, real.filename().string(), text, 0666, is_there ? &before : nullptr);
}

}  // namespace convtune
