// Children by fork, without exec: the library has no program of its own to start. A child runs the
// compiler and nothing else, writes its answer into a pipe and leaves without a trace; a lock that another
// thread held at the fork can at worst make it wait until its time is up.
#include "base/compiling_children.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include "base/file_calls.h"

namespace convtune {
namespace {

// The first byte of what a child writes: what follows is its answer, or a message.
constexpr char kAnswer = 'a', kFailure = 'f';

// The compiler touches some 20 MiB of its heap, which would come 4 KiB at a time: faults of pages were a
// twentieth of a compile. So the heap grows at once, before, and in pages of 2 MiB where the system has them
// for who asks. Only in a child: how another's memory is used is not ours to say.
void grow_heap() {
#ifdef __GLIBC__
  constexpr std::uintptr_t kHugePage = 2 << 20;
  constexpr int kRoom = 64 << 20, kLargest = 32 << 20;  // the largest threshold that glibc takes
  ::mallopt(M_TOP_PAD, kRoom);
  ::mallopt(M_TRIM_THRESHOLD, 2 * kRoom);
  ::mallopt(M_MMAP_THRESHOLD, kLargest);
  const auto end = [] { return reinterpret_cast<std::uintptr_t>(::sbrk(0)); };
  const std::uintptr_t begin = (end() + kHugePage - 1) / kHugePage * kHugePage;
  void* volatile grows = std::malloc(kLargest / 2);
  std::free(grows);
  if (end() > begin) ::madvise(reinterpret_cast<void*>(begin), end() - begin, MADV_HUGEPAGE);
#endif
}

void answer(const std::function<std::string()>& work, int pipe) {
  grow_heap();
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

}  // namespace convtune
