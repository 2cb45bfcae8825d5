// The CPU as a Backend: what it is called, what it can do, its memory and its stopwatch.
#include "cpu/backend/cpu_backend.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "base/fork_gate.h"
#include "base/private_file.h"
#include "contract/backend.h"
#include "cpu/base/memory_limit.h"
#include "cpu/base/openmp.h"
#include "cpu/base/parallel.h"
#include "cpu/base/processors.h"
#include "cpu/base/thread_pool.h"
#include "cpu/base/undisturbed.h"
#include "cpu/tile/instruction_sets.h"

namespace convtune::cpu {
namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\n"), last = text.find_last_not_of(" \t\n");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// The first processor's fields in /proc/cpuinfo: "model name" -> "AMD EPYC".
std::map<std::string, std::string> cpuinfo() {
  std::map<std::string, std::string> fields;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const auto colon = line.find(':');
    if (colon != std::string::npos) fields[trimmed(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  }
  return fields;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "1024K" -> 1048576
std::int64_t parse_size(const std::string& text) {
  char* unit = nullptr;
  const std::int64_t number = std::strtoll(text.c_str(), &unit, 10);
  return number << (*unit == 'K' ? 10 : *unit == 'M' ? 20 : *unit == 'G' ? 30 : 0);
}

void read_caches(DeviceInfo& info) {
  for (int index = 0;; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string level = first_line(folder + "level");
    if (level.empty()) return;
    if (first_line(folder + "type") == "Instruction") continue;
    const std::int64_t bytes = parse_size(first_line(folder + "size"));
    if (level == "1") info.l1_bytes = bytes;
    if (level == "2") info.l2_bytes = bytes;
    if (level == "3") info.l3_bytes = bytes;
  }
}

std::string kib(std::int64_t bytes) {
  return std::to_string(bytes / 1024) + " KiB";
}

DeviceInfo look_up() {
  DeviceInfo info;
  auto fields = cpuinfo();
  info.name = fields["model name"];
  std::string model = "family " + fields["cpu family"] + " model " + fields["model"];
  if (info.name.empty()) {  // as on an Arm machine
    info.name = "CPU " + fields["CPU implementer"] + " " + fields["CPU part"];
    model = "variant " + fields["CPU variant"];
  }
  info.isa = widest_instruction_set();
  read_caches(info);
  info.memory_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (const auto limit = memory_limit()) info.memory_bytes = std::min(info.memory_bytes, *limit);
  info.fingerprint = "cpu|" + info.name + "|" + model + "|" + info.isa;
  return info;
}

// Witness of the last sample that this thread took.
thread_local Witness last_witness;

class CpuBackend final : public Backend {
 public:
  CpuBackend() : machine_(look_up()) {
    const int wanted = std::min(openmp_threads(), usable_processors()), team = members_of(wanted);
    if (team < wanted)
      warn_once("cpu",
                fmt::format("of {} threads the system starts {}, which are used; its limit of processes "
                            "or of memory is reached",
                            wanted, team));
    threads_at_first_ = team;
    set_threads(team);
  }

  const DeviceInfo& info() const override { return *info_.load(std::memory_order_acquire); }

  // An executor that was set stays: a loop that began before may still use it.
  void set_executor(const CpuExecutor* executor) {
    {
      const std::lock_guard lock(mutex_);
      use_executor(executor ? &executors_.emplace_back(*executor) : nullptr);
    }
    set_threads(executor ? executor->concurrency : threads_at_first_);
  }

  // An info that was handed out stays as it was: one for every number of threads ever set.
  void set_threads(int threads) {
    const std::lock_guard lock(mutex_);
    DeviceInfo& info = infos_[threads];
    if (info.name.empty()) {
      info = machine_;
      info.units = threads;
      info.fingerprint.append("|")
          .append(std::to_string(threads))
          .append(threads == 1 ? " thread" : " threads");
    }
    info_.store(&info, std::memory_order_release);
  }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    // Each block starts at another place within its page: tensors that all start at a page's edge
    // make loads and stores 4096 bytes apart wait for each other.
    constexpr std::size_t kPage = 4096, kStep = 320, kPlaces = 12;
    const std::size_t offset = kStep * (allocations_.fetch_add(1, std::memory_order_relaxed) % kPlaces);
    const bool possible = bytes <= static_cast<std::size_t>(machine_.memory_bytes);
    void* block = possible ? std::aligned_alloc(kPage, (bytes + offset + kPage) / kPage * kPage) : nullptr;
    if (block == nullptr)
      throw Error(ErrorKind::unsupported, "not enough memory: " + std::to_string(bytes) +
                                              " bytes asked for of the " +
                                              std::to_string(machine_.memory_bytes) +
                                              " that this machine or its container has; use a smaller batch");
    return {static_cast<unsigned char*>(block) + offset, [block](void*) { std::free(block); }};
  }

  void upload(void* device, const void* host, std::size_t bytes) override { copy(device, host, bytes); }
  void download(void* host, const void* device, std::size_t bytes) override { copy(host, device, bytes); }
  void synchronize(Stream) override {}

  double time_us(const std::function<void()>& work) override {
    const auto sample = [&] {
      const auto start = std::chrono::steady_clock::now();
      work();
      return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    };
    const Sample taken = undisturbed(info().units, sample, thread_times, [](double us) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(us));
    });
    last_witness = taken.witness;
    return taken.us;
  }
  Witness witness() const override { return last_witness; }
  Load load() const override {
    double average = 0;
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return getloadavg(&average, 1) == 1 ? Load{average, static_cast<int>(processors)} : Load{};
  }

  Ceilings measure_ceilings() override {
    const int threads = info().units;
    return {measure_flops_per_second(threads), measure_bytes_per_second(threads, *this)};
  }

  Precision default_precision() const override { return Precision::fp32; }

 private:
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  const DeviceInfo machine_;  // without the number of threads
  Mutex mutex_;
  std::map<int, DeviceInfo> infos_;  // by threads; a node never moves
  std::deque<CpuExecutor> executors_;
  int threads_at_first_ = 1;
  std::atomic<const DeviceInfo*> info_ = nullptr;
  std::atomic<std::size_t> allocations_ = 0;
};

CpuBackend& cpu_backend() {
  return once([] { return CpuBackend(); });
}

}  // namespace

Backend& backend() {
  return cpu_backend();
}

std::string describe_caches(const DeviceInfo& info) {
  std::string text = "caches " + kib(info.l1_bytes) + " and " + kib(info.l2_bytes) + " a core, " +
                     kib(info.l3_bytes) + " shared";
  if (info.l3_bytes > kMostFlushedBytes)
    text += ", more than the " + kib(kMostFlushedBytes) +
            " that measurements use in turn: what they time may lie in the cache";
  return text;
}

void set_threads(int threads) {
  cpu_backend().set_threads(threads);
}

void set_executor(const CpuExecutor* executor) {
  cpu_backend().set_executor(executor);
}

std::string describe_threads() {
  const int threads = backend().info().units, usable = usable_processors();
  std::string text =
      fmt::format("{} in use{}; {} usable", threads, uses_executor() ? ", of the program's own" : "",
                  usable == 1 ? "1 processor" : fmt::format("{} processors", usable));
  if (const auto quota = processor_quota())
    text += fmt::format(", by a quota of {:.3g} of its control group", *quota);
  return text;
}

}  // namespace convtune::cpu
