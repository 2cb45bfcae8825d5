// Children by fork, without exec: the library has no program of its own to start. A child runs the
// compiler and nothing else, writes its answer into a pipe and leaves without a trace; a lock that another
// thread held at the fork can at worst make it wait until its time is up.
#include "cuda/compile/compiling_children.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <string_view>
#include <system_error>
#include <utility>

#include "convtune/error.h"

namespace convtune::cuda {
namespace {

// The first byte of what a child writes: what follows is its answer, or a message.
constexpr char kAnswer = 'a', kFailure = 'f';

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return;  // nobody listens any more
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

[[noreturn]] void work_in_child(const std::function<std::string()>& work, int pipe) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGINT, SIG_IGN);  // Ctrl-C is the parent's to answer
  std::string text;
  try {
    text = kAnswer + work();
  } catch (const std::exception& error) {
    text = kFailure + std::string(error.what());
  }
  // With its length, so that half an answer is none.
  write_all(pipe, fmt::format("{}\n", text.size()) + text);
  ::_exit(0);
}

std::string system_reason() {
  return std::generic_category().message(errno);
}

// Ends the child, whatever it is doing, and says how it had ended.
std::string end(pid_t process, int pipe) {
  ::close(pipe);
  ::kill(process, SIGKILL);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status)) : "gave no answer";
}

CompilingChildren::Result read_answer(const std::string& received, const std::string& ending) {
  const std::size_t line = received.find('\n');
  const std::string_view text = std::string_view(received).substr(std::min(line, received.size() - 1) + 1);
  if (line == received.npos || received.substr(0, line) != std::to_string(text.size()) || text.empty())
    return {{}, "the compiling process " + ending};
  if (text.front() == kFailure) return {{}, std::string(text.substr(1))};
  return {std::string(text.substr(1)), {}};
}

}  // namespace

CompilingChildren::~CompilingChildren() {
  for (const Child& child : running_) end(child.process, child.pipe);
}

void CompilingChildren::begin(std::size_t job, const std::function<std::string()>& work, double seconds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ErrorKind::internal, "a pipe for a compiling process cannot be made: " + system_reason());
  const pid_t process = ::fork();
  if (process == 0) work_in_child(work, ends[1]);
  ::close(ends[1]);
  if (process < 0) {
    ::close(ends[0]);
    throw Error(ErrorKind::internal, "a compiling process cannot be started: " + system_reason());
  }
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  running_.push_back({job, process, ends[0], seconds, Clock::now() + limit, {}});
}

// Whether there may be more to come.
bool CompilingChildren::receive(Child& child) {
  char chunk[65536];
  const ssize_t got = ::read(child.pipe, chunk, sizeof chunk);
  if (got > 0) child.received.append(chunk, static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && errno == EINTR);
}

void CompilingChildren::wait(const std::function<void(std::size_t, Result)>& finished) {
  std::vector<pollfd> polled;
  Clock::time_point first = Clock::time_point::max();
  for (const Child& child : running_) {
    polled.push_back({child.pipe, POLLIN, 0});
    first = std::min(first, child.deadline);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - Clock::now()).count();
  ::poll(polled.data(), polled.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000)));
  std::vector<Child> still;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Child& child = running_[i];
    const bool open = polled[i].revents == 0 || receive(child);
    if (open && Clock::now() < child.deadline) {
      still.push_back(std::move(child));
      continue;
    }
    const std::string ending = end(child.process, child.pipe);
    finished(child.job,
             open ? Result{{}, fmt::format("compiling took longer than {:g} seconds", child.seconds), true}
                  : read_answer(child.received, ending));
  }
  running_ = std::move(still);
}

}  // namespace convtune::cuda
