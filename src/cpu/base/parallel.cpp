// See parallel.h.
#include "cpu/base/parallel.h"

#include "convtune/device.h"
#include "cpu/base/openmp.h"
#include "cpu/base/thread_pool.h"

namespace convtune::cpu {
namespace {

std::atomic<const CpuExecutor*> executor_in_use = nullptr;

}  // namespace

void use_executor(const CpuExecutor* executor) {
  executor_in_use = executor;
}

bool uses_executor() {
  return executor_in_use != nullptr;
}

void run_members(int members, void (*member)(void* context, int index), void* context) {
  if (members == 1) return member(context, 0);
  if (const CpuExecutor* const theirs = executor_in_use.load(std::memory_order_acquire))
    theirs->parallel_for(theirs->context, members, member, context);
  else if (!work_in_waiting_team(members, member, context))
    work_together(members, member, context);
}

// The number of tasks that a thread claims doubles until they take a quarter of a hundred microseconds or
// more, and is no more than a quarter of what is left of a share. Alone, a thread has all of its share at
// once.
bool TaskQueue::take() {
  constexpr std::int64_t kParts = 4, kMost = std::int64_t{1} << 60;
  constexpr std::chrono::microseconds kShort{25}, kLong{100};
  if (count_ > 1) {
    if (own_ != 0 && ought_to_leave()) return false;
    const auto now = Clock::now();
    if (end_ != 0 && now - taken_ < kShort)
      most_ = std::min(2 * most_, kMost);
    else if (end_ != 0 && now - taken_ > kLong)
      most_ = std::max<std::int64_t>(most_ / 2, 1);
    taken_ = now;
  }
  for (int from = own_, tried = 0; tried < count_; ++tried, from = from + 1 < count_ ? from + 1 : 0) {
    Share& share = shares_[from];
    std::int64_t next = share.next.load(std::memory_order_relaxed);
    while (next < share.end) {
      const std::int64_t left = share.end - next;
      const std::int64_t part =
          count_ == 1 ? left : std::min(most_, std::max<std::int64_t>(left / kParts, 1));
      if (!share.next.compare_exchange_weak(next, next + part, std::memory_order_relaxed)) continue;
      at_ = next, end_ = next + part, share_end_ = share.end;
      return true;
    }
  }
  return false;
}

}  // namespace convtune::cpu
