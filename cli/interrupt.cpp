// SIGINT and SIGTERM are waited for by a thread that does nothing else: a handler would run on whichever
// thread computes, in the middle of what is timed.
#include "interrupt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <system_error>
#include <thread>

#include "exit_code.h"
#include "output.h"
#include "table.h"

namespace convtune::cli {
namespace {

std::atomic<bool> flag{false};

}  // namespace

void catch_interrupts() {
  sigset_t interrupts;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGINT);
  sigaddset(&interrupts, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &interrupts, nullptr);  // for this thread, and of all that it starts
  try {
    std::thread([interrupts] {
      for (int signal = 0; sigwait(&interrupts, &signal) == 0;) {
        if (flag.exchange(true)) _exit(kInterrupted);
        put(stderr, fmt::format("{}convtune: stopping; again Ctrl-C ends it at once\n",
                                style_of(stderr).terminal ? "\r\033[K" : ""));
      }
    }).detach();
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
