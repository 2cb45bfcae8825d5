// libcuda.so.1 by soname, its functions by cuGetProcAddress, contexts by cuDevicePrimaryCtxRetain.
#include "cuda/device/driver.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "base/fork_gate.h"

namespace convtune::cuda {
namespace {

constexpr int kOldestVersion = 12000;  // the first with the cubins of NVRTC 12
constexpr CUresult kNotInitialized = 3, kNoDevice = 100;

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The error broke the context: from now on every call of this process on that device fails. The codes of
// which cuda.h says so, and memory errors that could not be corrected.
bool is_sticky(CUresult result) {
  constexpr CUresult kSticky[] = {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 911};
  return std::find(std::begin(kSticky), std::end(kSticky), result) != std::end(kSticky);
}

struct Found {
  std::optional<Driver> driver;
  std::string detail;
};

using GetProcAddress = CUresult(const char* name, void** function, int version, std::uint64_t flags,
                                int* status);

// Every function of the table; the name of the first that is not there.
std::string bind_all(Driver& driver, GetProcAddress* get) {
  std::string missing;
  const auto bind = [&](auto*& function, const char* name, bool needed = true) {
    void* address = nullptr;
    int status = 0;
    if (get(name, &address, kOldestVersion, 0, &status) != 0) address = nullptr;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    if (address == nullptr && needed && missing.empty()) missing = name;
  };
  bind(driver.cuGetErrorName, "cuGetErrorName");
  bind(driver.cuGetErrorString, "cuGetErrorString");
  bind(driver.cuDeviceGetCount, "cuDeviceGetCount");
  bind(driver.cuDeviceGet, "cuDeviceGet");
  bind(driver.cuDeviceGetName, "cuDeviceGetName");
  bind(driver.cuDeviceGetAttribute, "cuDeviceGetAttribute");
  bind(driver.cuDeviceTotalMem, "cuDeviceTotalMem");
  bind(driver.cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId");
  bind(driver.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  bind(driver.cuCtxGetCurrent, "cuCtxGetCurrent");
  bind(driver.cuCtxPushCurrent, "cuCtxPushCurrent");
  bind(driver.cuCtxPopCurrent, "cuCtxPopCurrent");
  bind(driver.cuCtxSynchronize, "cuCtxSynchronize");
  bind(driver.cuMemAlloc, "cuMemAlloc");
  bind(driver.cuMemFree, "cuMemFree");
  bind(driver.cuMemGetInfo, "cuMemGetInfo");
  bind(driver.cuMemcpyHtoD, "cuMemcpyHtoD");
  bind(driver.cuMemcpyDtoH, "cuMemcpyDtoH");
  bind(driver.cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync");
  bind(driver.cuMemcpy2DAsync, "cuMemcpy2DAsync");
  bind(driver.cuMemsetD2D8Async, "cuMemsetD2D8Async");
  bind(driver.cuMemsetD8Async, "cuMemsetD8Async");
  bind(driver.cuMemsetD32Async, "cuMemsetD32Async");
  bind(driver.cuStreamCreate, "cuStreamCreate");
  bind(driver.cuStreamDestroy, "cuStreamDestroy");
  bind(driver.cuStreamSynchronize, "cuStreamSynchronize");
  bind(driver.cuStreamGetId, "cuStreamGetId");
  bind(driver.cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo");
  bind(driver.cuUserObjectCreate, "cuUserObjectCreate");
  bind(driver.cuUserObjectRelease, "cuUserObjectRelease");
  bind(driver.cuGraphRetainUserObject, "cuGraphRetainUserObject");
  bind(driver.cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  bind(driver.cuEventCreate, "cuEventCreate");
  bind(driver.cuEventDestroy, "cuEventDestroy");
  bind(driver.cuEventRecord, "cuEventRecord");
  bind(driver.cuEventSynchronize, "cuEventSynchronize");
  bind(driver.cuEventElapsedTime, "cuEventElapsedTime");
  bind(driver.cuModuleLoadData, "cuModuleLoadData");
  bind(driver.cuModuleUnload, "cuModuleUnload");
  bind(driver.cuModuleGetFunction, "cuModuleGetFunction");
  bind(driver.cuFuncGetAttribute, "cuFuncGetAttribute");
  bind(driver.cuFuncSetAttribute, "cuFuncSetAttribute");
  bind(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  bind(driver.cuLaunchKernelEx, "cuLaunchKernelEx");
  bind(driver.cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled", false);
  bind(driver.cuTensorMapEncodeIm2col, "cuTensorMapEncodeIm2col", false);
  return missing;
}

Found look_for_driver() {
  // By soname from the loader alone: the driver belongs to the machine, and never to a toolkit.
  const Library library = Library::open({"the NVIDIA driver", nullptr, {"libcuda.so.1"}, {}, false});
  if (!library) return {{}, library.why_not()};
  Driver driver{};
  GetProcAddress* get = nullptr;
  if (!library.bind_if_there(driver.cuInit, "cuInit") ||
      !library.bind_if_there(driver.cuDriverGetVersion, "cuDriverGetVersion"))
    return {{}, library.path() + " is not an NVIDIA driver: it has no function cuInit"};
  if (driver.cuDriverGetVersion(&driver.version) != 0 || driver.version < kOldestVersion ||
      !library.bind_if_there(get, "cuGetProcAddress_v2"))
    return {{},
            fmt::format("{} runs CUDA {}, and convtune needs {} or newer; update the NVIDIA driver",
                        library.path(), version_text(driver.version), version_text(kOldestVersion))};
  if (const std::string missing = bind_all(driver, get); !missing.empty())
    return {{}, library.path() + " has no function " + missing};
  if (const CUresult result = driver.cuInit(0); result != 0) {
    const char *name = "unknown", *text = "unknown";
    driver.cuGetErrorName(result, &name);
    driver.cuGetErrorString(result, &text);
    return {{}, fmt::format("{} does not start: {} ({})", library.path(), name, text)};
  }
  return {driver, fmt::format("runs CUDA up to {}; {}", version_text(driver.version), library.path())};
}

const Found& found() {
  return once([] { return look_for_driver(); });
}

}  // namespace

const Driver* find_driver() {
  return found().driver ? &*found().driver : nullptr;
}

const Driver& driver() {
  if (!found().driver)
    throw Error(ErrorKind::no_device, "there is no NVIDIA driver that can be used: " + found().detail);
  return *found().driver;
}

std::string describe_driver() {
  return found().detail;
}

void throw_driver_error(CUresult result, const std::string& attempted) {
  const char *name = nullptr, *text = nullptr;
  if (const Driver* api = find_driver()) {
    api->cuGetErrorName(result, &name);
    api->cuGetErrorString(result, &text);
  }
  std::string message = fmt::format("{} failed: {} ({})", attempted, name != nullptr ? name : "CUDA error",
                                    text != nullptr ? text : std::to_string(result));
  if (is_sticky(result))
    message += "; the device's state in this process is lost: stop using it and start a new process";
  if (result == kNotInitialized)  // the driver was initialised when it was found
    message += "; a process that was forked from one that used the driver cannot use it: spawn it instead";
  throw Error(result == kOutOfMemory ? ErrorKind::unsupported
              : result == kNoDevice  ? ErrorKind::no_device
              : is_sticky(result)    ? ErrorKind::device_lost
                                     : ErrorKind::internal,
              message);
}

CUcontext primary_context(int device) {
  if (device < 0 || device >= device_count())
    throw Error(ErrorKind::no_device,
                fmt::format("there is no device cuda:{}; the driver shows {}", device, device_count()));
  // By device; never given back, since others use them too. No lock once it is there: every launch asks.
  // Never destroyed: backends, which are, free their memory at the program's end.
  auto& contexts =
      *once([] { return new std::vector<std::atomic<CUcontext>>(static_cast<std::size_t>(device_count())); });
  std::atomic<CUcontext>& context = contexts[static_cast<std::size_t>(device)];
  if (CUcontext made = context.load(std::memory_order_acquire)) return made;
  static constinit Mutex mutex;
  const std::lock_guard lock(mutex);
  if (CUcontext made = context.load(std::memory_order_acquire)) return made;
  CUdevice handle = 0;
  CUcontext made = nullptr;
  check(driver().cuDeviceGet(&handle, device), "opening device cuda:{}", device);
  check(driver().cuDevicePrimaryCtxRetain(&made, handle), "making the context of cuda:{}", device);
  context.store(made, std::memory_order_release);
  return made;
}

void BesideCapture::exchange() {
  driver().cuThreadExchangeStreamCaptureMode(&mode_);
}

DeviceScope::DeviceScope(int device) {
  const CUcontext wanted = primary_context(device);
  CUcontext current = nullptr;
  check(driver().cuCtxGetCurrent(&current), "asking for the current context");
  if (current == wanted) return;
  check(driver().cuCtxPushCurrent(wanted), "making cuda:{} current", device);
  pushed_ = true;
}

DeviceScope::~DeviceScope() {
  CUcontext popped = nullptr;
  if (pushed_) driver().cuCtxPopCurrent(&popped);
}

int device_count() {
  return once([] {
    int devices = 0;
    const Driver* api = find_driver();
    return api != nullptr && api->cuDeviceGetCount(&devices) == 0 ? devices : 0;
  });
}

}  // namespace convtune::cuda
