// See driver_stand_in.h. Handles are made up; what is not needed here answers "not supported".
#include "driver_stand_in.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace {

constexpr int kNotSupported = 801;

struct Object {
  void* pointer;
  void (*destroy)(void*);
};
struct Graph {
  std::vector<Object*> objects;
};
struct Stream {
  std::uint64_t id = 1;
  Graph* graph = nullptr;  // while it is captured
  std::uint64_t capture = 0;
};

std::mutex mutex;
std::map<std::uintptr_t, Stream> streams;
std::uint64_t captures = 0;
std::atomic<std::int64_t> blocks = 0;

void release(Object* object) {
  object->destroy(object->pointer);
  delete object;
}

int not_supported() {
  return kNotSupported;
}
int succeed() {
  return 0;
}
int device_count(int* count) {
  *count = 1;
  return 0;
}
int context(void** context) {
  static int one;
  *context = &one;
  return 0;
}
int primary_context(void** made, int) {
  return context(made);
}
int allocate(std::uint64_t* memory, std::size_t bytes) {
  *memory = reinterpret_cast<std::uintptr_t>(std::malloc(bytes));
  ++blocks;
  return 0;
}
int release_memory(std::uint64_t memory) {
  std::free(reinterpret_cast<void*>(memory));
  --blocks;
  return 0;
}
int stream_id(void* stream, std::uint64_t* id) {
  constexpr int kUnsupportedInCapture = 900;
  const std::lock_guard lock(mutex);
  if (streams[reinterpret_cast<std::uintptr_t>(stream)].graph) return kUnsupportedInCapture;
  *id = streams[reinterpret_cast<std::uintptr_t>(stream)].id;
  return 0;
}
int capture_info(void* handle, int* status, std::uint64_t* id, void** graph, const void*, std::size_t*) {
  const std::lock_guard lock(mutex);
  const Stream& stream = streams[reinterpret_cast<std::uintptr_t>(handle)];
  *status = stream.graph ? 1 : 0, *id = stream.capture;
  if (graph) *graph = stream.graph;
  return 0;
}
int make_object(void** object, void* pointer, void (*destroy)(void*), unsigned, unsigned) {
  *object = new Object{pointer, destroy};
  return 0;
}
int release_object(void* object, unsigned) {
  release(static_cast<Object*>(object));
  return 0;
}
int retain_object(void* graph, void* object, unsigned, unsigned) {
  if (!stand_in_takes_objects) return kNotSupported;
  static_cast<Graph*>(graph)->objects.push_back(static_cast<Object*>(object));
  return 0;
}

}  // namespace

extern "C" {

bool stand_in_takes_objects = true;

void stand_in_stream(std::uintptr_t handle, std::uint64_t id) {
  const std::lock_guard lock(mutex);
  streams[handle] = {id, nullptr, 0};
}
void stand_in_begin_capture(std::uintptr_t handle) {
  const std::lock_guard lock(mutex);
  streams[handle].graph = new Graph, streams[handle].capture = ++captures;
}
void* stand_in_end_capture(std::uintptr_t handle) {
  const std::lock_guard lock(mutex);
  return std::exchange(streams[handle].graph, nullptr);
}
void stand_in_destroy_graph(void* graph) {
  for (Object* const object : static_cast<Graph*>(graph)->objects) release(object);
  delete static_cast<Graph*>(graph);
}
std::int64_t stand_in_blocks() {
  return blocks;
}

int cuInit(unsigned) {
  return 0;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuGetProcAddress_v2(const char* name, void** function, int, std::uint64_t, int*) {
  const auto is = [&](const char* other) { return std::strcmp(name, other) == 0; };
  const auto answer = [&](auto* with) { *function = reinterpret_cast<void*>(with); };
  answer(not_supported);
  if (is("cuDeviceGet") || is("cuCtxPushCurrent") || is("cuCtxPopCurrent") || is("cuCtxSynchronize") ||
      is("cuThreadExchangeStreamCaptureMode"))
    answer(succeed);
  if (is("cuDeviceGetCount")) answer(device_count);
  if (is("cuCtxGetCurrent")) answer(context);
  if (is("cuDevicePrimaryCtxRetain")) answer(primary_context);
  if (is("cuMemAlloc")) answer(allocate);
  if (is("cuMemFree")) answer(release_memory);
  if (is("cuStreamGetId")) answer(stream_id);
  if (is("cuStreamGetCaptureInfo")) answer(capture_info);
  if (is("cuUserObjectCreate")) answer(make_object);
  if (is("cuUserObjectRelease")) answer(release_object);
  if (is("cuGraphRetainUserObject")) answer(retain_object);
  return 0;
}

}  // extern "C"
