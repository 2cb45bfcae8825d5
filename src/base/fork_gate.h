// Locks and values made once that a forked child finds free. A child has the thread that forked and no other,
// and locks as they were in that moment: one that another thread held stays held for ever. So forks wait
// until no other thread is past this gate, and new ones wait at it meanwhile. A header alone, since PyTorch's
// operators have a gate of their own: they take it before they call the library, whose handlers are
// registered first and so run after theirs.
#pragma once

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <type_traits>

namespace convtune {
namespace fork_gate {

// Forks are its writers; they go first, or a busy process would never fork.
inline pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
inline thread_local constinit int depth = 0;  // how often this thread is past the gate

// A fork by a thread that is past the gate waits for nobody: two such would wait for each other.
inline void before_fork() {
  if (depth == 0) ::pthread_rwlock_wrlock(&gate);
}
inline void after_fork_in_parent() {
  if (depth == 0) ::pthread_rwlock_unlock(&gate);
}
// A new lock, since the old one counts threads that wait and are not here; given back first, since
// ThreadSanitizer would hold the new one, at the same address, for held.
inline void after_fork_in_child() {
  ::pthread_rwlock_unlock(&gate);
  gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
  if (depth > 0) ::pthread_rwlock_rdlock(&gate);
}
// When the library is loaded; taken back by the C library when it is unloaded.
inline const int registered = ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

inline void enter() {
  if (depth++ == 0) ::pthread_rwlock_rdlock(&gate);
}
inline void leave() {
  if (--depth == 0) ::pthread_rwlock_unlock(&gate);
}

template <class Lock>
class Guarded {
 public:
  void lock() { enter(), lock_.lock(); }
  bool try_lock() {
    enter();
    if (lock_.try_lock()) return true;
    leave();
    return false;
  }
  void unlock() { lock_.unlock(), leave(); }
  void lock_shared() { enter(), lock_.lock_shared(); }
  void unlock_shared() { lock_.unlock_shared(), leave(); }

 private:
  Lock lock_;
};

}  // namespace fork_gate

// Lock of everything that outlives a call. No other thread holds one in the moment of a fork, so whoever
// holds one must not wait for a thread that forks.
using Mutex = fork_gate::Guarded<std::mutex>;
using SharedMutex = fork_gate::Guarded<std::shared_mutex>;

// Forks by other threads wait while one lives: for calls that take locks of another library's.
class NoForks {
 public:
  NoForks() { fork_gate::enter(); }
  ~NoForks() { fork_gate::leave(); }
  NoForks(const NoForks&) = delete;
  NoForks& operator=(const NoForks&) = delete;
};

// The value of make(), made at the first call from this place in the code and kept until the program's end: a
// static variable of a function whose making no fork cuts in two. `make` is a lambda that captures nothing.
template <class Make>
auto& once(const Make& make) {
  static_assert(std::is_empty_v<Make>);
  using Value = std::invoke_result_t<Make>;
  static constinit std::atomic<Value*> made = nullptr;
  if (Value* const known = made.load(std::memory_order_acquire)) return *known;
  const NoForks until_made;
  static Value value = make();
  made.store(&value, std::memory_order_release);
  return value;
}

}  // namespace convtune
