// A CPU with other caches and less memory than this one has, which counts what is asked of it.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>

#include "cpu/backend/cpu_backend.h"

namespace convtune {

class CountedMemory final : public Backend {
 public:
  explicit CountedMemory(std::int64_t l3_bytes, std::size_t most = std::numeric_limits<std::size_t>::max())
      : most_(most), info_(cpu::backend().info()) {
    info_.l3_bytes = l3_bytes, info_.l2_bytes = 1 << 20, info_.units = 2;
  }

  std::size_t peak() const { return peak_; }  // bytes, of all that lived at the same time

  const DeviceInfo& info() const override { return info_; }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    if (bytes > most_ - now_) throw Error(ErrorKind::unsupported, "not enough memory");
    now_ += bytes;
    peak_ = std::max(peak_, now_);
    auto memory = cpu::backend().allocate(bytes);
    void* const at = memory.get();
    return {at, [this, bytes, memory = std::move(memory)](void*) { now_ -= bytes; }};
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    cpu::backend().upload(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    cpu::backend().download(to, from, bytes);
  }
  void synchronize(Stream) override {}
  double time_us(const std::function<void()>& work) override { return cpu::backend().time_us(work); }
  Ceilings measure_ceilings() override { return {}; }
  Precision default_precision() const override { return Precision::fp32; }

 private:
  const std::size_t most_;
  DeviceInfo info_;
  std::size_t now_ = 0, peak_ = 0;
};

}  // namespace convtune
