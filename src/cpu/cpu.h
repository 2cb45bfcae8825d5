// What the CPU offers to other folders: its backend and its algorithms, one function each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "contract/backend.h"

namespace convtune::cpu {

Backend& backend();                              // the CPU, with the number of threads of this moment
void set_threads(int threads);                   // from now on; at least 1
const Algorithm& winograd();                     // winograd/winograd.cpp
const Algorithm& winograd_rows();                // winograd/winograd_rows.cpp
const Algorithm& winograd_filters();             // winograd/winograd_filters.cpp
const Algorithm& direct();                       // direct/direct.cpp
const Algorithm& direct_depthwise();             // depthwise/depthwise.cpp
const Algorithm& amx();                          // amx/amx.cpp
const Algorithm& implicit_gemm();                // implicit_gemm/implicit_gemm.cpp
const Algorithm& reference();                    // reference.cpp
const Algorithm* onednn();                       // onednn/; null where none was found
std::string onednn_version();                    // "3.2.0", or why there is none
std::string describe_onednn();                   // its version and file, or why there is none
bool onednn_is_unloadable();                     // whether its file is there and could not be loaded
std::string describe_caches(const DeviceInfo&);  // their sizes, and how far measurements reach past them

// Cycles over all threads as time, so that algorithms' estimates can be compared. Only their ratios count,
// and a clock of 3 GHz is near any processor's.
inline double microseconds(double cycles, const DeviceInfo& on) {
  return cycles / (3000.0 * on.units);
}

// The ceilings: fused multiply-adds a second and copied bytes a second with `threads` threads, in memory of
// `on` and past its caches.
double measure_flops_per_second(int threads);
double measure_bytes_per_second(int threads, Backend& on);

}  // namespace convtune::cpu
