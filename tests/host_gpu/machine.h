// The GPU that this processor stands in for, as device code asks it: called by the twins of src/cuda/ptx
// (cuda/ptx/ here) and by CUDA's own words (device_words.h). A thread of a block is a fiber, and one of them
// runs at a time. Shared memory is addressed as on a GPU, by 32-bit numbers: each block of a cluster has a
// window of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace host_gpu {

struct Extent {
  unsigned x, y, z;
};
struct Position {  // for the thread that runs
  Extent thread, block, grid, block_extent;
  unsigned char* dynamic_shared;
};

// ---- Failures ----
// Ends the launch, with the kernel, the thread and the line of device code that asked.
[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char* format, ...);

// ---- Warps ----
// An instruction at which all lanes of a warp meet; lanes that meet at different ones are a fault.
enum class Meeting {
  syncwarp,
  shuffle,
  all,
  ldmatrix,
  stmatrix,
  mma,
  wgmma,
  wgmma_fence,
  wgmma_commit,
  wgmma_wait,
  registers
};
// `together` is called once, with what each lane brought; null where a lane has ended.
void meet(Meeting what, void* brought, void (*together)(void* const* of_lanes));
void nothing_together(void* const* of_lanes);
void sync_lanes(unsigned mask);  // lanes of the mask alone

// ---- Barriers ----
int barrier(unsigned id, unsigned threads, bool waits, int predicate);  // 0 threads: all of the block
void cluster_arrive(bool tells);
void cluster_wait();
void cluster_sync();
unsigned cluster_rank();
void check_lives(unsigned address);  // fails where it is of a block that has ended
// Registers of a warp's threads from here on. A block has as many as its launch gave; who takes more than
// others have left waits.
void leave_registers(unsigned count);
void take_registers(unsigned count);
void mbarrier_init(unsigned barrier, unsigned arrivals);
void mbarrier_arrive(unsigned barrier, unsigned expected_bytes = 0);
void mbarrier_wait(unsigned barrier, unsigned parity);

// ---- Asynchronous copies ----
void cp_async(unsigned to, const void* from, unsigned bytes, unsigned source_bytes);
void cp_async_commit();
void cp_async_wait(int pending);
void cp_async_arrive(unsigned barrier);
void bulk_load(unsigned to, const void* from, unsigned bytes, unsigned barrier);
void bulk_load_to_all(unsigned to, const void* from, unsigned bytes, unsigned barrier, unsigned mask);
void bulk_send(unsigned to, unsigned from, unsigned bytes, unsigned barrier);  // to another block
void bulk_store(void* to, unsigned from, unsigned bytes);
void bulk_commit();
void bulk_wait(int pending);
void box_load(unsigned to, const void* map, const int* at, int rank, unsigned barrier);
void box_store(const void* map, const int* at, int rank, unsigned from);
void pixels_load(unsigned to, const void* map, const int* at, int rank, const int* on, unsigned barrier);
void fence_proxy_async();

// ---- Products ----
enum class Type { f16, bf16, tf32 };
void ldmatrix(unsigned* to, int matrices, unsigned row, bool transposed);
void stmatrix(unsigned row, const unsigned* from, bool transposed);
void mma(Type type, int k, float* sums, const unsigned* a, const unsigned* b);
struct Wgmma {
  Type type;
  int columns;
  const unsigned* a_registers;  // or null, and `a` describes shared memory
  unsigned long long a, b;
  bool adds, rows_of_n, rows_of_m = false;
};
void wgmma(const Wgmma& what, float* sums);
void wgmma_commit();
void wgmma_wait(int pending);

float half_to_float(unsigned short bits);
unsigned short to_half(float value);
unsigned short to_bfloat(float value);

// ---- Shared memory ----
constexpr unsigned kWindow = 256 << 10;  // addresses of a block
constexpr unsigned kFirst = 1024;        // before it, memory is the system's
// Bytes of memory that nobody has written: finite in every type, since kernels compute again what is not.
constexpr unsigned char kSpoilt = 0x4b;

}  // namespace host_gpu

// Read at every access, so they are plain variables.
extern "C" host_gpu::Position* host_gpu_position;
extern "C" unsigned char* host_gpu_window;  // for the cluster's first block; the others follow
extern "C" unsigned host_gpu_end;           // of a block's shared memory, within its window
extern "C" bool host_gpu_watches;  // accesses are looked at one by one, and others may run between them

namespace host_gpu {

// Before an access where it watches (watch.cpp). will_use(): and what nobody has written is a fault.
void will_read(unsigned address, unsigned bytes);
bool will_load_row(unsigned address);  // a row of 16 bytes; false: its values are anything
void will_use(unsigned address, unsigned bytes);
void will_write(unsigned address, unsigned bytes, bool is_atomic);
void load_words(void* to, unsigned address, unsigned bytes);
void atomic_min(unsigned address, int value);
void atomic_max(unsigned address, int value);

inline unsigned char* at(unsigned address, unsigned bytes, unsigned alignment) {
  const unsigned offset = address % kWindow;
  if (offset < kFirst || offset + bytes > host_gpu_end)
    fail("an access of %u bytes at shared address %u, outside of the block's %u bytes", bytes, address,
         host_gpu_end - kFirst);
  if (address % alignment != 0)
    fail("an access of %u bytes at shared address %u, which is no multiple of %u", bytes, address, alignment);
  return host_gpu_window + address;
}
template <class T>
inline T load(unsigned address) {
  T value;
  std::memcpy(&value, at(address, sizeof(T), sizeof(T)), sizeof(T));
  return value;
}
template <class T>
inline void store(unsigned address, const T& value) {
  std::memcpy(at(address, sizeof(T), sizeof(T)), &value, sizeof(T));
}
// Operands of products, and what a condition drops: it may be of what nobody has written.
template <class T>
inline T load_operand(unsigned address) {
  T value;
  load_words(&value, address, sizeof(T));
  return value;
}
// Global memory is the host's own, but for what vectors ask.
template <class T>
inline T* aligned(T* pointer, unsigned bytes) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % bytes != 0)
    fail("an access of %u bytes at %p, which is no multiple of it", bytes, static_cast<const void*>(pointer));
  return pointer;
}

}  // namespace host_gpu
