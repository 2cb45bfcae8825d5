// Stacks that take turns on one thread of the host: a switch is a dozen instructions.
#pragma once

#include <cstddef>

namespace host_gpu {

struct Fiber {
  void* stack_pointer = nullptr;
  unsigned char* stack = nullptr;
  bool ended = false;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

// Gives so many stacks, kept from launch to launch.
void make_stacks(std::size_t count);
// Stack number `index` will run `body`, which never returns.
void prepare(Fiber& fiber, std::size_t index, void (*body)());
// Null: who called first.
void switch_fibers(Fiber* from, Fiber* to);
void fiber_began();  // first of all in a body
// Memory of all stacks.
extern unsigned char *stacks, *stacks_end;
inline bool in_stacks(const void* address) {
  return address >= stacks && address < stacks_end;
}
// True where an address lies in the stack of that fiber.
bool in_stack_of(const Fiber& fiber, const void* address);

}  // namespace host_gpu
