// See process.h. Between fork and exec only what a signal handler may do is done: other threads may hold any
// lock.
#include "base/process.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/quoted.h"
#include "convtune/error.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace convtune {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostErrorBytes = 64 << 10;
constexpr int kPollMilliseconds = 50;  // between looks at `cancelled`

bool runs(const std::string& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(file.c_str(), X_OK) == 0;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// Returns errno if it cannot.
int become(const char* file, char* const* arguments, char* const* variables, int in, int out, int err) {
  ::signal(SIGINT, SIG_DFL), ::signal(SIGXFSZ, SIG_DFL), ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;  // blocked here, it would be blocked there
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(in, 0) >= 0 && ::dup2(out, 1) >= 0 && ::dup2(err, 2) >= 0) ::execve(file, arguments, variables);
  return errno;
}

}  // namespace

std::string find_program(const std::string& name, const std::vector<std::string>& folders) {
  if (name.empty() || name.find('/') != name.npos) return name;
  std::vector<std::string> all;
  const char* const path = std::getenv("PATH");
  for (std::string_view rest = path ? path : ""; !rest.empty();) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) all.emplace_back(rest.substr(0, end));  // an empty entry would be this folder: not wanted
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  all.insert(all.end(), folders.begin(), folders.end());
  for (const std::string& folder : all)
    if (std::string file = fmt::format("{}/{}", folder, name); runs(file)) return file;
  return {};
}

Child ChildProcess::start(const std::vector<std::string>& command, const std::vector<std::string>& variables,
                          Fd& in) {
  const auto refuse = [&](int error) {
    throw Error(ErrorKind::io,
                fmt::format("{} cannot be started: {}", convtune::quoted(command.at(0), 200), reason(error)));
  };
  // The child's input is a socket, since writing to a pipe that nobody reads would end this process.
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) refuse(errno);
  in = Fd(pair[0]);
  const Fd its_in(pair[1]);
  std::vector<std::string> words = command, environment;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable, name = text.substr(0, text.find('=') + 1);
    if (std::none_of(variables.begin(), variables.end(),
                     [&](const std::string& other) { return other.starts_with(name); }))
      environment.emplace_back(text);
  }
  environment.insert(environment.end(), variables.begin(), variables.end());
  const std::vector<char*> arguments = pointers(words), its_variables = pointers(environment);

  Child child(kPipes, [&](std::span<const int> pipes) {
    const int why =
        become(arguments[0], arguments.data(), its_variables.data(), its_in.get(), pipes[kOut], pipes[kErr]);
    [[maybe_unused]] const ssize_t told = ::write(pipes[kWhyNot], &why, sizeof why);
  });
  Child* const only[] = {&child};
  while (!child.closed(kWhyNot)) Child::receive(only, -1);
  if (const std::string& told = child.received(kWhyNot); told.size() == sizeof(int)) {
    int why = 0;
    std::memcpy(&why, told.data(), sizeof why);
    refuse(why);
  }
  return child;
}

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::vector<std::string>& variables)
    : child_(start(command, variables, in_)) {}

void ChildProcess::write_line(std::string_view line) {
  std::string text(line);
  text += '\n';
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t put = ::send(in_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return;
    rest.remove_prefix(static_cast<std::size_t>(put));
  }
}

ChildProcess::Got ChildProcess::read_line(std::string& line, double seconds,
                                          const std::function<bool()>& cancelled) {
  const std::chrono::duration<double> limit(std::min(1e9, seconds));  // more is more than a clock counts
  const Clock::time_point deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  Child* const only[] = {&child_};
  std::string& output = child_.received(kOut);
  while (true) {
    if (cancelled && cancelled()) return Got::cancelled;
    if (const std::size_t end = output.find('\n'); end != output.npos) {
      line = output.substr(0, end);
      output.erase(0, end + 1);
      return Got::line;
    }
    if (!child_.running()) {
      if (output.empty()) return Got::ended;
      line = std::exchange(output, {});
      return Got::line;
    }
    const bool ended = child_.has_ended(), late = Clock::now() >= deadline;
    if (!ended && late) return Got::late;
    Child::receive(only, ended ? 0 : kPollMilliseconds);
    std::string& errors = child_.received(kErr);
    if (errors.size() > kMostErrorBytes) errors.erase(0, errors.size() - kMostErrorBytes);
    if (ended) child_.end();  // everything that it wrote before its end has now been read
  }
}

}  // namespace convtune
