// The CPU as a device: its memory, its stopwatch, its threads and its two ceilings.
#pragma once

#include <string>

#include "contract/backend.h"
#include "convtune/device.h"

namespace convtune::cpu {

Backend& backend();                              // the CPU, with the number of threads of this moment
void set_threads(int threads);                   // from now on; at least 1
void set_executor(const CpuExecutor*);           // from now on, with its number of threads; null: as at first
std::string describe_threads();                  // how many are used, whose they are, and what limits them
std::string describe_caches(const DeviceInfo&);  // their sizes, and how far measurements reach past them

// The ceilings: fused multiply-adds a second and copied bytes a second with `threads` threads, in memory of
// `on` and past its caches.
double measure_flops_per_second(int threads);
double measure_bytes_per_second(int threads, Backend& on);

}  // namespace convtune::cpu
