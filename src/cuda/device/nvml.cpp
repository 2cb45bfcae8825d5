// See nvml.h. The library is never shut down: others in the process may use it, too.
#include "cuda/device/nvml.h"

#include <fmt/format.h>

#include "base/fork_gate.h"
#include "base/library.h"

namespace convtune::cuda {
namespace {

constexpr int kSmClock = 1;  // NVML_CLOCK_SM

struct Reason {
  std::uint64_t bit;
  const char* words;
};
// nvmlClocksEventReason... and, before 12.2, nvmlClocksThrottleReason...: the same bits.
constexpr std::uint64_t kHwSlowdown = 0x8;
constexpr Reason kOfHeatOrPower[] = {
    {0x20, "it is too hot (software thermal slowdown)"},
    {0x40, "it is too hot (hardware thermal slowdown)"},
    {0x80, "its power supply has it brake (hardware power brake)"},
};

}  // namespace

std::string clock_drift_in_words(const ClockEvents& events) {
  std::string words;
  for (const Reason& reason : kOfHeatOrPower)
    if ((events.reasons & reason.bit) != 0) words += (words.empty() ? "" : ", ") + std::string(reason.words);
  // Set beside the others; alone it says no more than that.
  if (words.empty() && (events.reasons & kHwSlowdown) != 0)
    words = "its hardware lowers the clock (slowdown)";
  if (!words.empty() && events.sm_mhz > 0) words += fmt::format(", at {} MHz", events.sm_mhz);
  return words;
}

Nvml Nvml::open() {
  Nvml nvml;
  // By soname from the loader alone: it belongs to the driver.
  const Library library = Library::open({"NVML", "CONVTUNE_NVML", {"libnvidia-ml.so.1"}, {}, false});
  if (!library) {
    nvml.detail_ = library.why_not();
    return nvml;
  }
  auto& reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons_;
  const bool has_all =
      library.bind_if_there(nvml.nvmlInit_v2_, "nvmlInit_v2") &&
      library.bind_if_there(nvml.nvmlDeviceGetHandleByPciBusId_v2_, "nvmlDeviceGetHandleByPciBusId_v2") &&
      (library.bind_if_there(reasons, "nvmlDeviceGetCurrentClocksEventReasons") ||
       library.bind_if_there(reasons, "nvmlDeviceGetCurrentClocksThrottleReasons")) &&
      library.bind_if_there(nvml.nvmlDeviceGetClockInfo_, "nvmlDeviceGetClockInfo");
  if (!has_all) {
    nvml.detail_ = library.path() + " does not have the functions that tell why a clock is lowered";
  } else if (const int result = nvml.nvmlInit_v2_(); result != 0) {
    nvml.detail_ = fmt::format("{} does not start: error {}", library.path(), result);
  } else {
    nvml.started_ = true;
    nvml.detail_ = library.path();
  }
  return nvml;
}

std::optional<ClockEvents> Nvml::clock_events(const std::string& pci_bus_id) const {
  Handle handle = nullptr;
  unsigned long long reasons = 0;
  if (!started_ || pci_bus_id.empty() ||
      nvmlDeviceGetHandleByPciBusId_v2_(pci_bus_id.c_str(), &handle) != 0 ||
      nvmlDeviceGetCurrentClocksEventReasons_(handle, &reasons) != 0)
    return std::nullopt;
  ClockEvents events{reasons, 0};
  if (nvmlDeviceGetClockInfo_(handle, kSmClock, &events.sm_mhz) != 0) events.sm_mhz = 0;
  return events;
}

const Nvml& nvml() {
  return once([] { return Nvml::open(); });
}

}  // namespace convtune::cuda
