// A GPU of this machine as a Target: limits and clocks from the driver. The rates of the tensor cores
// are no attribute of a device; they follow from the compute capability.
#include "cuda/backend/cuda.h"
#include "cuda/device/driver.h"
#include "model/target_of.h"

namespace convtune::cuda {
namespace {

// CUdevice_attribute, by its values in cuda.h.
enum Attribute {
  kThreadsPerBlock = 1,
  kWarpSize = 10,
  kClockKilohertz = 13,
  kMultiprocessors = 16,
  kMemoryClockKilohertz = 36,
  kMemoryBusBits = 37,
  kL2Bytes = 38,
  kThreadsPerMultiprocessor = 39,
  kSmemPerMultiprocessor = 81,
  kRegistersPerMultiprocessor = 82,
  kSmemPerBlock = 97,  // with the opt-in that convtune's kernels make
  kBlocksPerMultiprocessor = 106,
  kSmemReserved = 111,
};

}  // namespace

Target device_target(Device device) {
  const DeviceInfo& info = backend(device).info();
  CUdevice handle = 0;
  check(driver().cuDeviceGet(&handle, device.index), "opening device {}", to_string(device));
  const auto ask = [&](Attribute which) {
    int value = 0;
    check(driver().cuDeviceGetAttribute(&value, which, handle), "asking {} for attribute {}",
          to_string(device), static_cast<int>(which));
    return value;
  };
  Target target;
  target.capability = info.capability;
  const CapabilityFacts facts = capability_facts(info.capability);
  target.name = to_string(device);
  target.product = info.name;
  target.architecture = facts.architecture;
  target.multiprocessors = ask(kMultiprocessors);
  target.clock_mhz = ask(kClockKilohertz) / 1e3;
  target.bandwidth_gb_s = 2.0 * ask(kMemoryClockKilohertz) * (ask(kMemoryBusBits) / 8.0) / 1e6;
  target.tf32_tflops = tf32_tflops_of(facts, target.product, target.multiprocessors, target.clock_mhz);
  target.bf16_tflops = target.fp16_tflops = 2 * target.tf32_tflops;
  target.registers_per_multiprocessor = ask(kRegistersPerMultiprocessor);
  target.threads_per_block = ask(kThreadsPerBlock);
  target.threads_per_multiprocessor = ask(kThreadsPerMultiprocessor);
  target.warp_size = ask(kWarpSize);
  target.warps_per_multiprocessor = target.threads_per_multiprocessor / target.warp_size;
  target.blocks_per_multiprocessor = ask(kBlocksPerMultiprocessor);
  target.smem_per_multiprocessor = ask(kSmemPerMultiprocessor);
  target.smem_per_block = ask(kSmemPerBlock);
  target.smem_reserved = ask(kSmemReserved);
  target.l2_bytes = ask(kL2Bytes);
  return target;
}

}  // namespace convtune::cuda
