// cuMemAlloc and cuMemFree.
#include "cuda/device/memory.h"

#include <algorithm>

#include "cuda/device/driver.h"

namespace convtune::cuda {
namespace {

constexpr CUresult kOutOfMemory = 2;

}  // namespace

std::shared_ptr<void> allocate(int device, std::size_t bytes) {
  const DeviceScope scope(device);
  CUdeviceptr memory = 0;
  const CUresult result = driver().cuMemAlloc(&memory, std::max<std::size_t>(bytes, 1));
  if (result == kOutOfMemory) {
    std::size_t free = 0, total = 0;
    driver().cuMemGetInfo(&free, &total);
    throw Error(
        ErrorKind::unsupported,
        fmt::format("not enough memory on cuda:{}: {} bytes asked for, {} of {} free; use a smaller batch",
                    device, bytes, free, total));
  }
  check(result, "allocating {} bytes on cuda:{}", bytes, device);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are integers
  return {reinterpret_cast<void*>(memory), [device](void* pointer) {
            release_on(device, [&] { driver().cuMemFree(reinterpret_cast<CUdeviceptr>(pointer)); });
          }};
}

}  // namespace convtune::cuda
