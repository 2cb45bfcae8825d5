// One NVRTC program a job; what ptxas says of each kernel is read from the log.
#include "cuda/compile/compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "base/build_id.h"
#include "base/fork_gate.h"
#include "base/library.h"
#include "base/sha256.h"
#include "convtune/error.h"
#include "cuda/compile/cubin_cache_folder.h"
#include "model/capability_facts.h"

namespace convtune::cuda {
namespace {

// ---- NVRTC -------------------------------------------------------------------------------------

// As in NVIDIA's nvrtc.h, whose names these are; 0 is success.
struct Nvrtc {
  using Program = struct NvrtcProgram*;
  const char* (*nvrtcGetErrorString)(int result);
  int (*nvrtcVersion)(int* major, int* minor);
  int (*nvrtcGetNumSupportedArchs)(int* count);
  int (*nvrtcGetSupportedArchs)(int* archs);
  int (*nvrtcCreateProgram)(Program*, const char* source, const char* name, int headers,
                            const char* const* header_texts, const char* const* header_names);
  int (*nvrtcDestroyProgram)(Program*);
  int (*nvrtcAddNameExpression)(Program, const char* expression);
  int (*nvrtcCompileProgram)(Program, int options, const char* const* option);
  int (*nvrtcGetLoweredName)(Program, const char* expression, const char** name);
  int (*nvrtcGetCUBINSize)(Program, std::size_t*);
  int (*nvrtcGetCUBIN)(Program, char*);
  int (*nvrtcGetProgramLogSize)(Program, std::size_t*);
  int (*nvrtcGetProgramLog)(Program, char*);

  int major = 0, minor = 0;
  std::string build, builtins;  // for its two files: nvrtcVersion() does not tell patch versions apart
};

struct Found {
  std::optional<Nvrtc> nvrtc;
  std::string detail;
};

Found look_for_nvrtc() {
  const Library library = Library::open({"NVRTC",
                                         "CONVTUNE_NVRTC",
                                         {"libnvrtc.so.13", "libnvrtc.so.12"},
                                         {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}});
  if (!library) return {{}, library.why_not()};
  Nvrtc nvrtc{};
  try {
    library.bind(nvrtc.nvrtcGetErrorString, "nvrtcGetErrorString");
    library.bind(nvrtc.nvrtcVersion, "nvrtcVersion");
    library.bind(nvrtc.nvrtcGetNumSupportedArchs, "nvrtcGetNumSupportedArchs");
    library.bind(nvrtc.nvrtcGetSupportedArchs, "nvrtcGetSupportedArchs");
    library.bind(nvrtc.nvrtcCreateProgram, "nvrtcCreateProgram");
    library.bind(nvrtc.nvrtcDestroyProgram, "nvrtcDestroyProgram");
    library.bind(nvrtc.nvrtcAddNameExpression, "nvrtcAddNameExpression");
    library.bind(nvrtc.nvrtcCompileProgram, "nvrtcCompileProgram");
    library.bind(nvrtc.nvrtcGetLoweredName, "nvrtcGetLoweredName");
    library.bind(nvrtc.nvrtcGetCUBINSize, "nvrtcGetCUBINSize");
    library.bind(nvrtc.nvrtcGetCUBIN, "nvrtcGetCUBIN");
    library.bind(nvrtc.nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize");
    library.bind(nvrtc.nvrtcGetProgramLog, "nvrtcGetProgramLog");
  } catch (const Error& error) {
    return {{}, error.what()};
  }
  if (nvrtc.nvrtcVersion(&nvrtc.major, &nvrtc.minor) != 0 || nvrtc.major < 12)
    return {{},
            fmt::format("{} is version {}.{}; convtune needs 12.0 or newer", library.path(), nvrtc.major,
                        nvrtc.minor)};
  std::error_code ignored;
  const std::filesystem::path file = std::filesystem::canonical(library.path(), ignored);
  nvrtc.build = build_id(file);
  nvrtc.builtins =
      build_id(file.parent_path() / fmt::format("libnvrtc-builtins.so.{}.{}", nvrtc.major, nvrtc.minor));
  const std::string detail = fmt::format("{}.{}; {}", nvrtc.major, nvrtc.minor, library.path());
  return {nvrtc, detail};
}

const Found& found() {
  return once([] { return look_for_nvrtc(); });
}

const Nvrtc& nvrtc() {
  if (!found().nvrtc)
    throw Error(ErrorKind::unsupported,
                "NVRTC, NVIDIA's run-time compiler, cannot be used: " + found().detail +
                    "; install the CUDA toolkit, or set CONVTUNE_NVRTC to the file libnvrtc.so.13");
  return *found().nvrtc;
}

// ---- One job -----------------------------------------------------------------------------------

bool is_at_least(int major, int minor) {
  return std::pair(nvrtc().major, nvrtc().minor) >= std::pair(major, minor);
}

// Sorted, so that the order in which they were asked for does not matter to the cache.
std::vector<std::string> all_options(const CompileJob& job) {
  std::vector<std::string> options = job.options;
  options.push_back("--gpu-architecture=" + job.arch);
  options.emplace_back("--std=c++20");
  options.emplace_back("-default-device");      // constexpr members of configs are shared with the host
  options.emplace_back("--ptxas-options=-v");   // registers, spills and shared memory, in the log
  options.emplace_back("--no-source-include");  // never the folder that this process happens to be in
  // Textures and CUDA's run-time functions are left out: the same machine code in 3 % less time.
  if (is_at_least(12, 4)) options.emplace_back("--minimal");
  if (is_at_least(12, 9)) options.emplace_back("--no-cache");  // NVRTC's own
  std::sort(options.begin(), options.end());
  return options;
}

std::string cache_key(const CompileJob& job) {
  std::string all;
  const auto add = [&](std::string_view text) { all += fmt::format("{}\n{}\n", text.size(), text); };
  add(kModuleFormat);
  add(fmt::format("NVRTC {}.{} {} {}", nvrtc().major, nvrtc().minor, nvrtc().build, nvrtc().builtins));
  add(job.source);
  for (const KernelSource& header : job.headers) add(header.name), add(header.text);
  add("options");
  for (const std::string& option : all_options(job)) add(option);
  add("kernels");
  for (const std::string& kernel : job.kernels) add(kernel);
  return sha256(all);
}

std::vector<const char*> pointers(const auto& values, const auto& text_of) {
  std::vector<const char*> result;
  for (const auto& value : values) result.push_back(std::invoke(text_of, value).c_str());
  return result;
}

// The log as text, without the one line that differs from run to run.
std::string without_times(std::string_view log) {
  std::string text;
  log = log.substr(0, log.find('\0'));
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    const std::string_view line = log.substr(begin, end - begin);
    begin = end + 1;
    if (!line.empty() && line.find("Compile time =") == line.npos) text.append(line).append("\n");
  }
  return text;
}

CompiledModule compile_now(const CompileJob& job) {
  const Nvrtc& api = nvrtc();
  const auto require = [&](int result, const char* call) {
    if (result != 0)
      throw Error(ErrorKind::internal,
                  fmt::format("{} failed for {}: {}", call, job.arch, api.nvrtcGetErrorString(result)));
  };
  const auto texts = pointers(job.headers, &KernelSource::text);
  const auto names = pointers(job.headers, &KernelSource::name);
  Nvrtc::Program created = nullptr;
  require(api.nvrtcCreateProgram(&created, job.source.c_str(), "convtune.cu", static_cast<int>(texts.size()),
                                 texts.data(), names.data()),
          "nvrtcCreateProgram");
  const auto destroy = [&](Nvrtc::Program program) { api.nvrtcDestroyProgram(&program); };
  const std::unique_ptr<NvrtcProgram, decltype(destroy)> program(created, destroy);
  for (const std::string& kernel : job.kernels)
    require(api.nvrtcAddNameExpression(created, kernel.c_str()), "nvrtcAddNameExpression");

  const std::vector<std::string> options = all_options(job);
  const auto option = pointers(options, std::identity());
  const int result = api.nvrtcCompileProgram(created, static_cast<int>(option.size()), option.data());
  CompiledModule module;
  const auto sized = [&](auto size_of, auto get, std::string& text, const char* call) {
    std::size_t size = 0;
    require(size_of(created, &size), call);
    text.resize(size);
    require(get(created, text.data()), call);
  };
  sized(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog, module.log, "nvrtcGetProgramLog");
  module.log = without_times(module.log);
  if (result != 0)
    throw Error(ErrorKind::internal,
                fmt::format("{} does not compile for {} ({}):\n{}", fmt::join(job.kernels, ", "), job.arch,
                            api.nvrtcGetErrorString(result), module.log));
  sized(api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN, module.cubin, "nvrtcGetCUBIN");
  for (const std::string& kernel : job.kernels) {
    const char* symbol = nullptr;
    require(api.nvrtcGetLoweredName(created, kernel.c_str(), &symbol), "nvrtcGetLoweredName");
    module.kernels.push_back(read_resources(module.log, kernel, symbol));
  }
  return module;
}

}  // namespace

std::optional<CompiledModule> find_compiled(const CompileJob& job) {
  const std::optional<std::string> content = CubinCache().find(cache_key(job));
  return content ? parse_module(*content) : std::nullopt;
}

void keep_compiled(const CompileJob& job, const CompiledModule& module) {
  CubinCache().store(cache_key(job), to_text(module));
}

CompileJob kernel_job(const std::string& file, const std::string& kernel, const std::string& arch) {
  return {fmt::format("#include \"{}\"\n", file), kernel_sources(file), {}, arch, {kernel}};
}

CompiledModule compile(const CompileJob& job, bool cached) {
  if (cached)
    if (auto module = find_compiled(job)) return *std::move(module);
  CompiledModule module = compile_now(job);
  if (cached) keep_compiled(job, module);
  return module;
}

bool has_nvrtc() {
  return found().nvrtc.has_value();
}

std::string describe_nvrtc() {
  return found().detail;
}

std::vector<ComputeCapability> nvrtc_capabilities() {
  if (!has_nvrtc()) return {};
  int count = 0;
  std::vector<int> archs;
  if (nvrtc().nvrtcGetNumSupportedArchs(&count) == 0) archs.resize(static_cast<std::size_t>(count));
  if (nvrtc().nvrtcGetSupportedArchs(archs.data()) != 0) archs.clear();
  std::vector<ComputeCapability> capabilities;
  for (const int arch : archs)
    if (const ComputeCapability capability{arch / 10, arch % 10}; capability >= kLeastCapability)
      capabilities.push_back(capability);
  return capabilities;
}

std::string nvrtc_version() {
  return has_nvrtc() ? fmt::format("{}.{}", nvrtc().major, nvrtc().minor) : std::string();
}

std::string nvrtc_build() {
  constexpr std::size_t kDigits = 8;
  if (!has_nvrtc()) return {};
  return fmt::format("NVRTC {} build {}", nvrtc_version(), nvrtc().build.substr(0, kDigits));
}

}  // namespace convtune::cuda
