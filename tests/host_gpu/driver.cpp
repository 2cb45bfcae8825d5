// libcuda.so.1: the functions of src/cuda/device/driver.h for a device that is this processor. Memory is the
// host's, a stream is done when its function returns, a module is a shared object (nvrtc.cpp), and a launch
// is run(). $CONVTUNE_HOST_GPU says how, as settings_of() reads it at every launch.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>

#include "cluster.h"
#include "image.h"
#include "tensor_maps.h"

namespace {

using Clock = std::chrono::steady_clock;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr int kOk = 0, kRefused = 1, kNoMemory = 2, kNoImage = 200, kNotFound = 500, kLaunchFailed = 719;

struct Function {
  void (*entry)(void**) = nullptr;
  unsigned (*cluster)() = nullptr, (*registers)() = nullptr;
  std::string kernel;
  unsigned most_shared_bytes = 48 << 10;  // that a launch may ask for
};
struct Module {
  void* handle = nullptr;
  std::map<std::string, Function> functions;
};
struct Event {
  Clock::time_point at;
};
struct Copy2D {  // CUDA_MEMCPY2D
  std::size_t from_x, from_y;
  int from_type, from_padding;
  const void* from_host;
  u64 from;
  void* from_array;
  std::size_t from_pitch, to_x, to_y;
  int to_type, to_padding;
  void* to_host;
  u64 to;
  void* to_array;
  std::size_t to_pitch, bytes, rows;
};
struct LaunchConfig {  // a struct of cuda.h
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

host_gpu::Settings current_settings() {
  const char* const text = std::getenv("CONVTUNE_HOST_GPU");
  return host_gpu::settings_of(text ? text : "");
}

std::mutex one_at_a_time;  // launches and the list of memory
std::string last_failure = "refused";
int refuse(std::string why, int result = kRefused) {
  last_failure = std::move(why);
  return result;
}

// ---- Memory: between guards, which every launch must leave alone ----
using host_gpu::kGuard;
constexpr unsigned char kGuardByte = 0xa5;
std::map<u64, std::size_t> allocated;

template <class F>
void for_each_guard(u64 begin, std::size_t bytes, const F& f) {
  auto* const memory = reinterpret_cast<unsigned char*>(begin);
  for (std::size_t i = 0; i < kGuard; ++i) f(memory - kGuard + i), f(memory + bytes + i);
}

std::string damaged_guard() {
  for (const auto& [begin, bytes] : allocated) {
    const unsigned char* damaged = nullptr;
    for_each_guard(begin, bytes, [&](const unsigned char* byte) {
      if (*byte != kGuardByte) damaged = byte;
    });
    if (!damaged) continue;
    char text[160];
    std::snprintf(text, sizeof text, "it wrote outside of memory of %zu bytes, %lld bytes from its beginning",
                  bytes, static_cast<long long>(reinterpret_cast<u64>(damaged) - begin));
    return text;
  }
  return {};
}

// ---- Tensor maps: what the driver refuses ----
const char* why_not(const host_gpu::TensorMap& map) {
  if (reinterpret_cast<u64>(map.base) % 16 != 0) return "its address is no multiple of 16";
  for (int i = 0; i < map.rank; ++i) {
    const auto d = static_cast<std::size_t>(i);
    if (map.extents[d] == 0 || map.extents[d] > 1ull << 32) return "an extent";
    if (map.strides[d] % 16 != 0 || map.strides[d] >= 1ull << 40) return "a stride";
    if (map.box[d] < 1 || (!map.walks && map.box[d] > 256) || map.steps[d] < 1 || map.steps[d] > 8)
      return "a box";
  }
  constexpr unsigned kMost[] = {1 << 20, 32, 64, 128};
  if (map.row_bytes() % 16 != 0 || map.row_bytes() > kMost[map.exchange]) return "the rows of a box";
  return nullptr;
}
int make_map(void* to, host_gpu::TensorMap map) {
  if (const char* const why = why_not(map)) return refuse(std::string("a tensor map: ") + why);
  host_gpu::place(map, to);
  return kOk;
}
host_gpu::TensorMap begin_map(int type, u32 rank, const void* address, const u64* extents, const u64* strides,
                              const u32* steps, int exchange) {
  host_gpu::TensorMap map{.base = address,
                          .element_bytes = type == 7 ? 4 : 2,
                          .rank = static_cast<int>(rank),
                          .exchange = exchange};
  for (u32 i = 0; i < rank; ++i) {
    map.extents[i] = extents[i], map.steps[i] = static_cast<int>(steps[i]);
    if (i + 1 < rank) map.strides[i] = strides[i];
  }
  return map;
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
  try {
    current_settings();
    return kOk;
  } catch (const std::invalid_argument& error) {
    return refuse(error.what());
  }
}
int cuDriverGetVersion(int* version) {
  return *version = 13000, kOk;
}
int cuGetErrorName(int result, const char** name) {
  return *name = result == kLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR", kOk;
}
int cuGetErrorString(int, const char** text) {
  return *text = last_failure.c_str(), kOk;
}
int cuDeviceGetCount(int* count) {
  return *count = 1, kOk;
}
int cuDeviceGet(int* device, int) {
  return *device = 0, kOk;
}
int cuDeviceGetName(char* name, int bytes, int) {
  return std::snprintf(name, static_cast<std::size_t>(bytes), "host GPU"), kOk;
}
int cuDeviceGetAttribute(int* value, int which, int) {
  const host_gpu::Settings settings = current_settings();
  // Attributes of cuda.h, as an H100 or an A100 has them: threads of a block, a warp, clocks, memory, a
  // multiprocessor's room.
  const bool is_90 = settings.capability == 90;
  const std::map<int, int> values = {{1, 1024},
                                     {10, 32},
                                     {13, 1980000},
                                     {16, settings.multiprocessors},
                                     {36, 2619000},
                                     {37, 5120},
                                     {38, 50 << 20},
                                     {39, 2048},
                                     {75, settings.capability / 10},
                                     {76, settings.capability % 10},
                                     {81, (is_90 ? 228 : 164) << 10},
                                     {82, 65536},
                                     {97, (is_90 ? 227 : 163) << 10},
                                     {106, 32},
                                     {111, 1024}};
  const auto found = values.find(which);
  return *value = found == values.end() ? 0 : found->second, kOk;
}
int cuDeviceTotalMem(std::size_t* bytes, int) {
  return *bytes = 8ull << 30, kOk;
}
int cuDeviceGetPCIBusId(char* id, int bytes, int) {
  return std::snprintf(id, static_cast<std::size_t>(bytes), "0000:00:00.0"), kOk;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  static int one;
  return *context = &one, kOk;
}
int cuCtxGetCurrent(void** context) {
  return cuDevicePrimaryCtxRetain(context, 0);
}
int cuCtxPushCurrent(void*) {
  return kOk;
}
int cuCtxPopCurrent(void** context) {
  return *context = nullptr, kOk;
}
int cuCtxSynchronize() {
  return kOk;
}

int cuMemAlloc(u64* to, std::size_t bytes) {
  const std::lock_guard lock(one_at_a_time);
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes + 2 * kGuard) != 0) return refuse("no memory", kNoMemory);
  std::memset(memory, 0xff, bytes + 2 * kGuard);  // NaN in every type
  *to = reinterpret_cast<u64>(memory) + kGuard;
  for_each_guard(*to, bytes, [](unsigned char* byte) { *byte = kGuardByte; });
  allocated[*to] = bytes;
  host_gpu::remember_memory(*to, bytes);
  return kOk;
}
int cuMemFree(u64 memory) {
  const std::lock_guard lock(one_at_a_time);
  if (allocated.erase(memory) == 0) return refuse("memory that was not allocated");
  host_gpu::forget_memory(memory);
  return std::free(reinterpret_cast<void*>(memory - kGuard)), kOk;
}
int cuMemGetInfo(std::size_t* free, std::size_t* total) {
  return *free = *total = 8ull << 30, kOk;
}
int cuMemcpyHtoD(u64 to, const void* from, std::size_t bytes) {
  host_gpu::see_canaries(to, from, bytes);
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), kOk;
}
int cuMemcpyDtoH(void* to, u64 from, std::size_t bytes) {
  return std::memcpy(to, reinterpret_cast<void*>(from), bytes), kOk;
}
int cuMemcpyDtoDAsync(u64 to, u64 from, std::size_t bytes, void*) {
  return std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), kOk;
}
int cuMemcpy2DAsync(const Copy2D* copy, void*) {
  for (std::size_t row = 0; row < copy->rows; ++row)
    std::memcpy(reinterpret_cast<char*>(copy->to) + row * copy->to_pitch,
                reinterpret_cast<const char*>(copy->from) + row * copy->from_pitch, copy->bytes);
  return kOk;
}
int cuMemsetD2D8Async(u64 to, std::size_t pitch, unsigned char value, std::size_t bytes, std::size_t rows,
                      void*) {
  for (std::size_t row = 0; row < rows; ++row)
    std::memset(reinterpret_cast<char*>(to) + row * pitch, value, bytes);
  return kOk;
}
int cuMemsetD8Async(u64 to, unsigned char value, std::size_t bytes, void*) {
  return std::memset(reinterpret_cast<void*>(to), value, bytes), kOk;
}
int cuMemsetD32Async(u64 to, unsigned value, std::size_t words, void*) {
  for (std::size_t i = 0; i < words; ++i) std::memcpy(reinterpret_cast<char*>(to) + 4 * i, &value, 4);
  return kOk;
}

int cuStreamCreate(void** stream, unsigned) {
  static int one;
  return *stream = &one, kOk;
}
int cuStreamDestroy(void*) {
  return kOk;
}
int cuStreamSynchronize(void*) {
  return kOk;
}
int cuStreamGetId(void*, u64* id) {
  return *id = 1, kOk;
}
int cuStreamGetCaptureInfo(void*, int* status, u64*, void*, const void*, std::size_t*) {
  return *status = 0, kOk;
}
int cuThreadExchangeStreamCaptureMode(int*) {
  return kOk;
}
// No stream is ever captured, so no graph keeps anything.
int cuUserObjectCreate(void**, void*, void (*)(void*), unsigned, unsigned) {
  return refuse("there are no graphs here");
}
int cuUserObjectRelease(void*, unsigned) {
  return refuse("there are no graphs here");
}
int cuGraphRetainUserObject(void*, void*, unsigned, unsigned) {
  return refuse("there are no graphs here");
}
int cuEventCreate(Event** event, unsigned) {
  return *event = new Event, kOk;
}
int cuEventDestroy(Event* event) {
  return delete event, kOk;
}
int cuEventRecord(Event* event, void*) {
  return event->at = Clock::now(), kOk;
}
int cuEventSynchronize(Event*) {
  return kOk;
}
int cuEventElapsedTime(float* milliseconds, Event* start, Event* stop) {
  return *milliseconds = std::chrono::duration<float, std::milli>(stop->at - start->at).count(), kOk;
}

int cuModuleLoadData(Module** module, const void* image) {
  const std::string_view object = host_gpu::object_of(image);
  if (object.empty()) return refuse("an image that is not this device's", kNoImage);
  char path[] = "/tmp/host_gpu_XXXXXX";
  const int file = mkstemp(path);
  const bool written = file >= 0 && write(file, object.data(), object.size()) == std::ssize(object);
  if (file >= 0) close(file);
  void* const handle = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!handle) refuse(written ? dlerror() : "no room in /tmp", kNoImage);
  // The file stays for addr2line and debuggers while the process lives.
  static std::vector<std::string> files;
  static const bool registered = std::atexit([] {
                                   for (const std::string& one : files) unlink(one.c_str());
                                 }) == 0;
  if (registered) files.emplace_back(path);
  if (!handle) return kNoImage;
  return *module = new Module{handle, {}}, kOk;
}
int cuModuleUnload(Module* module) {
  return dlclose(module->handle), delete module, kOk;
}
int cuModuleGetFunction(Function** to, Module* module, const char* name) {
  void* const entry = dlsym(module->handle, name);
  if (!entry) return refuse(std::string("no function ") + name, kNotFound);
  const auto* const kernel =
      static_cast<const char* const*>(dlsym(module->handle, (std::string(name) + "_name").c_str()));
  Function& function = module->functions[name];
  function = {
      reinterpret_cast<void (*)(void**)>(entry),
      reinterpret_cast<unsigned (*)()>(dlsym(module->handle, (std::string(name) + "_cluster").c_str())),
      reinterpret_cast<unsigned (*)()>(dlsym(module->handle, (std::string(name) + "_registers").c_str())),
      kernel ? *kernel : name};
  return *to = &function, kOk;
}
int cuFuncGetAttribute(int* value, int which, Function*) {
  return *value = which == 6 ? 90 : 0, kOk;
}
int cuFuncSetAttribute(Function* function, int which, int value) {
  constexpr int kSharedBytes = 8;
  if (which != kSharedBytes) return kOk;
  if (value > (current_settings().capability == 90 ? 227 : 163) << 10)
    return refuse("more shared memory than a block has");
  return function->most_shared_bytes = static_cast<unsigned>(value), kOk;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function*, int, std::size_t) {
  return *blocks = 1, kOk;
}
int cuLaunchKernelEx(const LaunchConfig* config, Function* function, void** arguments, void**) {
  const std::lock_guard lock(one_at_a_time);
  if (config->shared_bytes > function->most_shared_bytes)
    return refuse(function->kernel + ": more dynamic shared memory than was allowed");
  host_gpu::Launch launch{.entry = function->entry,
                          .arguments = arguments,
                          .kernel = function->kernel,
                          .grid = {config->grid[0], config->grid[1], config->grid[2]},
                          .block = {config->block[0], config->block[1], config->block[2]},
                          .shared_bytes = config->shared_bytes,
                          .cluster = function->cluster ? function->cluster() : 1,
                          .registers = function->registers ? function->registers() : 0};
  std::string why = host_gpu::run(launch, current_settings());
  if (why.empty()) why = damaged_guard();
  return why.empty() ? kOk : refuse(function->kernel + ": " + why, kLaunchFailed);
}

int cuTensorMapEncodeTiled(void* to, int type, u32 rank, void* address, const u64* extents,
                           const u64* strides, const u32* box, const u32* steps, int, int exchange, int,
                           int) {
  if (rank < 1 || rank > 5) return refuse("a tensor map: its rank");
  host_gpu::TensorMap map = begin_map(type, rank, address, extents, strides, steps, exchange);
  for (u32 i = 0; i < rank; ++i) map.box[i] = static_cast<int>(box[i]);
  return make_map(to, map);
}
int cuTensorMapEncodeIm2col(void* to, int type, u32 rank, void* address, const u64* extents,
                            const u64* strides, const int* first, const int* last, u32 channels, u32 pixels,
                            const u32* steps, int, int exchange, int, int) {
  if (rank < 4 || rank > 5) return refuse("a tensor map: its rank");
  host_gpu::TensorMap map = begin_map(type, rank, address, extents, strides, steps, exchange);
  map.walks = true, map.box = {static_cast<int>(channels), static_cast<int>(pixels), 1, 1, 1};
  for (u32 i = 0; i + 2 < rank; ++i) map.first_corner[i] = first[i], map.last_corner[i] = last[i];
  return make_map(to, map);
}

int cuGetProcAddress_v2(const char* name, void** function, int, u64, int* status) {
  Dl_info mine{};
  dladdr(reinterpret_cast<void*>(&cuInit), &mine);
  static void* const self = dlopen(mine.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *function = dlsym(self, name);
  if (status) *status = *function ? 0 : 1;
  return *function ? kOk : kNotFound;
}

}  // extern "C"
