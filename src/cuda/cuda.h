// What NVIDIA GPUs offer to the rooms above: their devices, their backends and their algorithms, one
// function each. On a machine without a driver there are no devices, and nothing fails.
#pragma once

#include <string>
#include <vector>

#include "backend.h"
#include "convtune/target.h"

namespace convtune::cuda {

// The devices that convtune can use, in the driver's order: compute capability 8.0 and up, and NVRTC.
const std::vector<DeviceInfo>& devices();
// Made once in a process. Throws Error{no_device} unless devices() has it.
Backend& backend(Device device);
// What was looked for: the driver, NVRTC, cuDNN, and each GPU that the driver shows.
std::vector<Probe> probes();

// A device as a target: its limits as the driver says, its tensor cores' rates by its capability.
Target device_target(Device device);
// One launch of a run(): what the compiler says of the kernel, and how it is launched.
struct Launch {
  std::string kernel;
  int registers = 0, threads = 0;                // a thread; of a block
  std::int64_t spill_bytes = 0, smem_bytes = 0;  // a thread; a block, static and dynamic
  std::int64_t blocks = 0;
};
struct Candidate {
  const Algorithm* algorithm;
  Config config;
};
struct Rehearsed {
  std::vector<Launch> launches;
  std::string failure;  // why there are none
};
// Candidates compiled for a device that need not be here, and what each would launch. `processes` compile
// at once, each for at most `seconds_each`. Throws Error{unsupported} without NVRTC.
std::vector<Rehearsed> rehearse(const Conv2dProblem& problem, const DeviceInfo& device,
                                const std::vector<Candidate>& candidates, int processes, double seconds_each);

// The ceilings of a device, measured (ceilings.cpp).
Ceilings measure_ceilings(Backend& backend);

const Algorithm& direct_stem_sm90();
const Algorithm& direct_fma_sm80();
const Algorithm& direct_depthwise_sm80();
const Algorithm& direct_body_sm90();
const Algorithm& direct_patch_sm90();
const Algorithm& direct_stem_sm80();
const Algorithm& implicit_gemm_sm80();
const Algorithm* cudnn();      // cudnn.cpp; null where cuDNN 9 cannot be loaded
std::string cudnn_version();   // "9.19.0", or why there is none
std::string describe_cudnn();  // for people: version and file, or why there is none

}  // namespace convtune::cuda
