// Declares the lookups that find_target() is made of, for the other folders.
#pragma once

#include <optional>

#include "convtune/device.h"
#include "convtune/target.h"
#include "model/capability_facts.h"

namespace convtune {

// A built-in target, or nothing.
std::optional<Target> known_target(std::string_view name);

// Returns a device of which only the capability is known: the capability's limits, and
// the rates of a built-in target like it, divided among `multiprocessors`.
Target typical_target(ComputeCapability capability, int multiprocessors);
// Returns a device's target, where the search spaces and the model of time look up what a GPU has.
Target target_of(const DeviceInfo& device);

// Returns the peak of a product's tensor cores: TFLOPS of dense tf32.
double tf32_tflops_of(const CapabilityFacts& facts, std::string_view product, int multiprocessors,
                      double clock_mhz);

}  // namespace convtune
