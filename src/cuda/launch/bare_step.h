// Elements of dx that no tap meets, stored on a device.
#pragma once

#include "convtune/device.h"
#include "cuda/compile/compiler.h"
#include "cuda/launch/bare_residues.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel.h"

namespace convtune::cuda {

// Describes them for a problem that has some, as `first`, its first forward part, packs biases.
BareResidues bare_residues_of(const ConvProblem& problem, const Computed& first);

// Made for one problem, safe to run from any thread.
class StoreBare {
 public:
  static constexpr const char* kFile = "cuda/launch/bare_residues.cuh";

  StoreBare(const DeviceInfo& device, const BareResidues& what);
  static CompileJob job(const BareResidues& what, const std::string& arch);

  // On the stream; the device must be current (DeviceScope). `bias`: packed.
  void run(const void* bias, const void* residual, void* y, Stream stream) const;

 private:
  unsigned blocks_;
  Kernel kernel_;
};

}  // namespace convtune::cuda
