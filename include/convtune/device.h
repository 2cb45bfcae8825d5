// Lists the devices of this machine, and the libraries that were looked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convtune/capability.h"
#include "convtune/tensor.h"

namespace convtune {

struct DeviceInfo {
  Device device;
  std::string name;              // "AMD EPYC 9575F", "NVIDIA H100 80GB HBM3"
  std::string fingerprint;       // what a record depends on: model, instruction set or capability, threads
  std::string isa;               // "avx512", "avx2", "sse4", "neon"; "sm_90a"
  ComputeCapability capability;  // of a GPU
  int units = 1;                 // CPU threads in use, or streaming multiprocessors
  std::int64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // l1, l2 a core; l3 shared; 0 = unknown or absent
  std::int64_t memory_bytes = 0;                          // of a CPU: no more than its container may use
};

// Every device, best first; the CPU is always the last.
std::vector<DeviceInfo> devices();

// The device that "auto" means: devices().front().
Device best_device();

// Throws Error{no_device} that lists what there is.
DeviceInfo device_info(Device);

// Sets how many CPU threads a convolution may use from now on. Without a call there are as many as
// OMP_NUM_THREADS says, and no more than the processors that the process may use by its affinity and its
// control groups' quota. Plans keep the number they were made with.
void set_cpu_threads(int threads);
constexpr int kMostCpuThreads = 1024;

// Threads of the program's own that convolutions run on in place of convtune's.
struct CpuExecutor {
  int concurrency = 1;  // threads that it has for one call, the caller's counted
  // Calls task(task_context, i) for each i in [0, tasks), on any threads, and returns when all of those calls
  // have. One that begins late finds its work done by the others. Called by any thread that runs a
  // convolution, by several at a time; must not throw.
  void (*parallel_for)(void* context, int tasks, void (*task)(void* task_context, int index),
                       void* task_context) = nullptr;
  void* context = nullptr;
};
// From now on, convolutions run on the executor, and new plans are for as many threads as its concurrency;
// null: on convtune's threads again, as many as at first. What its context points to must stay until another
// one is set and no convolution runs that began before. Vendors' libraries keep the threads that they have.
void set_cpu_executor(const CpuExecutor* executor);
// For a program whose other work runs on GNU's OpenMP, as PyTorch's does: whether convolutions run in
// OpenMP's regions, too, from now on. Its threads wait on their processors for some milliseconds after each
// region, and others hardly get them. A region waits for all of its threads: after one that waited long
// because processors are busy, convolutions run on convtune's threads for a while.
void share_openmp_threads(bool share);
// For work that runs on other streams beside convolutions: what this thread launches from now on takes at
// most that share of a GPU's multiprocessors, where a kernel's blocks go from tile to tile; above 0, and 1 is
// all of them. Plans, machine code and results, to the bit, stay what they are.
void set_gpu_share(double share);

// One thing that convtune looked for: a library, an instruction set, a folder.
struct Probe {
  std::string what;  // "oneDNN", "NVIDIA driver", "records folder"
  bool found = false;
  std::string detail;  // version and place, or why not
};
std::vector<Probe> probe_environment();

}  // namespace convtune
