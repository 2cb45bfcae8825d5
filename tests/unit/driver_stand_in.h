// The library that tests of memory and streams load in the place of NVIDIA's driver (driver_stand_in.cpp):
// one device on which nothing runs. The test makes streams and graphs, and looks at what was allocated and
// not freed.
#pragma once

#include <cstdint>

extern "C" {

// Says that of handle HANDLE there is a stream of that number from now on. 1 and 2 are there without it.
void stand_in_stream(std::uintptr_t handle, std::uint64_t id);
// Sets whether that stream is recorded into a new graph. Its end gives the graph, which holds one reference
// of each of its objects.
void stand_in_begin_capture(std::uintptr_t handle);
void* stand_in_end_capture(std::uintptr_t handle);
void stand_in_destroy_graph(void* graph);
// Sets whether graphs take objects.
extern bool stand_in_takes_objects;
// Blocks of memory that were allocated and not freed.
std::int64_t stand_in_blocks();

}  // extern "C"
