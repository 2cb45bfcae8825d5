// Every access of device code to memory where a launch watches. The compiler calls these functions before
// each, since nvrtc.cpp asks it for ThreadSanitizer's instrumentation and does not link its library: plain
// C++ is seen as instructions are.
#include <algorithm>

#include "cluster.h"

namespace host_gpu {
namespace {

// A piece of global memory between guards. What the host has filled with canaries (measure/testbed.cpp) is as
// little a kernel's as guards are.
struct Piece {
  std::uintptr_t first, begin, end, last;  // addresses of guards and canaries, too
};
std::vector<Piece> pieces;  // sorted
std::size_t last_hit = 0;

// The piece that an address lies in, or null.
Piece* piece_of(std::uintptr_t at) {
  const auto behind = std::upper_bound(pieces.begin(), pieces.end(), at,
                                       [](std::uintptr_t a, const Piece& piece) { return a < piece.first; });
  return behind == pieces.begin() || at >= behind[-1].last ? nullptr : &behind[-1];
}

bool in_shared_memory(std::uintptr_t address) {
  return address - reinterpret_cast<std::uintptr_t>(host_gpu_window) < std::uintptr_t{kMostBlocks} * kWindow;
}

}  // namespace

void remember_memory(std::uintptr_t begin, std::size_t bytes) {
  const Piece piece{begin - kGuard, begin, begin + bytes, begin + bytes + kGuard};
  const auto behind = std::upper_bound(pieces.begin(), pieces.end(), piece.first,
                                       [](std::uintptr_t a, const Piece& other) { return a < other.first; });
  pieces.insert(behind, piece);
}
void forget_memory(std::uintptr_t begin) {
  std::erase_if(pieces, [&](const Piece& piece) { return piece.first == begin - kGuard; });
  last_hit = 0;
}
void see_canaries(std::uintptr_t begin, const void* from, std::size_t bytes) {
  constexpr std::size_t kBytes = 4096;
  constexpr unsigned char kCanary = 0xcb;
  const auto* const values = static_cast<const unsigned char*>(from);
  if (bytes != kBytes || !std::all_of(values, values + bytes, [](unsigned char c) { return c == kCanary; }))
    return;
  Piece* const piece = piece_of(begin);
  if (piece && begin == piece->begin)
    piece->begin += bytes;
  else if (piece && begin + bytes == piece->end)
    piece->end = begin;
}

void check_global(const void* address, unsigned bytes, const char* does) {
  if (bytes == 0) return;  // the address may be anything
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto is_within = [&](const Piece& piece) { return at >= piece.begin && at + bytes <= piece.end; };
  if (last_hit < pieces.size() && is_within(pieces[last_hit])) return;
  if (in_stacks(address)) return;  // most of what is a thread's own
  const Piece* const piece = piece_of(at);
  if (!piece) return;  // so is this
  if (!is_within(*piece))
    fail("%s %u bytes outside of memory of %zu bytes, %lld bytes from its beginning", does, bytes,
         static_cast<std::size_t>(piece->end - piece->begin), static_cast<long long>(at - piece->begin));
  last_hit = static_cast<std::size_t>(piece - pieces.data());
}

namespace {

// A GPU refuses what begins at no multiple of its size. The host's compiler may join words of a thread's own
// memory.
void check_alignment(const void* address, unsigned bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (host_gpu_watches && at % bytes != 0 && (in_shared_memory(at) || piece_of(at))) aligned(address, bytes);
}
void reads(const void* address, unsigned bytes) {
  if (!host_gpu_watches) return;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (in_shared_memory(at))
    will_use(static_cast<unsigned>(at - reinterpret_cast<std::uintptr_t>(host_gpu_window)), bytes);
  else
    check_global(address, bytes, "it reads");
}
void writes(const void* address, unsigned bytes) {
  if (!host_gpu_watches) return;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (in_shared_memory(at))
    will_write(static_cast<unsigned>(at - reinterpret_cast<std::uintptr_t>(host_gpu_window)), bytes, false);
  else
    check_global(address, bytes, "it writes");
}

}  // namespace
}  // namespace host_gpu

#define HOST_GPU_ACCESS(bytes)                        \
  void __tsan_read##bytes(void* address) {            \
    host_gpu::check_alignment(address, bytes);        \
    host_gpu::reads(address, bytes);                  \
  }                                                   \
  void __tsan_write##bytes(void* address) {           \
    host_gpu::check_alignment(address, bytes);        \
    host_gpu::writes(address, bytes);                 \
  }                                                   \
  void __tsan_unaligned_read##bytes(void* address) {  \
    host_gpu::reads(address, bytes);                  \
  }                                                   \
  void __tsan_unaligned_write##bytes(void* address) { \
    host_gpu::writes(address, bytes);                 \
  }
extern "C" {
HOST_GPU_ACCESS(1)
HOST_GPU_ACCESS(2)
HOST_GPU_ACCESS(4)
HOST_GPU_ACCESS(8)
HOST_GPU_ACCESS(16)
void __tsan_read_range(void* address, long bytes) {
  host_gpu::reads(address, static_cast<unsigned>(bytes));
}
void __tsan_write_range(void* address, long bytes) {
  host_gpu::writes(address, static_cast<unsigned>(bytes));
}
void __tsan_init() {}
}
