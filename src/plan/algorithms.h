// THE table: every algorithm of every backend, best first within a device kind, reference last.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "contract/backend.h"

namespace convtune {

// The algorithms of one kind of device, in table order.
const std::vector<const Algorithm*>& algorithms(Device::Kind);

// Throws Error{invalid_argument} that lists the known names.
const Algorithm& find_algorithm(Device::Kind, std::string_view name);

// Names the incumbent on that kind of device: "oneDNN 3.2.0"; empty where no vendor's
// library was found.
std::string vendor_library(Device::Kind);

// The vendor's library that is installed for that kind of device and could not be loaded: "oneDNN"; empty
// where it is loaded or not there. A contest without it proves nothing.
std::string unloadable_vendor_library(Device::Kind);

// The backend of a device, made once in a process. Throws Error{no_device}.
Backend& backend(Device);

}  // namespace convtune
