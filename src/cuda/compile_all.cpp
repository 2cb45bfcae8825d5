// Children by fork, without exec: the library has no program of its own to start. A child runs the
// compiler and nothing else, writes its answer into a pipe and leaves without a trace; a lock that another
// thread held at the fork can at worst make it wait until its time is up.
#include "cuda/compile_all.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>

#include "convtune/error.h"

namespace convtune::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// The first byte of an answer: what follows is a module's text, or a message.
constexpr char kModule = 'm', kFailure = 'f';

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return;  // nobody listens any more
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

[[noreturn]] void compile_in_child(const CompileJob& job, int pipe) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGINT, SIG_IGN);  // Ctrl-C is the parent's to answer
  std::string answer;
  try {
    answer = kModule + to_text(compile(job, false));
  } catch (const std::exception& error) {
    answer = kFailure + std::string(error.what());
  }
  // With its length, so that half an answer is none.
  write_all(pipe, fmt::format("{}\n", answer.size()) + answer);
  ::_exit(0);
}

struct Child {
  std::size_t job = 0;
  pid_t process = -1;
  int pipe = -1;
  Clock::time_point deadline;
  std::string received;
};

std::string system_reason() {
  return std::generic_category().message(errno);
}

Child start(const CompileJob& job, std::size_t index, double seconds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ErrorKind::internal, "a pipe for a compiling process cannot be made: " + system_reason());
  const pid_t process = ::fork();
  if (process == 0) compile_in_child(job, ends[1]);
  ::close(ends[1]);
  if (process < 0) {
    ::close(ends[0]);
    throw Error(ErrorKind::internal, "a compiling process cannot be started: " + system_reason());
  }
  return {index,
          process,
          ends[0],
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)),
          {}};
}

// Whether there may be more to come.
bool receive(Child& child) {
  char chunk[65536];
  const ssize_t got = ::read(child.pipe, chunk, sizeof chunk);
  if (got > 0) child.received.append(chunk, static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && errno == EINTR);
}

// Ends the child, whatever it is doing, and says how it had ended.
std::string end(const Child& child) {
  ::close(child.pipe);
  ::kill(child.process, SIGKILL);
  int status = 0;
  while (::waitpid(child.process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status)) : "gave no answer";
}

CompileResult read_answer(const std::string& received, const std::string& ending) {
  const std::size_t line = received.find('\n');
  const std::string_view answer = std::string_view(received).substr(std::min(line, received.size() - 1) + 1);
  if (line == received.npos || received.substr(0, line) != std::to_string(answer.size()) || answer.empty())
    return {{}, "the compiling process " + ending};
  if (answer.front() == kFailure) return {{}, std::string(answer.substr(1))};
  std::optional<CompiledModule> module = parse_module(answer.substr(1));
  return {module, module ? "" : "the compiling process gave an answer that cannot be read"};
}

// The children of one call. However the call ends, none of them outlives it.
class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    for (const Child& child : running_) end(child);
  }
  std::size_t count() const { return running_.size(); }
  void add(Child child) { running_.push_back(std::move(child)); }

  // Waits for something to happen; calls finished(job, result) for every child that is done or late.
  void wait(double seconds_each, const auto& finished) {
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
      const std::string ending = end(child);
      finished(child.job,
               open ? CompileResult{{}, fmt::format("compiling took longer than {:g} seconds", seconds_each)}
                    : read_answer(child.received, ending));
    }
    running_ = std::move(still);
  }

 private:
  std::vector<Child> running_;
};

}  // namespace

std::vector<CompileResult> compile_all(const std::vector<CompileJob>& jobs, int processes,
                                       double seconds_each) {
  std::vector<CompileResult> results(jobs.size());
  Children children;
  const auto finished = [&](std::size_t job, CompileResult result) {
    if (result.module) keep_compiled(jobs[job], *result.module);
    results[job] = std::move(result);
  };
  for (std::size_t next = 0; next < jobs.size() || children.count() > 0;) {
    if (next < jobs.size() && children.count() < static_cast<std::size_t>(std::max(processes, 1))) {
      results[next].module = find_compiled(jobs[next]);
      if (!results[next].module) children.add(start(jobs[next], next, seconds_each));
      ++next;
    } else {
      children.wait(seconds_each, finished);
    }
  }
  return results;
}

}  // namespace convtune::cuda
