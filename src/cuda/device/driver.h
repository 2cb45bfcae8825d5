// The NVIDIA driver, found while the program runs: the functions that convtune calls, with result codes
// turned into Error. Declared here by hand, so that a build needs no CUDA header.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/library.h"
#include "convtune/error.h"

namespace convtune::cuda {

// As in NVIDIA's cuda.h, whose names these are: what is passed is what that header says.
using CUresult = int;  // 0 is success
constexpr CUresult kOutOfMemory = 2;
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUuserObject = struct CUuserObject_st*;

// CUlaunchAttribute and CUlaunchConfig of cuda.h.
struct LaunchAttribute {
  int id = 0;
  std::int32_t padding = 0;
  int value[16] = {};  // a union of 64 bytes
};
struct LaunchConfig {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1;
  unsigned dynamic_smem_bytes = 0;
  CUstream stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};

// CUDA_MEMCPY2D of cuda.h, from and to device memory.
struct Copy2D {
  std::size_t from_x = 0, from_y = 0;
  int from_type = 2, from_padding = 0;  // CU_MEMORYTYPE_DEVICE
  const void* from_host = nullptr;
  CUdeviceptr from = 0;
  void* from_array = nullptr;
  std::size_t from_pitch = 0, to_x = 0, to_y = 0;
  int to_type = 2, to_padding = 0;
  void* to_host = nullptr;
  CUdeviceptr to = 0;
  void* to_array = nullptr;
  std::size_t to_pitch = 0, bytes = 0, rows = 0;
};

// The functions, by the names that cuda.h gives them, in the form that they have in CUDA 12.0.
struct Driver {
  CUresult (*cuInit)(unsigned flags);
  CUresult (*cuDriverGetVersion)(int* version);
  CUresult (*cuGetErrorName)(CUresult, const char** name);
  CUresult (*cuGetErrorString)(CUresult, const char** text);
  CUresult (*cuDeviceGetCount)(int* count);
  CUresult (*cuDeviceGet)(CUdevice*, int ordinal);
  CUresult (*cuDeviceGetName)(char* name, int bytes, CUdevice);
  CUresult (*cuDeviceGetAttribute)(int* value, int attribute, CUdevice);
  CUresult (*cuDeviceTotalMem)(std::size_t* bytes, CUdevice);
  CUresult (*cuDeviceGetPCIBusId)(char* id, int bytes, CUdevice);
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice);
  CUresult (*cuCtxGetCurrent)(CUcontext*);
  CUresult (*cuCtxPushCurrent)(CUcontext);
  CUresult (*cuCtxPopCurrent)(CUcontext*);
  CUresult (*cuCtxSynchronize)();
  CUresult (*cuMemAlloc)(CUdeviceptr*, std::size_t bytes);
  CUresult (*cuMemFree)(CUdeviceptr);
  CUresult (*cuMemGetInfo)(std::size_t* free, std::size_t* total);
  CUresult (*cuMemcpyHtoD)(CUdeviceptr to, const void* from, std::size_t bytes);
  CUresult (*cuMemcpyDtoH)(void* to, CUdeviceptr from, std::size_t bytes);
  CUresult (*cuMemcpyDtoDAsync)(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream);
  CUresult (*cuMemcpy2DAsync)(const Copy2D*, CUstream);
  CUresult (*cuMemsetD2D8Async)(CUdeviceptr, std::size_t pitch, unsigned char value, std::size_t bytes,
                                std::size_t rows, CUstream);
  CUresult (*cuMemsetD8Async)(CUdeviceptr, unsigned char value, std::size_t bytes, CUstream);
  CUresult (*cuMemsetD32Async)(CUdeviceptr, unsigned value, std::size_t words, CUstream);
  CUresult (*cuStreamCreate)(CUstream*, unsigned flags);
  CUresult (*cuStreamDestroy)(CUstream);
  CUresult (*cuStreamSynchronize)(CUstream);
  CUresult (*cuStreamGetId)(CUstream, std::uint64_t* id);
  // The function of CUDA 11.3 to 12.2: the last three, which may be null, are the graph and what it waits
  // for.
  CUresult (*cuStreamGetCaptureInfo)(CUstream, int* status, std::uint64_t* id, CUgraph* graph,
                                     const void* dependencies, std::size_t* count);
  CUresult (*cuUserObjectCreate)(CUuserObject*, void* pointer, void (*destroy)(void* pointer),
                                 unsigned references, unsigned flags);
  CUresult (*cuUserObjectRelease)(CUuserObject, unsigned references);
  CUresult (*cuGraphRetainUserObject)(CUgraph, CUuserObject, unsigned references, unsigned flags);
  CUresult (*cuThreadExchangeStreamCaptureMode)(int* mode);
  CUresult (*cuEventCreate)(CUevent*, unsigned flags);
  CUresult (*cuEventDestroy)(CUevent);
  CUresult (*cuEventRecord)(CUevent, CUstream);
  CUresult (*cuEventSynchronize)(CUevent);
  CUresult (*cuEventElapsedTime)(float* milliseconds, CUevent start, CUevent stop);
  CUresult (*cuModuleLoadData)(CUmodule*, const void* image);
  CUresult (*cuModuleUnload)(CUmodule);
  CUresult (*cuModuleGetFunction)(CUfunction*, CUmodule, const char* name);
  CUresult (*cuFuncGetAttribute)(int* value, int attribute, CUfunction);
  CUresult (*cuFuncSetAttribute)(CUfunction, int attribute, int value);
  CUresult (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int* blocks, CUfunction, int threads,
                                                          std::size_t dynamic_smem_bytes);
  CUresult (*cuLaunchKernelEx)(const LaunchConfig*, CUfunction, void** arguments, void** extra);
  // Tensor maps for TMA; the enums of cuda.h as int. Null with a driver that has none.
  CUresult (*cuTensorMapEncodeTiled)(void* map_of_128_bytes, int data_type, std::uint32_t rank, void* address,
                                     const std::uint64_t* extents, const std::uint64_t* strides_bytes,
                                     const std::uint32_t* box, const std::uint32_t* element_strides,
                                     int interleave, int swizzle, int l2_promotion, int out_of_bounds_fill);
  CUresult (*cuTensorMapEncodeIm2col)(void* map_of_128_bytes, int data_type, std::uint32_t rank,
                                      void* address, const std::uint64_t* extents,
                                      const std::uint64_t* strides_bytes, const int* lower_corner,
                                      const int* upper_corner, std::uint32_t channels_per_pixel,
                                      std::uint32_t pixels_per_column, const std::uint32_t* element_strides,
                                      int interleave, int swizzle, int l2_promotion, int out_of_bounds_fill);

  int version = 0;  // the newest CUDA that it runs: 13000 for 13.0
};

// The driver, loaded and initialised once in a process; null where there is none that can be used.
const Driver* find_driver();
// As above, or Error{no_device} with the reason.
const Driver& driver();
// For people: the driver's version and file, or why there is none.
std::string describe_driver();

// Throws for a result that is not success: its name and text, after what was attempted. An error that
// has broken the device for this process says so.
[[noreturn]] void throw_driver_error(CUresult result, const std::string& attempted);
template <class... Args>
void check(CUresult result, fmt::format_string<Args...> attempted, Args&&... args) {
  if (result != 0) throw_driver_error(result, fmt::format(attempted, std::forward<Args>(args)...));
}

// The context that a device shares with every library in the process (PyTorch, cuDNN); made at the first
// call, with no flag of it touched, and kept.
CUcontext primary_context(int device);

// Makes a device current on this thread while it lives; what was current before is so again after.
// Every driver call that works on a device needs one.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  bool pushed_ = false;
};

// While one lives, this thread may allocate, load and free though a stream is being captured: for what a
// graph has no part in.
class BesideCapture {
 public:
  BesideCapture() { exchange(); }
  ~BesideCapture() { exchange(); }
  BesideCapture(const BesideCapture&) = delete;
  BesideCapture& operator=(const BesideCapture&) = delete;

 private:
  void exchange();
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED, then what was there before
};

// For destructors: runs `release` with the device current. A device that is lost keeps what it has.
template <class Release>
void release_on(int device, const Release& release) noexcept {
  try {
    const DeviceScope scope(device);
    release();
  } catch (const Error&) {
  }
}

// How many devices the driver shows to this process; 0 without a driver.
int device_count();

}  // namespace convtune::cuda
