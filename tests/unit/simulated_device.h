// A device whose clock only what runs on it moves, and an executable for it: for tests of what times decide.
// Its memory is the CPU's.
#pragma once

#include <cstring>
#include <functional>

#include "plan/algorithms.h"

namespace convtune {

// Four outputs an image: the input times the one weight.
inline const ConvProblem& scaling_problem() {
  static const ConvProblem one = parse_problem("mb1ic1ih2oc1kh1 precision=fp32 bias=0");
  return one;
}

class SimulatedDevice : public Backend {
 public:
  // `now_us`: the clock. Each timing takes `overhead_us` of it that is not counted.
  explicit SimulatedDevice(double& now_us, double overhead_us = 0)
      : now_us_(now_us), overhead_us_(overhead_us) {}
  const DeviceInfo& info() const override { return backend({}).info(); }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return backend({}).allocate(bytes); }
  void upload(void* to, const void* from, std::size_t bytes) override { backend({}).upload(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override {
    backend({}).download(to, from, bytes);
  }
  void synchronize(Stream) override {}
  double time_us(const std::function<void()>& work) override {
    const double before = now_us_;
    work();
    const double us = now_us_ - before;
    now_us_ += overhead_us_;
    return us;
  }
  Ceilings measure_ceilings() override { return {1, 1}; }
  Precision default_precision() const override { return Precision::fp32; }

 private:
  double& now_us_;
  const double overhead_us_;
};

// The scaling problem, of so many images. `run` moves the clock; where it answers false, the output is wrong.
class SimulatedExecutable final : public Executable {
 public:
  explicit SimulatedExecutable(std::function<bool()> run, std::int64_t images = 1)
      : run_(std::move(run)), images_(images) {}
  std::size_t packed_bytes() const override { return sizeof(float); }
  void pack(const void* w, const void*, void* packed, Stream) const override {
    std::memcpy(packed, w, sizeof(float));
  }
  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const bool right = run_();
    for (std::int64_t i = 0; i < 4 * images_; ++i)
      static_cast<float*>(tensors.y)[i] =
          right ? static_cast<const float*>(tensors.x)[i] * *static_cast<const float*>(packed) : 1e9f;
  }

 private:
  const std::function<bool()> run_;
  const std::int64_t images_;
};

// It takes every problem, and every config.
class SimulatedAlgorithm : public Algorithm {
 public:
  Device::Kind device_kind() const override { return Device::Kind::cpu; }
  Support supports(const ConvProblem&, const DeviceInfo&) const override { return Support::yes(); }
  Support accepts(const ConvProblem&, const DeviceInfo&, const Config&) const override {
    return Support::yes();
  }
};

}  // namespace convtune
