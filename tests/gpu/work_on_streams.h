// Fixtures that tests on a GPU share: convolutions with tensors of their own, streams, and the driver's
// graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/library.h"
#include "base/random_bits.h"
#include "convtune/convolution.h"
#include "cuda/backend/cuda.h"
#include "cuda/device/driver.h"
#include "plan/algorithms.h"
#include "problem/element.h"

namespace convtune::gpu {

using cuda::check, cuda::driver, cuda::release_on, cuda::CUresult, cuda::CUstream, cuda::DeviceScope;

// Functions of the driver that a test needs and the library does not.
struct Graphs {
  using CUgraph = cuda::CUgraph;
  using CUgraphExec = struct CUgraphExec_st*;
  CUresult (*begin)(CUstream, int mode) = nullptr;
  CUresult (*end)(CUstream, CUgraph*) = nullptr;
  CUresult (*instantiate)(CUgraphExec*, CUgraph, unsigned long long flags) = nullptr;
  CUresult (*launch)(CUgraphExec, CUstream) = nullptr;
  CUresult (*destroy)(CUgraph) = nullptr;
  CUresult (*destroy_exec)(CUgraphExec) = nullptr;

  Graphs() {
    const Library library = Library::open({"the driver", nullptr, {"libcuda.so.1"}, {}, false});
    library.bind(begin, "cuStreamBeginCapture_v2");
    library.bind(end, "cuStreamEndCapture");
    library.bind(instantiate, "cuGraphInstantiateWithFlags");
    library.bind(launch, "cuGraphLaunch");
    library.bind(destroy, "cuGraphDestroy");
    library.bind(destroy_exec, "cuGraphExecDestroy");
  }
};

class OwnStream {
 public:
  explicit OwnStream(int device) : device_(device) {
    const DeviceScope scope(device);
    constexpr unsigned kNonBlocking = 1;  // it waits for no other stream, the default one neither
    check(driver().cuStreamCreate(&stream_, kNonBlocking), "making a stream");
  }
  ~OwnStream() {
    release_on(device_, [&] { driver().cuStreamDestroy(stream_); });
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  CUstream get() const { return stream_; }

 private:
  int device_;
  CUstream stream_ = nullptr;
};

// A planned convolution with tensors of its own on its device.
class Work {
 public:
  Work(const Convolution& convolution, std::uint64_t seed)
      : convolution_(convolution), gpu_(backend(convolution.device().device)) {
    const ConvProblem& a = convolution.problem();
    x_ = random(a.dtype.x, a.input_elements(), seed);
    const auto w = random(a.dtype.w, a.weight_elements(), 1000), bias = random(a.dtype.bias, a.k, 1001);
    weights_ = convolution.pack(w.get(), a.bias ? bias.get() : nullptr);
    y_ = gpu_.allocate(bytes());
    gpu_.synchronize(nullptr);
  }
  // Backwards: from y to x, which must be as large.
  void run(Stream stream = nullptr, bool backwards = false) const {
    void *const from = backwards ? y_.get() : x_.get(), *const to = backwards ? x_.get() : y_.get();
    convolution_.run({.x = from, .y = to}, weights_, stream);
  }
  void clear() const {
    const ConvProblem& a = convolution_.problem();
    const auto sevens =
        to_bytes(a.dtype.y, std::vector<float>(static_cast<std::size_t>(a.output_elements()), -7.0f));
    gpu_.upload(y_.get(), sevens.data(), bytes());
  }
  void new_input(std::uint64_t seed) const {
    const ConvProblem& a = convolution_.problem();
    const auto values = to_bytes(a.dtype.x, random_values(a.input_elements(), seed));
    gpu_.upload(x_.get(), values.data(), values.size());
  }
  std::vector<float> output() const {
    std::vector<unsigned char> y(bytes());
    gpu_.download(y.data(), y_.get(), bytes());
    const ConvProblem& a = convolution_.problem();
    return to_floats(a.dtype.y, y.data(), a.output_elements());
  }
  // run() on the default stream, and what comes out.
  std::vector<float> answer() const {
    clear();
    run();
    gpu_.synchronize(nullptr);
    return output();
  }

 private:
  static std::vector<float> random_values(std::int64_t count, std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] =
          static_cast<float>(static_cast<std::int64_t>(random_bits(seed, i) >> 40) - (1 << 23)) / (1 << 23);
    return values;
  }
  std::shared_ptr<void> random(DType type, std::int64_t count, std::uint64_t seed) const {
    const auto values = to_bytes(type, random_values(count, seed));
    auto memory = gpu_.allocate(values.size());
    gpu_.upload(memory.get(), values.data(), values.size());
    return memory;
  }
  std::size_t bytes() const {
    const ConvProblem& a = convolution_.problem();
    return static_cast<std::size_t>(a.output_elements() * size_of(a.dtype.y));
  }

  const Convolution convolution_;
  Backend& gpu_;
  std::shared_ptr<void> x_, y_;
  PackedWeights weights_;
};

}  // namespace convtune::gpu
