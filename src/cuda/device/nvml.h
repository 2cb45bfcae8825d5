// NVIDIA's management library, found while the program runs and never linked: why a GPU's clock is lower than
// it could be. Without it nobody asks, and rounds in turns must do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace convtune::cuda {

// Holds a GPU's clock readings at one moment.
struct ClockEvents {
  std::uint64_t reasons = 0;  // bits as nvml.h has them
  unsigned sm_mhz = 0;        // 0: it does not say
};

// Reasons that are a fault of the machine: too hot, or short of power. A power limit that the
// work reaches by itself is none; every fast kernel does. Empty where there is none of them.
std::string clock_drift_in_words(const ClockEvents& events);

class Nvml {
 public:
  // Looks for it and starts it. Never throws: an absent one is false.
  static Nvml open();

  explicit operator bool() const { return started_; }
  const std::string& detail() const { return detail_; }  // its file, or why there is none
  // `pci_bus_id`: the driver's, "0000:1b:00.0". Nothing where it knows of no such GPU or may not say.
  std::optional<ClockEvents> clock_events(const std::string& pci_bus_id) const;

 private:
  // As in NVIDIA's nvml.h, whose names these are; 0 is success.
  using Handle = struct nvmlDevice_st*;
  int (*nvmlInit_v2_)() = nullptr;
  int (*nvmlDeviceGetHandleByPciBusId_v2_)(const char*, Handle*) = nullptr;
  int (*nvmlDeviceGetCurrentClocksEventReasons_)(Handle, unsigned long long*) = nullptr;
  int (*nvmlDeviceGetClockInfo_)(Handle, int kind, unsigned* mhz) = nullptr;

  bool started_ = false;
  std::string detail_;
};

// Looked for once in a process.
const Nvml& nvml();

}  // namespace convtune::cuda
