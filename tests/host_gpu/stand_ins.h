// The stand-ins for the driver and NVRTC in a process of ours, and one kernel checked on them.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "cuda/backend/cuda.h"
#include "cuda/launch/kernel_algorithm.h"
#include "measure/testbed.h"

namespace convtune::host_gpu_tests {

// "capability=80", or nothing: of the device that tests are for.
inline std::string device_words() {
  const char* const words = std::getenv("CONVTUNE_HOST_GPU_DEVICE");
  return words ? std::string(words) + " " : "";
}

// On a small device: blocks of a small problem have several tiles each, and rings lap.
inline void set_mode(const std::string& mode) {
  ::setenv("CONVTUNE_HOST_GPU", ("sms=2 " + mode).c_str(), 1);
}

// Once, before anything asks for a device. Compiled kernels are kept by their own texts and those of this
// folder.
inline void use_stand_ins() {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (const auto& file : fs::recursive_directory_iterator(CONVTUNE_HOST_GPU_DIR))
    if (file.path().extension() == ".cuh" || file.path().extension() == ".h" ||
        file.path().extension() == ".cpp")
      files.push_back(file.path());
  std::sort(files.begin(), files.end());
  std::string all;
  const auto setting = [](const char* name) {
    return std::string(std::getenv(name) ? std::getenv(name) : "");
  };
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    all.append(std::istreambuf_iterator<char>(in), {});
  }
  all += setting("CONVTUNE_HOST_GPU_FLAGS") + setting("CONVTUNE_HOST_GPU_KEEP");
  // Loaded first, it is what the soname libcuda.so.1 means, whatever else the path of libraries has.
  if (!::dlopen(CONVTUNE_HOST_GPU_DRIVER, RTLD_NOW)) {
    std::fprintf(stderr, "host_gpu: the driver's stand-in cannot be loaded: %s\n", ::dlerror());
    std::exit(2);
  }
  ::setenv("CONVTUNE_NVRTC", CONVTUNE_HOST_GPU_NVRTC, 1);
  ::setenv("CONVTUNE_CACHE_DIR",
           (std::string(CONVTUNE_HOST_GPU_CACHE "/") + sha256(all).substr(0, 16)).c_str(), 1);
  if (!std::getenv("CONVTUNE_HOST_GPU")) set_mode(device_words());
}

// Says what is wrong with it, or nothing: exact on integers, canaries whole, and no fault on the way.
inline std::string fault_of(Testbed& bed, const Executable& executable) {
  try {
    return bed.check(executable).failure;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace convtune::host_gpu_tests
