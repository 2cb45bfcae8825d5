// NVIDIA GPUs as Backends: what they are called, what they can do, their memory and their stopwatch. A
// device's context is made at its first use, not when devices are listed.
#include "contract/backend.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

#include "base/fork_gate.h"
#include "cuda/backend/cuda.h"
#include "cuda/compile/compiler.h"
#include "cuda/cudnn/cudnn.h"
#include "cuda/cudnn/cudnn_api.h"
#include "cuda/device/driver.h"
#include "cuda/device/memory.h"
#include "cuda/device/nvml.h"
#include "model/capability_facts.h"

namespace convtune::cuda {
namespace {

// CUdevice_attribute, by its values in cuda.h.
constexpr int kMultiprocessorCount = 16, kL2CacheSize = 38, kCapabilityMajor = 75, kCapabilityMinor = 76;

CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

struct Gpu {
  DeviceInfo info;
  std::string why_not;  // empty where convtune can use it
};

// Returns the capability that a GPU is treated as: its own, or a lower one named by CONVTUNE_CAPABILITY, to
// see there what others get. Kernels are compiled for the GPU that they run on all the same.
ComputeCapability treated_as(ComputeCapability own, std::string& why_not) {
  const char* const text = ::secure_getenv("CONVTUNE_CAPABILITY");
  if (text == nullptr || *text == '\0') return own;
  const std::optional<ComputeCapability> asked = parse_capability(text);
  if (asked && *asked >= kLeastCapability && *asked <= own) return *asked;
  why_not = fmt::format("CONVTUNE_CAPABILITY is '{}', and it can be treated as {} to {}", text,
                        to_string(kLeastCapability), to_string(own));
  return own;
}

Gpu look_up(int index) {
  const Driver& api = driver();
  CUdevice device = 0;
  check(api.cuDeviceGet(&device, index), "opening device cuda:{}", index);
  const auto attribute = [&](int which) {
    int value = 0;
    check(api.cuDeviceGetAttribute(&value, which, device), "asking cuda:{} for attribute {}", index, which);
    return value;
  };
  Gpu gpu;
  DeviceInfo& info = gpu.info;
  char name[256] = {};
  check(api.cuDeviceGetName(name, sizeof name, device), "asking for the name of cuda:{}", index);
  std::size_t memory = 0;
  check(api.cuDeviceTotalMem(&memory, device), "asking for the memory of cuda:{}", index);
  info.device = {Device::Kind::cuda, index};
  info.name = name;
  const ComputeCapability own = {attribute(kCapabilityMajor), attribute(kCapabilityMinor)};
  info.isa = isa_of(own);
  info.capability = treated_as(own, gpu.why_not);
  info.units = attribute(kMultiprocessorCount);
  info.l2_bytes = attribute(kL2CacheSize);
  info.memory_bytes = static_cast<std::int64_t>(memory);
  // Without the driver: its versions are many, and a kernel's machine code is the same under all of them.
  info.fingerprint = fmt::format("cuda|{}|{}|{} SMs", info.name, isa_of(info.capability), info.units);
  if (info.capability < kLeastCapability)
    gpu.why_not = fmt::format("it has compute capability {}, and convtune needs {}",
                              to_string(info.capability), to_string(kLeastCapability));
  else if (!has_nvrtc())
    gpu.why_not = "NVRTC, which compiles its kernels, is not found";
  return gpu;
}

const std::vector<Gpu>& gpus() {
  return once([] {
    std::vector<Gpu> found;
    for (int index = 0; index < device_count(); ++index) {
      Gpu& gpu = found.emplace_back();
      try {
        gpu = look_up(index);
      } catch (const Error& error) {
        gpu.info.device = {Device::Kind::cuda, index};
        gpu.why_not = error.what();
      }
    }
    return found;
  });
}

class Event {
 public:
  explicit Event(int device) : device_(device) {
    check(driver().cuEventCreate(&event_, 0), "making an event");
  }
  ~Event() {
    release_on(device_, [&] { driver().cuEventDestroy(event_); });
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() { check(driver().cuEventRecord(event_, nullptr), "recording an event"); }
  // Waits for both.
  double us_since(const Event& start) const {
    float milliseconds = 0;
    check(driver().cuEventSynchronize(event_), "waiting for the timed work");
    check(driver().cuEventElapsedTime(&milliseconds, start.event_, event_),
          "reading the timed work's events");
    return 1000.0 * milliseconds;
  }

 private:
  int device_;
  CUevent event_ = nullptr;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(DeviceInfo info) : info_(std::move(info)), pci_bus_id_(pci_bus_id(index())) {}

  const DeviceInfo& info() const override { return info_; }

  std::shared_ptr<void> allocate(std::size_t bytes) override { return cuda::allocate(index(), bytes); }

  void upload(void* device, const void* host, std::size_t bytes) override {
    if (bytes == 0) return;
    const DeviceScope scope(index());
    check(driver().cuMemcpyHtoD(address_of(device), host, bytes), "copying {} bytes to {}", bytes,
          to_string(info_.device));
    // A small copy returns before its bytes have arrived, and streams of a caller's own do not wait for it.
    check(driver().cuStreamSynchronize(nullptr), "copying {} bytes to {}", bytes, to_string(info_.device));
  }

  void download(void* host, const void* device, std::size_t bytes) override {
    if (bytes == 0) return;
    const DeviceScope scope(index());
    check(driver().cuMemcpyDtoH(host, address_of(device), bytes), "copying {} bytes from {}", bytes,
          to_string(info_.device));
  }

  void synchronize(Stream stream) override {
    const DeviceScope scope(index());
    check(driver().cuStreamSynchronize(static_cast<CUstream>(stream)), "waiting for {}",
          to_string(info_.device));
  }

  // Queued one after the other and waited for once: 2048 elements one by one took most of a check.
  void fill_at(void* tensor, const std::vector<std::int64_t>& offsets,
               const std::vector<unsigned char>& element) override {
    const std::shared_ptr<void> one = allocate(element.size());
    upload(one.get(), element.data(), element.size());
    const DeviceScope scope(index());
    for (const std::int64_t offset : offsets)
      copy(address_of(tensor) + static_cast<std::size_t>(offset) * element.size(), address_of(one.get()),
           element.size());
    check(driver().cuStreamSynchronize(nullptr), "writing elements to {}", to_string(info_.device));
  }

  void move_rows(const Rows& rows, Stream stream) override { cuda::move_rows(index(), rows, stream); }

  std::vector<unsigned char> read_at(const void* tensor, const std::vector<std::int64_t>& offsets,
                                     std::size_t element_bytes) override {
    const std::shared_ptr<void> gathered = allocate(offsets.size() * element_bytes);
    {
      const DeviceScope scope(index());
      for (std::size_t i = 0; i < offsets.size(); ++i)
        copy(address_of(gathered.get()) + i * element_bytes,
             address_of(tensor) + static_cast<std::size_t>(offsets[i]) * element_bytes, element_bytes);
    }
    std::vector<unsigned char> bytes(offsets.size() * element_bytes);
    download(bytes.data(), gathered.get(), bytes.size());
    return bytes;
  }

  // Times work on the default stream. Writing twice the L2 before it leaves nothing of its data there, and
  // the L2 full of what must be written back, as it is after the work itself: what the work leaves unwritten
  // at its end, it had to write for its predecessor at its start. It also keeps the device busy while the
  // host queues the work, so that the host's own time is not in the result.
  double time_us(const std::function<void()>& work) override {
    const std::lock_guard lock(timing_);
    const DeviceScope scope(index());
    if (!stopwatch_) stopwatch_.emplace(*this);
    Stopwatch& watch = *stopwatch_;
    check(driver().cuMemsetD32Async(address_of(watch.flush.get()), ++watch.value, watch.flush_bytes / 4,
                                    nullptr),
          "flushing the L2 of {}", to_string(info_.device));
    watch.start.record();
    work();
    watch.stop.record();
    return watch.stop.us_since(watch.start);
  }

  std::string clock_drift() override {
    const auto events = nvml().clock_events(pci_bus_id_);
    return events ? clock_drift_in_words(*events) : std::string();
  }

  Ceilings measure_ceilings() override { return cuda::measure_ceilings(*this); }
  Precision default_precision() const override { return Precision::tf32; }

 private:
  struct Stopwatch {
    explicit Stopwatch(CudaBackend& backend)
        : start(backend.index()),
          stop(backend.index()),
          flush_bytes(static_cast<std::size_t>(std::max(2 * backend.info_.l2_bytes, kLeastFlush))),
          flush(backend.allocate(flush_bytes)) {}
    static constexpr std::int64_t kLeastFlush = std::int64_t{32} << 20;
    Event start, stop;
    std::size_t flush_bytes;
    std::shared_ptr<void> flush;
    unsigned value = 0;
  };

  int index() const { return info_.device.index; }
  // Queued; within a DeviceScope.
  void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) const {
    check(driver().cuMemcpyDtoDAsync(to, from, bytes, nullptr), "copying {} bytes on {}", bytes,
          to_string(info_.device));
  }
  // The device's name in NVML, whose order of devices is another; empty where it is not known.
  static std::string pci_bus_id(int index) {
    char id[32] = {};
    CUdevice device = 0;
    const bool known =
        driver().cuDeviceGet(&device, index) == 0 && driver().cuDeviceGetPCIBusId(id, sizeof id, device) == 0;
    return known ? id : std::string();
  }

  const DeviceInfo info_;
  const std::string pci_bus_id_;
  Mutex timing_;  // one timing at a time, or they would time each other
  std::optional<Stopwatch> stopwatch_;
};

}  // namespace

const std::vector<DeviceInfo>& devices() {
  return once([] {
    std::vector<DeviceInfo> found;
    for (const Gpu& gpu : gpus())
      if (gpu.why_not.empty()) found.push_back(gpu.info);
    return found;
  });
}

Backend& backend(Device device) {
  static constinit Mutex mutex;
  auto& backends = once([] { return std::map<int, CudaBackend>(); });  // a node never moves
  const std::lock_guard lock(mutex);
  for (const DeviceInfo& info : devices())
    if (info.device == device) return backends.try_emplace(device.index, info).first->second;
  throw Error(ErrorKind::no_device, "convtune can use no device " + to_string(device) + " here");
}

std::vector<Probe> probes() {
  std::vector<Probe> list = {{"NVIDIA driver", find_driver() != nullptr, describe_driver()},
                             {"NVRTC", has_nvrtc(), describe_nvrtc()},
                             {"cuDNN", cudnn() != nullptr, describe_cudnn()},
                             {"NVML", static_cast<bool>(nvml()),
                              nvml().detail() + (nvml() ? "; tells why a GPU's clock is lowered" : "")}};
  for (const Gpu& gpu : gpus()) {
    const DeviceInfo& info = gpu.info;
    const std::string name = info.name.empty() ? "a device" : info.name + ", " + info.isa;
    list.push_back({to_string(info.device), gpu.why_not.empty(),
                    gpu.why_not.empty() ? fmt::format("{}, {} multiprocessors, L2 {} MiB", name, info.units,
                                                      info.l2_bytes >> 20)
                                        : fmt::format("{} is not used: {}", name, gpu.why_not)});
  }
  return list;
}

}  // namespace convtune::cuda
