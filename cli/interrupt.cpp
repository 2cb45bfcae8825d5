// SIGINT and SIGTERM are waited for by a thread that does nothing else: a handler would run on whichever
// thread computes, in the middle of what is timed.
#include "interrupt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>
#include <thread>

#include "exit_code.h"
#include "output.h"
#include "table.h"

namespace convtune::cli {
namespace {

std::atomic<bool> flag{false};

// Whoever sends SIGTERM waits for a while and then kills: so long is given to what does not look at the flag.
constexpr timespec kGrace{.tv_sec = 8, .tv_nsec = 0};
// `timeout` sends SIGTERM twice, and a fleet hands on what the whole group was sent: one wish, not two.
constexpr std::chrono::seconds kOneWish{1};

[[noreturn]] void wait_for(const sigset_t& interrupts) {
  using Clock = std::chrono::steady_clock;
  int first = 0;
  Clock::time_point told;
  for (;;) {
    const int signal =
        first == SIGTERM ? sigtimedwait(&interrupts, nullptr, &kGrace) : sigwaitinfo(&interrupts, nullptr);
    if (signal < 0 && errno == EINTR) continue;
    const bool again = first == SIGINT && signal == SIGINT;
    if (signal < 0 || again || (first != 0 && Clock::now() - told > kOneWish)) _exit(kInterrupted);
    if (first != 0) continue;
    first = signal, told = Clock::now();
    flag.store(true);
    put(stderr, fmt::format("{}convtune: stopping; again Ctrl-C ends it at once\n",
                            style_of(stderr).terminal ? "\r\033[K" : ""));
  }
}

}  // namespace

void catch_interrupts() {
  sigset_t interrupts;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGINT);
  sigaddset(&interrupts, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &interrupts, nullptr);  // for this thread, and of all that it starts
  try {
    std::thread([interrupts] { wait_for(interrupts); }).detach();
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_UNBLOCK, &interrupts, nullptr);
    print_warning(
        fmt::format("no thread can be started ({}): Ctrl-C ends the work at once, without its results",
                    error.code().message()));
  }
}

bool interrupted() {
  return flag.load();
}
const std::atomic<bool>* interrupt_flag() {
  return &flag;
}

}  // namespace convtune::cli
