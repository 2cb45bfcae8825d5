// GPUs as devices: what they say of themselves, memory, kernels, the stopwatch, the ceilings, and what is
// left of a process after a device error.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <set>
#include <thread>

#include "base/library.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/compile/compile_all.h"
#include "cuda/cudnn/cudnn.h"
#include "cuda/device/driver.h"
#include "cuda/device/workspace.h"
#include "cuda/launch/kernel.h"
#include "cuda/launch/kernel_algorithm.h"
#include "plan/algorithms.h"

namespace convtune::cuda::cuda_backend_test {
namespace {

const char kSource[] = R"(
struct Config { int factor = 1; };
template <Config kConfig>
__global__ void scale(float* y, const float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = kConfig.factor * x[i];
}
// Reverses a block's values through as much shared memory as was asked for.
__global__ void reverse(float* y, const float* x, int n) {
  extern __shared__ float staged[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) staged[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = staged[n - 1 - i];
}
__global__ void spin(unsigned long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - start < nanoseconds);
}
__global__ void write_to_nowhere(float* y) { y[threadIdx.x] = 1; }
)";

class CudaBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::devices().empty()) {
      std::string why;
      for (const Probe& probe : probes())
        if (!probe.found) why += "; " + probe.what + ": " + probe.detail;
      GTEST_SKIP() << "there is no GPU here" << why;
    }
    info_ = cuda::devices().front();
  }
  Backend& gpu() const { return convtune::backend(info_.device); }
  CompileJob job(const std::string& name) const { return {kSource, {}, {}, info_.isa, {name}}; }
  Kernel load(const std::string& name, std::size_t dynamic_smem_bytes = 0) const {
    return {info_.device.index, compile(job(name)), name, {.dynamic_smem_bytes = dynamic_smem_bytes}};
  }
  std::shared_ptr<void> on_gpu(const std::vector<float>& values) const {
    auto memory = gpu().allocate(values.size() * sizeof(float));
    gpu().upload(memory.get(), values.data(), values.size() * sizeof(float));
    return memory;
  }
  std::vector<float> on_host(const std::shared_ptr<void>& memory, std::size_t count) const {
    std::vector<float> values(count);
    gpu().download(values.data(), memory.get(), count * sizeof(float));
    return values;
  }
  static std::vector<float> counted(std::size_t count) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 1.0F);
    return values;
  }
  // Writes what is then said of it to standard error.
  [[noreturn]] void break_the_device() const {
    try {
      load("write_to_nowhere").launch({1}, {32}, 0, nullptr, static_cast<float*>(nullptr));
      gpu().synchronize(nullptr);
    } catch (const Error& error) {
      std::cerr << error.what() << "\n";
    }
    try {
      gpu().allocate(16);
    } catch (const Error& error) {
      std::cerr << "then: " << error.what() << "\n";
    }
    ::_exit(0);
  }
  DeviceInfo info_;
};

TEST_F(CudaBackendTest, DescribesItself) {
  EXPECT_EQ(convtune::devices().front().device, info_.device) << "a GPU comes before the CPU";
  EXPECT_EQ(convtune::devices().back().device, Device{});
  EXPECT_EQ(best_device(), info_.device);
  EXPECT_EQ(info_.isa.find("sm_"), 0u);
  EXPECT_EQ(info_.fingerprint,
            "cuda|" + info_.name + "|" + info_.isa + "|" + std::to_string(info_.units) + " SMs");
  EXPECT_GT(info_.units, 0);
  EXPECT_GT(info_.l2_bytes, 1 << 20);
  EXPECT_GT(info_.memory_bytes, std::int64_t{1} << 30);
  EXPECT_EQ(gpu().default_precision(), Precision::tf32);
  EXPECT_THROW(convtune::backend({Device::Kind::cuda, 1000}), Error);
  for (const Probe& probe : probes()) std::cout << probe.what << ": " << probe.detail << "\n";
  std::cout << info_.fingerprint << "\n";
}

TEST_F(CudaBackendTest, MemoryThereAndBack) {
  for (const std::size_t count : {1, 63, 100'000}) {
    const auto memory = on_gpu(counted(count));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 64, 0u);
    EXPECT_EQ(on_host(memory, count), counted(count));
  }
  EXPECT_NE(gpu().allocate(0), nullptr);
  gpu().upload(nullptr, nullptr, 0);
  gpu().download(nullptr, nullptr, 0);
}

TEST_F(CudaBackendTest, TooMuchMemoryIsRefusedAndNothingBreaks) {
  try {
    gpu().allocate(std::size_t{1} << 50);
    FAIL() << "2^50 bytes were given";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("1125899906842624"), std::string::npos) << error.what();
  }
  EXPECT_EQ(on_host(on_gpu(counted(10)), 10), counted(10));
}

TEST_F(CudaBackendTest, MemoryIsGivenBack) {
  const auto bytes = static_cast<std::size_t>(info_.memory_bytes / 4);
  for (int i = 0; i < 16; ++i) EXPECT_NE(gpu().allocate(bytes), nullptr) << i;
}

TEST_F(CudaBackendTest, AKernelRuns) {
  const Kernel kernel = load("scale<Config{.factor = 3}>");
  constexpr int kCount = 10'000;
  const auto x = on_gpu(counted(kCount)), y = gpu().allocate(kCount * sizeof(float));
  kernel.launch({(kCount + 127) / 128}, {128}, 0, nullptr, y.get(), x.get(), kCount);
  gpu().synchronize(nullptr);
  std::vector<float> expected = counted(kCount);
  for (float& value : expected) value *= 3;
  EXPECT_EQ(on_host(y, kCount), expected);
  EXPECT_GT(kernel.resources().registers, 0);
  EXPECT_GE(kernel.blocks_per_unit(128, 0), 8);
}

TEST_F(CudaBackendTest, SharedMemoryBeyondTheUsualLimit) {
  constexpr std::size_t kBytes = 96 << 10;
  constexpr int kCount = kBytes / sizeof(float);
  const Kernel kernel = load("reverse", kBytes);
  const auto x = on_gpu(counted(kCount)), y = gpu().allocate(kBytes);
  kernel.launch({1}, {256}, kBytes, nullptr, y.get(), x.get(), kCount);
  std::vector<float> expected = counted(kCount);
  std::reverse(expected.begin(), expected.end());
  EXPECT_EQ(on_host(y, kCount), expected);
  EXPECT_GE(kernel.blocks_per_unit(256, kBytes), 1);
  EXPECT_GT(kernel.blocks_per_unit(256, 1024), kernel.blocks_per_unit(256, kBytes));
  EXPECT_THROW(load("reverse", 4 << 20), Error);
}

// Graphs may be replayed beside each other: what one capture was given, another is not.
TEST_F(CudaBackendTest, EveryCaptureHasAWorkspaceOfItsOwn) {
  const Library library = Library::open({"the NVIDIA driver", nullptr, {"libcuda.so.1"}, {}, false});
  CUresult (*begin)(CUstream, int mode), (*end)(CUstream, void** graph);
  library.bind(begin, "cuStreamBeginCapture_v2"), library.bind(end, "cuStreamEndCapture");
  const DeviceScope scope(info_.device.index);
  CUstream stream = nullptr;
  ASSERT_EQ(driver().cuStreamCreate(&stream, 1), 0);
  Workspace workspace(info_.device.index);
  constexpr std::size_t kBytes = 4096;
  std::set<void*> seen = {workspace.at_least(kBytes, stream).memory};
  for (int capture = 0; capture < 3; ++capture) {
    ASSERT_EQ(begin(stream, 0), 0);  // CU_STREAM_CAPTURE_MODE_GLOBAL, the strictest
    void* const first = workspace.at_least(kBytes, stream).memory;
    EXPECT_EQ(workspace.at_least(kBytes, stream).memory, first);
    EXPECT_TRUE(seen.insert(first).second) << "capture " << capture << " has memory of another";
    void* graph = nullptr;
    ASSERT_EQ(end(stream, &graph), 0);
  }
  EXPECT_EQ(seen.count(workspace.at_least(kBytes, stream).memory), 1u);
  driver().cuStreamDestroy(stream);
}

TEST_F(CudaBackendTest, AKernelForAnyPointerComesAtItsFirstNeedEvenInACapture) {
  const Library library = Library::open({"the NVIDIA driver", nullptr, {"libcuda.so.1"}, {}, false});
  CUresult (*begin)(CUstream, int mode), (*end)(CUstream, void** graph);
  CUresult (*instantiate)(void** executable, void* graph, unsigned long long flags);
  CUresult (*replay)(void* executable, CUstream);
  library.bind(begin, "cuStreamBeginCapture_v2"), library.bind(end, "cuStreamEndCapture");
  library.bind(instantiate, "cuGraphInstantiateWithFlags"), library.bind(replay, "cuGraphLaunch");

  const ConvProblem problem = parse_problem("mb1ic4ih8oc8kh3ph1 precision=tf32 bias=0");
  const Algorithm& gemm = implicit_gemm_sm80();
  const Config config = gemm.candidates(problem, info_).front();
  ASSERT_FALSE(kernel_algorithm(gemm)->plan(problem, info_, config).config_for_any_pointer.empty());
  const auto executable_of = [&] { return gemm.build(problem, info_, config); };
  const auto kernel = executable_of();
  std::vector<float> input(static_cast<std::size_t>(problem.input_elements()) + 1);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 7) - 3;
  const std::vector<float> weights(static_cast<std::size_t>(problem.weight_elements()), 1);
  const auto outputs = static_cast<std::size_t>(problem.output_elements());
  // Repeats this input once more, one float behind a multiple of 16 bytes.
  std::vector<float> shifted = input;
  shifted.insert(shifted.begin(), 0);
  const auto x = on_gpu(input), x_shifted = on_gpu(shifted), w = on_gpu(weights);
  const auto y = on_gpu(std::vector<float>(outputs)), y_captured = on_gpu(std::vector<float>(outputs));
  const auto packed = gpu().allocate(kernel->packed_bytes());
  kernel->pack(w.get(), nullptr, packed.get(), nullptr);
  kernel->run({.x = x.get(), .y = y.get()}, packed.get(), nullptr);
  const std::vector<float> expected = on_host(y, outputs);
  const DeviceScope scope(info_.device.index);
  CUstream stream = nullptr;
  ASSERT_EQ(driver().cuStreamCreate(&stream, 1), 0);
  void *graph = nullptr, *executable = nullptr;
  ASSERT_EQ(begin(stream, 0), 0);  // CU_STREAM_CAPTURE_MODE_GLOBAL, the strictest
  kernel->run({.x = static_cast<float*>(x_shifted.get()) + 1, .y = y_captured.get()}, packed.get(), stream);
  ASSERT_EQ(end(stream, &graph), 0);
  ASSERT_EQ(instantiate(&executable, graph, 0), 0);
  ASSERT_EQ(replay(executable, stream), 0);
  ASSERT_EQ(driver().cuStreamSynchronize(stream), 0);
  EXPECT_EQ(on_host(y_captured, outputs), expected);
  const auto other = executable_of();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      other->run({.x = static_cast<float*>(x_shifted.get()) + 1, .y = y.get()}, packed.get(), nullptr);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(on_host(y, outputs), expected);
  driver().cuStreamDestroy(stream);
}

TEST_F(CudaBackendTest, AWrongLaunchSaysWhatItWasAndNothingBreaks) {
  const Kernel kernel = load("spin");
  try {
    kernel.launch({1, 70'000}, {32}, 0, nullptr, 0ULL);
    FAIL() << "a grid of 70000 in y was launched";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("launching spin with 1x70000x1 blocks"), std::string::npos) << message;
    EXPECT_NE(message.find("CUDA_ERROR_INVALID_VALUE"), std::string::npos) << message;
  }
  kernel.launch({1}, {32}, 0, nullptr, 0ULL);
  gpu().synchronize(nullptr);
}

// More kernels than stay loaded come and go while the first ones' work waits behind 100 ms of spinning.
// Letting go of them must not wait.
TEST_F(CudaBackendTest, AKernelMayGoWhileItsWorkIsQueued) {
  constexpr int kCount = 10'000;
  const auto x = on_gpu(counted(kCount)), y = gpu().allocate(kCount * sizeof(float));
  const CompiledModule other = compile(job("scale<Config{.factor = 2}>"));
  const DeviceScope scope(info_.device.index);
  CUstream stream = nullptr;
  constexpr unsigned kNonBlocking = 1;
  check(driver().cuStreamCreate(&stream, kNonBlocking), "making a stream");
  {
    const Kernel spin = load("spin"), kernel = load("scale<Config{.factor = 5}>");
    gpu().synchronize(nullptr);
    spin.launch({1}, {32}, 0, stream, 100'000'000ULL);
    kernel.launch({(kCount + 127) / 128}, {128}, 0, stream, y.get(), x.get(), kCount);
  }
  constexpr CUresult kNotReady = 600;
  CUevent end = nullptr;
  CUresult (*query)(CUevent) = nullptr;
  Library::open({"the driver", nullptr, {"libcuda.so.1"}, {}, false}).bind(query, "cuEventQuery");
  check(driver().cuEventCreate(&end, 0), "making an event");
  check(driver().cuEventRecord(end, stream), "recording an event");
  EXPECT_EQ(query(end), kNotReady) << "letting go of a kernel has waited for its work";
  for (int i = 0; i < 300; ++i) Kernel(info_.device.index, other, "scale<Config{.factor = 2}>", {});
  check(driver().cuStreamSynchronize(stream), "waiting");
  std::vector<float> expected = counted(kCount);
  for (float& value : expected) value *= 5;
  EXPECT_EQ(on_host(y, kCount), expected);
  driver().cuEventDestroy(end);
  driver().cuStreamDestroy(stream);
}

TEST_F(CudaBackendTest, ThreadsLaunchAndAllocateAtOnce) {
  const Kernel kernel = load("scale<Config{.factor = 2}>");
  std::vector<std::thread> threads;
  std::vector<int> wrong(8, -1);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      int count = 0;
      for (int step = 0; step < 50; ++step) {
        const std::vector<float> values(1000, static_cast<float>(t + 1));
        const auto x = on_gpu(values), y = gpu().allocate(4000);
        kernel.launch({8}, {128}, 0, nullptr, y.get(), x.get(), 1000);
        for (const float value : on_host(y, 1000)) count += value != 2 * values[0];
      }
      wrong[t] = count;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

TEST_F(CudaBackendTest, TheCallersContextIsLeftAsItWas) {
  std::thread([&] {  // a thread to which no context is current
    const auto memory = gpu().allocate(16);
    CUcontext current = nullptr;
    EXPECT_EQ(driver().cuCtxGetCurrent(&current), 0);
    EXPECT_EQ(current, nullptr);
    const DeviceScope outer(info_.device.index);
    { const DeviceScope inner(info_.device.index); }
    EXPECT_EQ(driver().cuCtxGetCurrent(&current), 0);
    EXPECT_EQ(current, primary_context(info_.device.index));
  })
      .join();
}

TEST_F(CudaBackendTest, TheStopwatchIsRight) {
  const Kernel kernel = load("spin");
  const auto spin = [&](double us) {
    return gpu().time_us(
        [&] { kernel.launch({1}, {32}, 0, nullptr, static_cast<unsigned long long>(1000 * us)); });
  };
  spin(1);
  for (const double us : {100.0, 1000.0, 10'000.0}) {
    const double measured = spin(us);
    std::cout << us << " us of spinning measured as " << measured << "\n";
    EXPECT_GE(measured, us - 3);
    EXPECT_LE(measured, us + 20);
  }
  EXPECT_LE(gpu().time_us([] {}), 20);
}

TEST_F(CudaBackendTest, TheStopwatchStartsWithAColdCache) {
  const auto bytes = static_cast<std::size_t>(info_.l2_bytes / 8);
  const auto from = gpu().allocate(bytes), to = gpu().allocate(bytes);
  const DeviceScope scope(info_.device.index);
  const auto copies = [&](int count) {
    double best = 1e300;
    for (int i = 0; i < 10; ++i)
      best = std::min(best, gpu().time_us([&] {
        for (int j = 0; j < count; ++j)
          check(driver().cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(to.get()),
                                           reinterpret_cast<CUdeviceptr>(from.get()), bytes, nullptr),
                "copying");
      }));
    return best;
  };
  const double first = copies(1), next = (copies(9) - first) / 8;
  std::cout << "a copy of " << bytes << " bytes: cold " << first << " us, warm " << next << " us\n";
  EXPECT_LT(next, first);
}

TEST_F(CudaBackendTest, CeilingsAreLikely) {
  const Ceilings first = gpu().measure_ceilings(), again = gpu().measure_ceilings();
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16}) {
    std::cout << to_string(precision) << ": " << first.peak(precision) / 1e12 << " and "
              << again.peak(precision) / 1e12 << " TFLOP/s\n";
    EXPECT_GT(first.peak(precision), 5e12);
    EXPECT_LT(first.peak(precision), 1e16);
    EXPECT_NEAR(again.peak(precision) / first.peak(precision), 1, 0.1);
  }
  EXPECT_LT(first.peak(Precision::fp32), first.peak(Precision::tf32));
  EXPECT_NEAR(first.peak(Precision::fp16) / first.peak(Precision::tf32), 2, 0.3);
  EXPECT_EQ(first.peak(Precision::automatic), first.peak(Precision::tf32));
  std::cout << first.bytes_per_second / 1e12 << " and " << again.bytes_per_second / 1e12 << " TB/s\n";
  EXPECT_GT(first.bytes_per_second, 1e11);
  EXPECT_LT(first.bytes_per_second, 2e13);
  EXPECT_NEAR(again.bytes_per_second / first.bytes_per_second, 1, 0.1);
}

TEST_F(CudaBackendTest, ChildrenCompileWhileTheDeviceIsInUse) {
  const auto memory = on_gpu(counted(1000));
  std::vector<CompileJob> jobs;
  for (int factor = 10; factor < 18; ++factor)
    jobs.push_back(job("scale<Config{.factor = " + std::to_string(factor) + "}>"));
  for (const CompileResult& result : compile_all(jobs, 4, 30)) EXPECT_TRUE(result.module) << result.failure;
  EXPECT_EQ(on_host(memory, 1000), counted(1000));
}

// In a process of its own: the device's state in it is lost.
TEST_F(CudaBackendTest, AStickyErrorSaysSo) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(break_the_device(), testing::ExitedWithCode(0),
              "CUDA_ERROR_ILLEGAL_ADDRESS.*start a new process.*then: .*start a new process");
}

}  // namespace
}  // namespace convtune::cuda::cuda_backend_test
