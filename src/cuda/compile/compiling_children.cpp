// Children by fork, without exec: the library has no program of its own to start. A child runs the
// compiler and nothing else, writes its answer into a pipe and leaves without a trace; a lock that another
// thread held at the fork can at worst make it wait until its time is up.
#include "cuda/compile/compiling_children.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "base/file_calls.h"

namespace convtune::cuda {
namespace {

// The first byte of what a child writes: what follows is its answer, or a message.
constexpr char kAnswer = 'a', kFailure = 'f';

void answer(const std::function<std::string()>& work, int pipe) {
  std::string text;
  try {
    text = kAnswer + work();
  } catch (const std::exception& error) {
    text = kFailure + std::string(error.what());
  }
  // With its length, so that half an answer is none.
  write_all(pipe, fmt::format("{}\n", text.size()) + text);
}

CompilingChildren::Result read_answer(const std::string& received, const std::string& ending) {
  const std::size_t line = received.find('\n');
  const std::string_view text = std::string_view(received).substr(std::min(line, received.size() - 1) + 1);
  if (line == received.npos || received.substr(0, line) != std::to_string(text.size()) || text.empty())
    return {{}, "the compiling process gave no answer: it " + ending};
  if (text.front() == kFailure) return {{}, std::string(text.substr(1))};
  return {std::string(text.substr(1)), {}};
}

}  // namespace

void CompilingChildren::begin(std::size_t job, const std::function<std::string()>& work, double seconds) {
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  running_.push_back({job, Child(1, [&](std::span<const int> pipes) { answer(work, pipes[0]); }), seconds,
                      Clock::now() + limit});
}

void CompilingChildren::wait(const std::function<void(std::size_t, Result)>& finished) {
  std::vector<Child*> children;
  Clock::time_point first = Clock::time_point::max();
  for (Running& one : running_) {
    children.push_back(&one.child);
    first = std::min(first, one.deadline);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - Clock::now()).count();
  Child::receive(children, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000)));
  std::vector<Running> still;
  for (Running& one : running_) {
    const bool done = one.child.closed(0);
    if (!done && Clock::now() < one.deadline) {
      still.push_back(std::move(one));
      continue;
    }
    one.child.end();
    finished(one.job,
             done ? read_answer(one.child.received(0), one.child.ending())
                  : Result{{}, fmt::format("compiling took longer than {:g} seconds", one.seconds), true});
  }
  running_ = std::move(still);
}

}  // namespace convtune::cuda
