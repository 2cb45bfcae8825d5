// "BOOT.NAMESPACE.PID.START": the kernel's number of this boot, the namespace that process ids count in (a
// container has its own), the process id, and when the process began, in ticks since the boot: ids are used
// again.
#include "base/process_identity.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>

namespace convtune {
namespace {

struct Process {
  char state = 0;     // 'Z': dead, and not yet waited for by its parent
  std::string start;  // empty where it cannot be read
};

Process process(pid_t id) {
  std::ifstream file(fmt::format("/proc/{}/stat", id));
  std::string text;
  std::getline(file, text, '\0');
  // "ID (NAME) STATE PARENT ...": the name may hold anything; of what follows it the 20th word is the start.
  constexpr int kStart = 20;
  std::size_t at = text.rfind(") ");
  if (at == text.npos) return {};
  Process found{text[at + 2], {}};
  for (int word = 1; word <= kStart && at != text.npos; ++word) at = text.find(' ', at + 1);
  if (at != text.npos) found.start = text.substr(at + 1, text.find(' ', at + 1) - at - 1);
  return found;
}

std::string boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

// The number in "pid:[4026531836]".
std::string name_space() {
  char link[64];
  const ssize_t length = ::readlink("/proc/self/ns/pid", link, sizeof link);
  std::string digits;
  for (ssize_t i = 0; i < length; ++i)
    if (link[i] >= '0' && link[i] <= '9') digits += link[i];
  return digits;
}

std::string where() {
  const std::string booted = boot(), counted_in = name_space();
  return booted.empty() || counted_in.empty() ? "." : booted + '.' + counted_in;
}

}  // namespace

std::string process_identity() {
  return fmt::format("{}.{}.{}", where(), ::getpid(), process(::getpid()).start);
}

Life life_of(std::string_view identity) {
  const std::size_t start_at = identity.rfind('.'), id_at = identity.rfind('.', start_at - 1);
  if (start_at == identity.npos || id_at == identity.npos || id_at == 0) return Life::unknown;
  const std::string here = where();
  if (here == "." || identity.substr(0, id_at) != here) return Life::unknown;
  const std::string_view digits = identity.substr(id_at + 1, start_at - id_at - 1);
  pid_t id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  if (error != std::errc() || end != digits.data() + digits.size() || id <= 0) return Life::unknown;
  if (::kill(id, 0) != 0 && errno == ESRCH) return Life::dead;
  const Process now = process(id);
  if (now.start.empty()) return Life::unknown;
  return now.state != 'Z' && now.state != 'X' && now.start == identity.substr(start_at + 1) ? Life::living
                                                                                            : Life::dead;
}

}  // namespace convtune
