// See process.h. Between fork and exec only what a signal handler may do is done: other threads may hold any
// lock.
#include "base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/quoted.h"
#include "convtune/error.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace convtune {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostErrorBytes = 64 << 10, kMostBytes = 64 << 20;
constexpr int kPollMilliseconds = 50;  // between looks at `cancelled`

bool runs(const std::string& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(file.c_str(), X_OK) == 0;
}

void close_end(int& fd) {
  if (fd >= 0) ::close(std::exchange(fd, -1));
}

// Both ends closed with this, unless they were taken.
struct Ends {
  int mine = -1, theirs = -1;
  ~Ends() { close_end(mine), close_end(theirs); }
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

[[noreturn]] void become(const char* file, char* const* arguments, char* const* variables, int in, int out,
                         int err, int failed, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it was gone before
  ::signal(SIGINT, SIG_DFL), ::signal(SIGXFSZ, SIG_DFL), ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;  // blocked here, it would be blocked there
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(in, 0) >= 0 && ::dup2(out, 1) >= 0 && ::dup2(err, 2) >= 0) ::execve(file, arguments, variables);
  const int why = errno;
  [[maybe_unused]] const ssize_t told = ::write(failed, &why, sizeof why);
  ::_exit(127);
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

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::vector<std::string>& variables) {
  const auto refuse = [&](int error) {
    throw Error(ErrorKind::io, fmt::format("{} cannot be started: {}", convtune::quoted(command.at(0), 200),
                                           std::generic_category().message(error)));
  };
  Ends in, out, err, failed;
  // Its input is a socket, since writing to a pipe that nobody reads would end this process.
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) refuse(errno);
  in.mine = pair[0], in.theirs = pair[1];
  for (Ends* ends : {&out, &err, &failed}) {
    if (::pipe2(pair, O_CLOEXEC) != 0) refuse(errno);
    ends->mine = pair[0], ends->theirs = pair[1];
  }
  std::vector<std::string> words = command, environment;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable, name = text.substr(0, text.find('=') + 1);
    if (std::none_of(variables.begin(), variables.end(),
                     [&](const std::string& other) { return other.starts_with(name); }))
      environment.emplace_back(text);
  }
  environment.insert(environment.end(), variables.begin(), variables.end());
  const std::vector<char*> arguments = pointers(words), their_variables = pointers(environment);

  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ == 0)
    become(arguments[0], arguments.data(), their_variables.data(), in.theirs, out.theirs, err.theirs,
           failed.theirs, parent);
  if (process_ < 0) refuse(errno);
  ::setpgid(process_, process_);  // whoever of the two is first
  close_end(failed.theirs);
  int why = 0;
  ssize_t told;
  while ((told = ::read(failed.mine, &why, sizeof why)) < 0 && errno == EINTR) {
  }
  if (told == static_cast<ssize_t>(sizeof why)) {
    end();
    refuse(why);
  }
  in_ = std::exchange(in.mine, -1), out_ = std::exchange(out.mine, -1), err_ = std::exchange(err.mine, -1);
  ::fcntl(out_, F_SETFL, O_NONBLOCK);
  ::fcntl(err_, F_SETFL, O_NONBLOCK);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      in_(std::exchange(other.in_, -1)),
      out_(std::exchange(other.out_, -1)),
      err_(std::exchange(other.err_, -1)),
      status_(other.status_),
      output_(std::move(other.output_)),
      errors_(std::move(other.errors_)) {}

ChildProcess::~ChildProcess() {
  end();
  close_end(in_), close_end(out_), close_end(err_);
}

// Whether it is only waiting to be asked how it ended: its number, and its group's, are still its own. Where
// this process ignores SIGCHLD none waits, and there is no child to ask.
bool ChildProcess::has_ended() const {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOWAIT | WNOHANG) != 0)
    return errno == ECHILD;
  return info.si_pid == process_;
}

void ChildProcess::end() {
  if (process_ < 0) return;
  ::kill(-process_, SIGKILL), ::kill(process_, SIGKILL);
  while (::waitpid(process_, &status_, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

void ChildProcess::write_line(std::string_view line) {
  std::string text(line);
  text += '\n';
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t put = ::send(in_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return;
    rest.remove_prefix(static_cast<std::size_t>(put));
  }
}

// Whatever is there, waiting for some of it at most so long.
void ChildProcess::receive(int milliseconds) {
  pollfd polled[] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};  // a closed one is -1, and passed over
  ::poll(polled, 2, milliseconds);
  const auto take = [](int& fd, std::string& text) {
    char chunk[65536];
    ssize_t got = -1;
    std::size_t chunks = 16;  // or what writes without an end would keep us here
    while (fd >= 0 && chunks-- > 0 &&
           ((got = ::read(fd, chunk, sizeof chunk)) > 0 || (got < 0 && errno == EINTR)))
      if (got > 0) text.append(chunk, static_cast<std::size_t>(got));
    if (got == 0) close_end(fd);
  };
  take(out_, output_);
  take(err_, errors_);
  if (errors_.size() > kMostErrorBytes) errors_.erase(0, errors_.size() - kMostErrorBytes);
}

ChildProcess::Got ChildProcess::read_line(std::string& line, double seconds,
                                          const std::function<bool()>& cancelled) {
  const std::chrono::duration<double> limit(std::min(1e9, seconds));  // more is more than a clock counts
  const Clock::time_point deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  while (true) {
    if (cancelled && cancelled()) return Got::cancelled;
    if (const std::size_t end = output_.find('\n'); end != output_.npos) {
      line = output_.substr(0, end);
      output_.erase(0, end + 1);
      return Got::line;
    }
    if (process_ < 0) {
      if (output_.empty()) return Got::ended;
      line = std::exchange(output_, {});
      return Got::line;
    }
    const bool ended = has_ended(), late = Clock::now() >= deadline;
    if (!ended && late) return Got::late;
    receive(ended ? 0 : kPollMilliseconds);
    // What it wrote before its end has now been read.
    if (ended || output_.size() > kMostBytes) end();
  }
}

std::string ChildProcess::ending() const {
  if (process_ >= 0) return "is still running";
  if (status_ == -1) return "ended, how is not known: this process ignores SIGCHLD";
  if (WIFSIGNALED(status_)) return fmt::format("was ended by signal {}", WTERMSIG(status_));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status_));
}

}  // namespace convtune
