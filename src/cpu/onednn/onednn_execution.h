// The common ground of runs of oneDNN's primitives: threads and signals around them, conversions of order,
// and workspaces that threads lend each other.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork_gate.h"
#include "convtune/error.h"
#include "cpu/base/openmp.h"
#include "cpu/onednn/onednn_objects.h"

namespace convtune::cpu {

// oneDNN asks OpenMP for the number of threads when it plans and again when it runs, and expects
// the same answer; OpenMP keeps that number per calling thread. So one lives around both.
class ThreadCount {
 public:
  explicit ThreadCount(int threads);
  ~ThreadCount();
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
  bool changed_;
};

// Its generated code does not survive the handler of a signal on its thread: the heap is damaged, or the
// result wrong (2.6.3; with a signal every 100 us each time, at Ctrl-C one time in ten).
class Execution {
 public:
  explicit Execution(int threads) : threads_(startable(threads)), signals_(threads) {}

 private:
  // Its code is made for so many threads, and asks libgomp for each.
  static int startable(int threads) {
    if (const int team = openmp_team_of(threads); team < threads)
      throw Error(ErrorKind::unsupported,
                  fmt::format("oneDNN needs {} threads here, and the system starts {}; raise the limit of "
                              "processes or memory, or ask for fewer threads",
                              threads, team));
    return threads;
  }
  const ThreadCount threads_;
  const SignalsHeld signals_;
};

inline void add_scratchpad(OnednnArguments& arguments, const OnednnPrimitiveDesc& desc) {
  const OnednnDesc scratchpad = desc.query(OnednnQuery::scratchpad);
  if (scratchpad.bytes() > 0)
    arguments.emplace_back(OnednnArgument::scratchpad, OnednnMemory::allocated(scratchpad));
}

// A change of order, or nothing where both sides are the same.
class Conversion {
 public:
  Conversion(const OnednnDesc& from, const OnednnDesc& to) {
    if (from == to) return;
    desc_ = onednn_reorder(from, to);
    primitive_ = OnednnPrimitive(desc_);
  }
  explicit operator bool() const { return static_cast<bool>(primitive_); }
  OnednnArguments arguments(const OnednnMemory& from, const OnednnMemory& to) const {
    OnednnArguments made = {{OnednnArgument::src, from}, {OnednnArgument::dst, to}};
    add_scratchpad(made, desc_);
    return made;
  }
  void execute(const OnednnStream& stream, const OnednnArguments& arguments) const {
    primitive_.execute(stream, arguments);
  }

 private:
  OnednnPrimitiveDesc desc_;
  OnednnPrimitive primitive_;
};

// Workspaces that no run writes to now: there is one for each thread that was inside run() at a time.
template <class Workspace>
class Idle {
 public:
  template <class Make>
  std::unique_ptr<Workspace> take(Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Workspace> workspace = std::move(idle_.back());
        idle_.pop_back();
        return workspace;
      }
    }
    return make();
  }
  void give_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(workspace));
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

}  // namespace convtune::cpu
