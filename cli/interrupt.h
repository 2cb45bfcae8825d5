// Ctrl-C, and SIGTERM, by which `timeout` and containers end a process: the first one is answered at once and
// asks the work to stop cleanly. A second Ctrl-C ends the process at once, and 8 seconds after SIGTERM do.
#pragma once

#include <atomic>

namespace convtune::cli {

// Before any other thread is started.
void catch_interrupts();
bool interrupted();
// Returns the function that the library's `cancel` options take.
const std::atomic<bool>* interrupt_flag();

}  // namespace convtune::cli
