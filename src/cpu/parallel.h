// The one way to use the CPU's threads: OpenMP's pool, so that OMP_NUM_THREADS means what people
// think and one pool serves convtune, oneDNN and the program around them.
#pragma once

#include <csignal>
#include <cstdint>
#include <type_traits>

namespace convtune::cpu {

// Runs body(thread, begin, end) with [0, tasks) cut into contiguous runs of equal length, one a
// thread. `context` is handed through. Returns when all are done. body must not throw.
void parallel_for(int threads, std::int64_t tasks,
                  void (*body)(void* context, int thread, std::int64_t begin, std::int64_t end),
                  void* context);

// The same for a callable body(int thread, int64 begin, int64 end).
template <class Body>
void parallel_for(int threads, std::int64_t tasks, Body&& body) {
  parallel_for(
      threads, tasks,
      [](void* context, int thread, std::int64_t begin, std::int64_t end) {
        (*static_cast<std::remove_reference_t<Body>*>(context))(thread, begin, end);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// While one lives, handlers of signals wait, on the thread that made it and on the others of its team (on
// those for good): for code that a handler on its thread's stack would break. Signals that tell of an error
// in the code itself are not held.
class SignalsHeld {
 public:
  explicit SignalsHeld(int threads);
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

}  // namespace convtune::cpu
