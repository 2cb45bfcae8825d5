// Declares the NVIDIA GPUs' side for the layers above: their devices, their backends and their ceilings. On a
// machine without a driver there are no devices, and nothing fails.
#pragma once

#include <string>
#include <vector>

#include "contract/backend.h"
#include "convtune/target.h"

namespace convtune::cuda {

// The devices that convtune can use, in the driver's order: compute capability 8.0 and up, and NVRTC.
const std::vector<DeviceInfo>& devices();
// Made once in a process. Throws Error{no_device} unless devices() has it.
Backend& backend(Device device);
// Reports the search for the parts that GPUs need: the driver, NVRTC, cuDNN, and each GPU that the driver
// shows.
std::vector<Probe> probes();

// A device as a target: its limits as the driver says, its tensor cores' rates by its capability.
Target device_target(Device device);

// The ceilings of a device, measured (ceilings.cpp).
Ceilings measure_ceilings(Backend& backend);

}  // namespace convtune::cuda
