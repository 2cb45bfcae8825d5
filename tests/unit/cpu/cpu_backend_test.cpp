// The CPU backend: memory, its description of the machine, the ceilings, the number of threads.
#include "cpu/backend/cpu_backend.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include "counted_memory.h"
#include "cpu/base/memory_limit.h"
#include "cpu/base/processors.h"

namespace convtune::cpu_backend_test {
namespace {

TEST(CpuBackend, MemoryIsAlignedWritableAndFreed) {
  std::set<std::uintptr_t> places;
  for (const std::size_t bytes : {0, 1, 63, 64, 4096, 1000000}) {
    const auto memory = cpu::backend().allocate(bytes);
    ASSERT_NE(memory, nullptr);
    const auto address = reinterpret_cast<std::uintptr_t>(memory.get());
    EXPECT_EQ(address % 64, 0U);
    places.insert(address % 4096);
    std::fill_n(static_cast<unsigned char*>(memory.get()), bytes, 0xAB);  // ASan judges
  }
  EXPECT_GT(places.size(), 4U) << "blocks should not all start at the same place of a page";
}

TEST(CpuBackend, RefusesImpossibleMemory) {
  try {
    cpu::backend().allocate(std::size_t{1} << 60);
    FAIL() << "2^60 bytes were given";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("1152921504606846976"), std::string::npos);
  }
  EXPECT_THROW(cpu::backend().allocate(SIZE_MAX), Error);
}

TEST(CpuBackend, CopiesThereAndBack) {
  std::vector<int> there(1000), back(1000);
  std::iota(there.begin(), there.end(), 1);
  const auto memory = cpu::backend().allocate(there.size() * sizeof(int));
  cpu::backend().upload(memory.get(), there.data(), there.size() * sizeof(int));
  cpu::backend().download(back.data(), memory.get(), back.size() * sizeof(int));
  EXPECT_EQ(there, back);
}

TEST(CpuBackend, DescribesTheMachine) {
  const DeviceInfo& info = cpu::backend().info();
  EXPECT_EQ(info.device, Device{});
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.units, 1);
  EXPECT_LE(info.units, cpu::usable_processors());
  EXPECT_GT(info.memory_bytes, std::int64_t{1} << 27);
  if (info.l1_bytes > 0) {
    EXPECT_GE(info.l1_bytes, 4 << 10);
    EXPECT_LE(info.l1_bytes, 1 << 20);
  }
  if (info.l2_bytes > 0) {
    EXPECT_GT(info.l2_bytes, info.l1_bytes);
  }
#if defined(__x86_64__)
  EXPECT_EQ(info.isa == "avx512", __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                                      __builtin_cpu_supports("avx512dq") &&
                                      __builtin_cpu_supports("avx512cd"));
#endif
}

TEST(CpuBackend, FingerprintNamesWhatARecordDependsOn) {
  const DeviceInfo& info = cpu::backend().info();
  EXPECT_TRUE(info.fingerprint.starts_with("cpu|" + info.name + "|")) << info.fingerprint;
  EXPECT_NE(info.fingerprint.find("|" + info.isa + "|"), std::string::npos) << info.fingerprint;
  EXPECT_TRUE(info.fingerprint.ends_with("|" + std::to_string(info.units) +
                                         (info.units == 1 ? " thread" : " threads")))
      << info.fingerprint;
  EXPECT_EQ(info.fingerprint, cpu::backend().info().fingerprint);
}

TEST(CpuBackend, ThreadsChangeTheInfoFromThenOn) {
  const DeviceInfo& before = cpu::backend().info();
  const int start = before.units;
  const std::string fingerprint = before.fingerprint;
  cpu::set_threads(start + 1);
  EXPECT_EQ(cpu::backend().info().units, start + 1);
  EXPECT_NE(cpu::backend().info().fingerprint, fingerprint);
  EXPECT_EQ(before.units, start) << "an info that was handed out must stay as it was";
  cpu::set_threads(start);
  EXPECT_EQ(cpu::backend().info().fingerprint, fingerprint);
}

TEST(CpuBackend, InfoMayBeReadWhileThreadsAreSet) {
  const int start = cpu::backend().info().units;
  std::thread setter([] {
    for (int i = 0; i < 2000; ++i) cpu::set_threads(1 + i % 7);
  });
  bool consistent = true;
  for (int i = 0; i < 2000; ++i) {
    const DeviceInfo& info = cpu::backend().info();
    consistent &= info.fingerprint.find(std::to_string(info.units) + " thread") != std::string::npos;
  }
  setter.join();
  EXPECT_TRUE(consistent);
  cpu::set_threads(start);
}

TEST(CpuBackend, StopwatchMeasuresTheWork) {
  const double us =
      cpu::backend().time_us([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  EXPECT_GE(us, 20000);
  EXPECT_LT(us, 2e6);
}

// Other work takes processors for a while, so two of some in a row agree.
TEST(CpuBackend, CeilingsArePhysicalAndRepeat) {
  const auto ratio = [](double a, double b) { return std::max(a, b) / std::min(a, b); };
  Ceilings before;
  double least = 1e9;
  for (int i = 0; i < 6 && least >= 2; ++i) {
    const Ceilings now = cpu::backend().measure_ceilings();
    EXPECT_GT(now.flops_per_second, 1e9);
    EXPECT_LT(now.flops_per_second, 1e14);
    EXPECT_GT(now.bytes_per_second, 1e8);
    EXPECT_LT(now.bytes_per_second, 1e13);
    if (i > 0)
      least = std::min(least, std::max(ratio(before.flops_per_second, now.flops_per_second),
                                       ratio(before.bytes_per_second, now.bytes_per_second)));
    before = now;
  }
  EXPECT_LT(least, 2);
}

constexpr std::int64_t kServerCache = std::int64_t{480} << 20;  // as virtual machines report it
constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(CpuBackend, CopyingTakesLittleMemoryBesideALargeCache) {
  for (const int threads : {1, 2, 16}) {
    CountedMemory memory(kServerCache);
    EXPECT_GT(cpu::measure_bytes_per_second(threads, memory), 1e8);
    EXPECT_LE(memory.peak(), 256 * kMiB) << threads;
    EXPECT_GE(memory.peak(), 128 * kMiB) << threads;
  }
}

TEST(CpuBackend, CopyingTakesLessWhereMemoryIsShort) {
  CountedMemory memory(kServerCache, 20 * kMiB);
  EXPECT_GT(cpu::measure_bytes_per_second(1, memory), 1e8);
  CountedMemory none(kServerCache, kMiB);
  EXPECT_THROW(cpu::measure_bytes_per_second(1, none), Error);
}

TEST(CpuBackend, SaysWhereACacheIsLargerThanWhatMeasurementsUse) {
  DeviceInfo info;
  info.l1_bytes = 48 << 10, info.l2_bytes = 1 << 20, info.l3_bytes = 32 << 20;
  EXPECT_EQ(cpu::describe_caches(info), "caches 48 KiB and 1024 KiB a core, 32768 KiB shared");
  info.l3_bytes = kServerCache;
  EXPECT_EQ(
      cpu::describe_caches(info),
      "caches 48 KiB and 1024 KiB a core, 491520 KiB shared, more than the 262144 KiB that measurements "
      "use in turn: what they time may lie in the cache");
}

// Control groups as a folder of files; `own` says which are the process's.
TEST(CpuBackend, MemoryIsNoMoreThanTheContainersLimit) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / ("convtune_groups_" + std::to_string(::getpid()));
  const auto write = [&](const fs::path& name, const char* text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  };
  const auto limit = [&](const char* own) {
    write("own", own);
    return cpu::memory_limit(root, root / "own");
  };
  EXPECT_EQ(limit("0::/pods/one\n"), std::nullopt);
  write("pods/one/memory.max", "max\n");
  EXPECT_EQ(limit("0::/pods/one\n"), std::nullopt);
  write("pods/memory.max", "3000000000\n");
  EXPECT_EQ(limit("0::/pods/one\n"), 3000000000);
  write("pods/one/memory.max", "2000000000\n");
  EXPECT_EQ(limit("0::/pods/one\n"), 2000000000);
  EXPECT_EQ(limit("0::/pods/one/worker\n"), 2000000000);
  EXPECT_EQ(limit("0::/\n"), std::nullopt);
  write("memory.max", "4000000000\n");
  EXPECT_EQ(limit("0::/of/the/host\n"), 4000000000);  // a container's view: its own group is the root

  write("memory/job/memory.limit_in_bytes", "1000000000\n");
  EXPECT_EQ(limit("5:cpu,cpuacct:/job\n4:memory:/job\n"), 1000000000);
  EXPECT_EQ(limit("5:cpu,cpuacct:/job\n"), std::nullopt);
  fs::remove_all(root);
  EXPECT_EQ(cpu::memory_limit(root, root / "own"), std::nullopt);
}

TEST(CpuBackend, ThreadsRaiseTheCeilingUpToTheProcessors) {
  const int processors = cpu::usable_processors();
  const double one = cpu::measure_flops_per_second(1), all = cpu::measure_flops_per_second(processors),
               more = cpu::measure_flops_per_second(4 * processors);
  EXPECT_GE(all, one * (processors > 1 ? 1.1 : 0.5));
  EXPECT_LT(more, all * 2);
}

}  // namespace
}  // namespace convtune::cpu_backend_test
