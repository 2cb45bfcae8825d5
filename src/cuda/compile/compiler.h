// CUDA C++ to machine code by NVRTC, which is found while the program runs and needs neither a driver nor
// a GPU. What was compiled once comes from the cache (cubin_cache.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convtune/capability.h"
#include "cuda/compile/compiled_module.h"
#include "cuda/compile/kernel_sources.h"

namespace convtune::cuda {

// Everything that the compiler sees. Nothing that comes from a file or a user belongs in here but integers
// and names from a list.
struct CompileJob {
  std::string source;                 // the text that is compiled: mostly one #include line
  std::vector<KernelSource> headers;  // all that it may include; no folder is ever searched
  std::vector<std::string> options;   // beside those that every kernel is compiled with
  std::string arch;                   // as isa_of() says it: "sm_90a"
  std::vector<std::string> kernels;   // as C++ writes them: "convtune::copy<Config{.width = 4}>"
};

// The job of one kernel in a file below src/.
CompileJob kernel_job(const std::string& file, const std::string& kernel, const std::string& arch);

// Throws Error{unsupported} where there is no NVRTC, Error{internal} with the compiler's log where the
// source does not compile. `cached` false neither reads nor writes the cache.
CompiledModule compile(const CompileJob& job, bool cached = true);

// The cache's part in that, for who compiles elsewhere.
std::optional<CompiledModule> find_compiled(const CompileJob& job);
void keep_compiled(const CompileJob& job, const CompiledModule& module);

// Tells whether NVRTC can be loaded; and for people its version and file, or why not.
bool has_nvrtc();
std::string describe_nvrtc();
std::vector<ComputeCapability> nvrtc_capabilities();  // from 8.0 on; none without NVRTC
std::string nvrtc_version();                          // "13.0"; empty without NVRTC
// The version and the build of its file, "NVRTC 13.0 build 65be0db3": other builds make other machine code.
std::string nvrtc_build();  // empty without NVRTC

}  // namespace convtune::cuda
