// See child.h.
#include "base/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "convtune/error.h"

namespace convtune {
namespace {

constexpr std::size_t kMostBytes = 64 << 20;  // that may wait in a pipe's text; who writes more is ended
constexpr int kMostChunks = 16;               // at once: what writes without an end would keep us there

}  // namespace

Child::Child(std::size_t pipes, const std::function<void(std::span<const int>)>& work) : pipes_(pipes) {
  const auto refuse = [] {
    throw Error(ErrorKind::io, "a child process cannot be started: " + reason(errno));
  };
  std::vector<Fd> ends;
  std::vector<int> theirs;
  for (Pipe& pipe : pipes_) {
    int pair[2];
    if (::pipe2(pair, O_CLOEXEC) != 0) refuse();
    pipe.fd = Fd(pair[0]);
    ends.emplace_back(pair[1]);
    theirs.push_back(pair[1]);
    ::fcntl(pair[0], F_SETFL, O_NONBLOCK);
  }
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ < 0) refuse();
  if (process_ == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it was gone before
    work(theirs);
    ::_exit(0);
  }
  ::setpgid(process_, process_);  // whoever of the two is first
}

Child::Child(Child&& other) noexcept
    : process_(std::exchange(other.process_, -1)), status_(other.status_), pipes_(std::move(other.pipes_)) {}

Child::~Child() {
  end();
}

// Tells whether it is only waiting to be asked how it ended: its number, and its group's, are still its own.
// A process that ignores SIGCHLD has no child that waits to be asked.
bool Child::has_ended() const {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOWAIT | WNOHANG) != 0)
    return errno == ECHILD;
  return info.si_pid == process_;
}

void Child::end() {
  for (Pipe& pipe : pipes_) pipe.fd = Fd();
  if (process_ < 0) return;
  ::kill(-process_, SIGKILL), ::kill(process_, SIGKILL);
  while (::waitpid(process_, &status_, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

void Child::receive(std::span<Child* const> children, int milliseconds) {
  std::vector<pollfd> polled;
  for (const Child* child : children)
    for (const Pipe& pipe : child->pipes_) polled.push_back({pipe.fd.get(), POLLIN, 0});  // -1 is passed over
  ::poll(polled.data(), polled.size(), milliseconds);
  char chunk[65536];
  for (Child* child : children)
    for (Pipe& pipe : child->pipes_) {
      ssize_t got = -1;
      for (int chunks = 0; pipe.fd.ok() && chunks < kMostChunks; ++chunks) {
        if ((got = ::read(pipe.fd.get(), chunk, sizeof chunk)) < 0 && errno != EINTR) break;
        if (got == 0) pipe.fd = Fd();
        if (got > 0) pipe.text.append(chunk, static_cast<std::size_t>(got));
      }
      if (pipe.text.size() > kMostBytes) child->end();
    }
}

std::string Child::ending() const {
  if (running()) return "is still running";
  if (status_ == -1) return "ended, how is not known: this process ignores SIGCHLD";
  if (WIFSIGNALED(status_)) return fmt::format("was ended by signal {}", WTERMSIG(status_));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status_));
}

}  // namespace convtune
