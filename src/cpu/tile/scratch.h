// A thread's working memory: kept from call to call, grown when a plan needs more.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace convtune::cpu {

// Zeroed when grown, because kernels may multiply junk between rows and stray denormals there would be slow.
class Scratch {
 public:
  float* reserve(std::int64_t floats) {
    if (floats > size_) {
      data_.reset();
      data_.reset(
          static_cast<float*>(::operator new(static_cast<std::size_t>(floats) * sizeof(float), kAlignment)));
      std::memset(data_.get(), 0, static_cast<std::size_t>(floats) * sizeof(float));
      size_ = floats;
    }
    return data_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<float, Free> data_;
  std::int64_t size_ = 0;
};

}  // namespace convtune::cpu
