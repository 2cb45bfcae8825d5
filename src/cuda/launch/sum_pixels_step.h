// Sums of a tensor over all pixels, on a device.
#pragma once

#include <cstdint>

#include "convtune/device.h"
#include "convtune/problem.h"
#include "cuda/compile/compiler.h"
#include "cuda/launch/kernel.h"
#include "cuda/launch/sum_pixels.h"

namespace convtune::cuda {

// Made for one tensor, channels last, safe to run from any thread.
class PixelSums {
 public:
  static constexpr const char* kFile = "cuda/launch/sum_pixels.cuh";

  PixelSums(const DeviceInfo& device, const SumPixels& what, std::int64_t pixels);
  static CompileJob job(const SumPixels& what, const std::string& arch);

  std::size_t workspace_bytes() const;
  // On the stream; the device must be current (DeviceScope). `from` begins at a multiple of 16 bytes.
  void run(const void* from, void* workspace, void* to, Stream stream) const;

 private:
  SumPixels what_;
  long long pixels_;
  int rows_;  // threads that share a channel
  CompiledModule module_;
  Kernel sum_, add_up_;
};

// The sums of dy over its pixels: the gradient of a bias.
SumPixels sums_of_dy(const ConvProblem& problem);

}  // namespace convtune::cuda
