// Shares what both algorithms of direct_body_half_sm90/body.cuh need: an x that consumers have channels
// last, however it comes there.
#pragma once

#include <vector>

#include "cuda/algorithms/direct_body_half_sm90/config.h"
#include "cuda/launch/kernel_algorithm.h"

namespace convtune::cuda {

class DirectBodyHalf : public KernelAlgorithmOf<DirectBodyHalfSm90> {
 public:
  using KernelAlgorithmOf::KernelAlgorithmOf;

 protected:
  using Kernel = DirectBodyHalfSm90;

  // The kernel without its choices.
  virtual Kernel plain(const Computed& problem) const = 0;
  bool has_depth() const override { return true; }
  bool gathers_while_packing() const override { return true; }
  // Checks that are not of the kernel's loads.
  Support takes(const Computed& a, const DeviceInfo& device) const override;

 private:
  Kernel kernel_of(const Computed& problem, const Config& config) const override {
    Kernel kernel = plain(problem);
    if (is_lying(config)) kernel.lying = 1, kernel.lie = lying_of(problem);
    return from_config(config, kernel);
  }
  std::string why_none(const ConvProblem&, const DeviceInfo&) const override {
    return "no tile's pixels and weights fit into shared memory";
  }
  Support takes_kernel(const Kernel& kernel, const DeviceInfo&) const override;
  LaunchPlan launch(const Kernel& kernel, const DeviceInfo& device) const override;
  TileWork counted(const Kernel& kernel) const override;
  double flops(const ConvProblem&, const Kernel& a) const override;
  std::vector<Kernel> configs(const Computed& a, const DeviceInfo& device) const override;
};

}  // namespace convtune::cuda
