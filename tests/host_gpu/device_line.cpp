// Follows frame pointers, which both device code and these files are compiled with, to the first return
// address in a kernel's shared object, and asks addr2line. That takes a while, so only who fails asks.
#include "device_line.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <memory>

namespace host_gpu {
namespace {

// The innermost line that is neither an instruction nor one of CUDA's words.
std::string line_of(const char* file, std::uintptr_t offset) {
  char command[600];
  std::snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%zx 2>/dev/null", file, offset);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(popen(command, "r"), pclose);
  if (!output) return {};
  char line[1000];
  while (std::fgets(line, sizeof line, output.get())) {
    std::string text = line;
    text.erase(text.find_last_not_of(" \n") + 1);
    if (text.find("/cuda/ptx/") != text.npos || text.find("/host_gpu/") != text.npos) continue;
    const std::size_t begin = text.find("cuda/");
    if (begin == text.npos) continue;
    return ", " + text.substr(begin, text.find(' ', begin) - begin);
  }
  return {};
}

}  // namespace

std::string device_line_of_caller(const Fiber& fiber) {
  Dl_info mine{};
  dladdr(reinterpret_cast<const void*>(&device_line_of_caller), &mine);
  auto* frame = static_cast<void**>(__builtin_frame_address(0));
  for (int depth = 0; depth < 40 && frame && in_stack_of(fiber, frame); ++depth) {
    const void* const address = frame[1];
    Dl_info info{};
    if (address && dladdr(address, &info) && info.dli_fbase != mine.dli_fbase) {
      const std::string line = line_of(info.dli_fname, reinterpret_cast<std::uintptr_t>(address) - 1 -
                                                           reinterpret_cast<std::uintptr_t>(info.dli_fbase));
      if (!line.empty()) return line;
    }
    frame = static_cast<void**>(*frame);
  }
  return {};
}

}  // namespace host_gpu
