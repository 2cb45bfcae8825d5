// Holds the result of a compile job: machine code, and ptxas's report on its kernels. A value with a
// text form, which the cache and the pipe from a child process carry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convtune::cuda {

// Describes the resources of one kernel, as ptxas reports them.
struct KernelResources {
  std::string kernel;                  // as the job wrote it
  std::string symbol;                  // its name in the cubin
  int registers = 0;                   // a thread
  std::int64_t spill_bytes = 0;        // stored and loaded, a thread
  std::int64_t stack_bytes = 0;        // a thread
  std::int64_t static_smem_bytes = 0;  // a block

  bool operator==(const KernelResources&) const = default;
};

struct CompiledModule {
  std::string cubin;
  std::vector<KernelResources> kernels;  // in the job's order
  std::string log;                       // the compiler's, with its warnings

  const KernelResources& kernel(const std::string& name) const;  // throws Error{internal} if it is not there

  bool operator==(const CompiledModule&) const = default;
};

// Part of the cache's key: to be changed together with the text form.
constexpr std::string_view kModuleFormat = "convtune module 1";
std::string to_text(const CompiledModule& module);
std::optional<CompiledModule> parse_module(std::string_view text);  // nothing for any other text

// Reads the report of `ptxas -v` on one kernel, with the spills and stack of functions that it calls.
// Throws Error{internal} where the log has nothing about it.
KernelResources read_resources(std::string_view log, const std::string& kernel, const std::string& symbol);

}  // namespace convtune::cuda
