// For x86-64. AddressSanitizer is told of each switch, or it would take one stack for another.
#include "fibers.h"

#include <sys/mman.h>

#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" void host_gpu_switch(void** save, void* load);
asm(R"(
.text
.globl host_gpu_switch
.type host_gpu_switch, @function
host_gpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size host_gpu_switch, .-host_gpu_switch
)");

namespace host_gpu {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStackBytes = 512 << 10;
#else
constexpr std::size_t kStackBytes = 64 << 10;
#endif

// Tops of stacks that lay a power of two apart would share a few lines of the host's caches.
constexpr std::size_t kApart = kStackBytes + 17 * 64;

std::size_t stack_count = 0;
Fiber first;  // who called
[[maybe_unused]] const void* first_stack = nullptr;
[[maybe_unused]] std::size_t first_bytes = 0;

}  // namespace

unsigned char *stacks = nullptr, *stacks_end = nullptr;

void make_stacks(std::size_t count) {
  if (count <= stack_count) return;
#if defined(__SANITIZE_ADDRESS__)
  // Marks of frames would stay, and be those of whatever is mapped there next: of a kernel's constants, say.
  if (stacks) __asan_unpoison_memory_region(stacks, stack_count * kApart);
#endif
  if (stacks) munmap(stacks, stack_count * kApart);
  void* const memory = mmap(nullptr, count * kApart, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  stacks = static_cast<unsigned char*>(memory), stack_count = count;
  stacks_end = stacks + count * kApart;
}

void prepare(Fiber& fiber, std::size_t index, void (*body)()) {
  fiber = {.stack = stacks + index * kApart};
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(fiber.stack, kStackBytes);
#endif
  auto* top = reinterpret_cast<void**>(fiber.stack + kStackBytes);
  *--top = nullptr;  // aligned as behind a call: nobody returns there
  *--top = reinterpret_cast<void*>(body);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
}

void switch_fibers(Fiber* from, Fiber* to) {
  Fiber& leaving = from ? *from : first;
  Fiber& entering = to ? *to : first;
#if defined(__SANITIZE_ADDRESS__)
  if (to)
    __sanitizer_start_switch_fiber(leaving.ended ? nullptr : &leaving.fake_stack, to->stack, kStackBytes);
  else
    __sanitizer_start_switch_fiber(leaving.ended ? nullptr : &leaving.fake_stack, first_stack, first_bytes);
#endif
  host_gpu_switch(&leaving.stack_pointer, entering.stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(leaving.fake_stack, nullptr, nullptr);
#endif
}

void fiber_began() {
#if defined(__SANITIZE_ADDRESS__)
  const void* stack = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
  const bool is_fiber = stack >= stacks && stack < stacks_end;
  if (!is_fiber) first_stack = stack, first_bytes = bytes;
#endif
}

bool in_stack_of(const Fiber& fiber, const void* address) {
  return address >= fiber.stack && address < fiber.stack + kStackBytes;
}

}  // namespace host_gpu
