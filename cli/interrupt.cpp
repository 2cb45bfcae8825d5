// The SIGINT handler and its flag.
#include "interrupt.h"

#include <unistd.h>

#include <csignal>

#include "exit_code.h"

namespace convtune::cli {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "the signal handler needs it");

extern "C" void on_interrupt(int) {
  if (flag.exchange(true)) _exit(kInterrupted);
}

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() {
  return flag.load();
}
const std::atomic<bool>* interrupt_flag() {
  return &flag;
}

}  // namespace convtune::cli
