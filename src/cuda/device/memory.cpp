// cuMemAlloc and cuMemFree.
#include "cuda/device/memory.h"

#include <algorithm>

#include "cuda/device/driver.h"

namespace convtune::cuda {

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

void move_rows(int device, const Rows& rows, Stream stream) {
  constexpr std::size_t kMostPitch = 0x7fffffff;  // limit of 2-D copies
  if (rows.bytes == 0 || rows.count == 0) return;
  const DeviceScope scope(device);
  const Driver& api = driver();
  auto* const on = static_cast<CUstream>(stream);
  const auto move = [&](std::size_t first, std::size_t bytes, std::size_t count) {
    const auto to = reinterpret_cast<CUdeviceptr>(rows.to) + first * rows.to_pitch;
    const auto from = reinterpret_cast<CUdeviceptr>(rows.from) + first * rows.from_pitch;
    if (count == 1)
      return rows.from ? api.cuMemcpyDtoDAsync(to, from, bytes, on) : api.cuMemsetD8Async(to, 0, bytes, on);
    if (!rows.from) return api.cuMemsetD2D8Async(to, rows.to_pitch, 0, bytes, count, on);
    Copy2D copy;
    copy.from = from, copy.from_pitch = rows.from_pitch;
    copy.to = to, copy.to_pitch = rows.to_pitch;
    copy.bytes = bytes, copy.rows = count;
    return api.cuMemcpy2DAsync(&copy, on);
  };
  const auto queue = [&](std::size_t first, std::size_t bytes, std::size_t count) {
    check(move(first, bytes, count), "copying {} rows of {} bytes on cuda:{}", count, bytes, device);
  };
  if (rows.to_pitch == rows.bytes && (!rows.from || rows.from_pitch == rows.bytes))
    return queue(0, rows.bytes * rows.count, 1);
  if (std::max(rows.to_pitch, rows.from_pitch) <= kMostPitch) return queue(0, rows.bytes, rows.count);
  for (std::size_t row = 0; row < rows.count; ++row) queue(row, rows.bytes, 1);
}

}  // namespace convtune::cuda
