// Which devices there are, and what was looked for and found: the answers behind `convtune devices`
// and `convtune doctor`.
#include <unistd.h>

#include <filesystem>

#include "base/private_file.h"
#include "convtune/cases.h"
#include "convtune/cubin_cache.h"
#include "convtune/database.h"
#include "convtune/device.h"
#include "convtune/error.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/base/openmp.h"
#include "cpu/onednn/onednn.h"
#include "cpu/onednn/onednn_api.h"
#include "cuda/backend/cuda.h"
#include "cuda/launch/gpu_share.h"

namespace convtune {
namespace {

Probe probe_threads() {
  return {"CPU threads", true, cpu::describe_threads()};
}

Probe probe_instruction_set() {
  const DeviceInfo& info = cpu::backend().info();
  return {"CPU instructions", true, info.isa + " on " + info.name + "; " + cpu::describe_caches(info)};
}

Probe probe_onednn() {
  return {"oneDNN", cpu::onednn() != nullptr, cpu::describe_onednn()};
}

// Looks without creating: the folder itself, or the nearest one above it that exists. `kept`: what is kept
// there.
Probe probe_folder(const std::string& what, const std::filesystem::path& folder, WayOut way_out,
                   const std::string& kept) {
  namespace fs = std::filesystem;
  const auto answer = [&](bool found, std::string detail) { return Probe{what, found, std::move(detail)}; };
  if (folder.empty()) return answer(false, std::string("there is no home folder; set ") + way_out.variable);
  std::error_code ignored;
  if (fs::exists(folder, ignored) && !PrivateFolder::open(folder, way_out))
    return answer(false, folder.string() + " is not used: it must be a folder that only you can write to");
  fs::path existing = fs::absolute(folder, ignored);
  while (!fs::exists(existing, ignored) && existing.has_relative_path()) existing = existing.parent_path();
  if (!fs::is_directory(existing, ignored))
    return answer(false, folder.string() + " cannot be made: " + existing.string() + " is not a folder");
  if (access(existing.c_str(), W_OK | X_OK) != 0)
    return answer(false, existing.string() + " is not writable: " + kept + "s are read and not kept");
  return answer(true, folder.string() + (fs::exists(folder, ignored) ? "" : ", made at the first " + kept));
}

Probe probe_kernel_cache() {
  const CubinCacheContents kept = cubin_cache_contents();
  Probe probe = probe_folder("kernel cache", kept.folder, {"CONVTUNE_CACHE_DIR", false}, "kernel");
  const auto mib = [](std::int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; };
  if (kept.kernels > 0)
    probe.detail += "; " + std::to_string(kept.kernels) + (kept.kernels == 1 ? " kernel, " : " kernels, ") +
                    mib(kept.bytes) + " of at most " + mib(kept.limit_bytes);
  return probe;
}

Probe probe_suites() {
  std::string detail;
  for (const Suite& suite : suites()) {
    detail += (detail.empty() ? "" : ", ") + suite.name + " " + std::to_string(suite.problems.size());
  }
  return {"case suites", !detail.empty(), detail.empty() ? "none built in" : detail};
}

}  // namespace

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all = cuda::devices();
  all.push_back(cpu::backend().info());
  return all;
}

Device best_device() {
  return devices().front().device;
}

DeviceInfo device_info(Device device) {
  std::string names;
  for (const DeviceInfo& info : devices()) {
    if (info.device == device) return info;
    names += (names.empty() ? "" : ", ") + to_string(info.device) + " (" + info.name + ")";
  }
  std::string why;  // libraries looked for and not found, where it was a GPU
  if (device.kind == Device::Kind::cuda)
    for (const Probe& probe : cuda::probes())
      if (!probe.found) why += "; " + probe.what + ": " + probe.detail;
  if (!why.empty()) why += "; `convtune doctor` has more";
  throw Error(ErrorKind::no_device,
              "there is no device " + to_string(device) + " here; there is " + names + why);
}

void set_cpu_threads(int threads) {
  if (threads < 1 || threads > kMostCpuThreads)
    throw Error(ErrorKind::invalid_argument, "threads must be 1 to " + std::to_string(kMostCpuThreads) +
                                                 ", not " + std::to_string(threads));
  cpu::set_threads(threads);
}

void set_cpu_executor(const CpuExecutor* executor) {
  if (executor && (executor->concurrency < 1 || executor->concurrency > kMostCpuThreads))
    throw Error(ErrorKind::invalid_argument, "an executor's concurrency must be 1 to " +
                                                 std::to_string(kMostCpuThreads) + ", not " +
                                                 std::to_string(executor->concurrency));
  if (executor && executor->parallel_for == nullptr)
    throw Error(ErrorKind::invalid_argument, "an executor needs a function parallel_for, which is null");
  cpu::set_executor(executor);
}

void share_openmp_threads(bool share) {
  cpu::share_openmp(share);
}

void set_gpu_share(double share) {
  if (!(share > 0 && share <= 1))
    throw Error(ErrorKind::invalid_argument,
                "a share of a GPU must be above 0 and at most 1, not " + std::to_string(share));
  cuda::set_gpu_share(share);
}

std::vector<Probe> probe_environment() {
  std::vector<Probe> all = {probe_threads(), probe_instruction_set(), probe_onednn()};
  for (Probe& probe : cuda::probes()) all.push_back(std::move(probe));
  all.push_back(
      probe_folder("records folder", Database::default_folder(), {"CONVTUNE_DATA_DIR", true}, "record"));
  all.push_back(probe_kernel_cache());
  all.push_back(probe_suites());
  return all;
}

}  // namespace convtune
