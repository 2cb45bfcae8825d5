// cuModuleLoadData and cuLaunchKernelEx, on the primary context.
#include "cuda/launch/kernel.h"

#include <deque>
#include <optional>
#include <utility>

#include "base/fork_gate.h"
#include "cuda/compile/compiler.h"
#include "cuda/device/retired_modules.h"

namespace convtune::cuda {
namespace {

// CUfunction_attribute and CUlaunchAttributeID, by their values in cuda.h.
constexpr int kBinaryVersion = 6, kMaxDynamicSharedSizeBytes = 8;
constexpr int kProgrammaticStreamSerialization = 6;
// CUDA 12.3 is the first that keeps overlapping launches in a graph.
constexpr int kOldestDriverThatOverlaps = 12030;
constexpr CUresult kInvalidImage = 200, kNoBinaryForGpu = 209;

// Never destroyed: at the program's end the driver may be gone before the last kernel.
RetiredModules& retired(int device) {
  auto& all = *once([] {
    auto* const of_devices = new std::deque<RetiredModules>;
    for (int i = 0; i < device_count(); ++i) of_devices->emplace_back(128);
    return of_devices;
  });
  return all[static_cast<std::size_t>(device)];
}

// The device is current. Modules that are done with go here, where a kernel is compiled or at least read and
// a wait counts for little, and not in a destructor: one may run while a CUDA graph is being recorded, which
// waiting would break.
std::shared_ptr<CUmod_st> load(int device, const std::string& cubin, const std::string& name,
                               Kernel::Loaded loaded) {
  if (loaded == Kernel::Loaded::at_build)
    retired(device).unload_some([] { return driver().cuCtxSynchronize() == 0; },
                                [](CUmodule done) { driver().cuModuleUnload(done); });
  CUmodule module = nullptr;
  const CUresult result = driver().cuModuleLoadData(&module, cubin.data());
  // A driver runs cubins of its own major version and older ones.
  if (result == kInvalidImage || result == kNoBinaryForGpu)
    check(result, "loading {} on cuda:{} (compiled by NVRTC {}; the driver {})", name, device,
          nvrtc_version(), describe_driver());
  check(result, "loading {} on cuda:{}", name, device);
  return {module, [&all = retired(device)](CUmodule done) { all.add(done); }};
}

}  // namespace

Kernel::Kernel(int device, const CompiledModule& module, const std::string& name, const Options& options)
    : device_(device), resources_(module.kernel(name)) {
  const DeviceScope scope(device);
  std::optional<BesideCapture> beside;
  if (options.loaded == Loaded::in_a_run) beside.emplace();
  module_ = load(device, module.cubin, name, options.loaded);
  find(options);
}

Kernel::Kernel(const Kernel& one, const CompiledModule& module, const std::string& name,
               const Options& options)
    : device_(one.device_), resources_(module.kernel(name)), module_(one.module_) {
  const DeviceScope scope(device_);
  std::optional<BesideCapture> beside;
  if (options.loaded == Loaded::in_a_run) beside.emplace();
  find(options);
}

void Kernel::find(const Options& options) {
  check(driver().cuModuleGetFunction(&function_, module_.get(), resources_.symbol.c_str()),
        "finding {} in its module", resources_.kernel);
  // Asked for in every case: it makes a driver that loads lazily load now, and not in the first launch.
  check(driver().cuFuncSetAttribute(function_, kMaxDynamicSharedSizeBytes,
                                    static_cast<int>(options.dynamic_smem_bytes)),
        "allowing {} {} bytes of shared memory a block", resources_.kernel, options.dynamic_smem_bytes);
  int capability = 0;  // for the machine code, 10 times the major number and the minor one
  check(driver().cuFuncGetAttribute(&capability, kBinaryVersion, function_), "asking what {} is compiled for",
        resources_.kernel);
  overlaps_ =
      options.waits_for_earlier_grids && capability >= 90 && driver().version >= kOldestDriverThatOverlaps;
}

int Kernel::blocks_per_unit(unsigned threads, std::size_t dynamic_smem_bytes) const {
  const DeviceScope scope(device_);
  int blocks = 0;
  check(driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function_, static_cast<int>(threads),
                                                             dynamic_smem_bytes),
        "asking for the occupancy of {}", resources_.kernel);
  return blocks;
}

void Kernel::launch_with(Extent3 grid, Extent3 block, std::size_t dynamic_smem_bytes, Stream stream,
                         const void** arguments) const {
  const DeviceScope scope(device_);
  LaunchAttribute overlaps{.id = kProgrammaticStreamSerialization, .value = {1}};
  const LaunchConfig config{.grid_x = grid.x,
                            .grid_y = grid.y,
                            .grid_z = grid.z,
                            .block_x = block.x,
                            .block_y = block.y,
                            .block_z = block.z,
                            .dynamic_smem_bytes = static_cast<unsigned>(dynamic_smem_bytes),
                            .stream = static_cast<CUstream>(stream),
                            .attributes = &overlaps,
                            .attribute_count = overlaps_ ? 1u : 0u};
  check(driver().cuLaunchKernelEx(&config, function_, const_cast<void**>(arguments), nullptr),
        "launching {} with {}x{}x{} blocks of {}x{}x{} threads and {} bytes of shared memory",
        resources_.kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, dynamic_smem_bytes);
}

void fill(int device, void* memory, unsigned word, std::size_t words, Stream stream) {
  const DeviceScope scope(device);
  check(driver().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(memory), word, words,
                                  static_cast<CUstream>(stream)),
        "filling {} words", words);
}

}  // namespace convtune::cuda
