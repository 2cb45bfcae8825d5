// program_text(): build(), pack() and run() are rehearsed twice, first for the job and then for its launches;
// nothing is compiled.
//
// nvcc's host code names a template argument's class by its mangled name where that is in a namespace, and
// g++ knows no such name. So the kernels' template lines go, and what was their argument becomes a constant
// of the same name; device functions keep theirs.
#include "cuda/program_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/argument_text.h"
#include "cuda/kernel_sources.h"
#include "cuda/rehearsal.h"

namespace convtune::cuda {
namespace {

constexpr std::size_t kColumns = 108, kMostStaticSmemBytes = 48 << 10;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::internal, "a kernel cannot be written out: " + what);
}

// Broken behind commas, where a line is long.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string result(indent, ' ');
  for (std::size_t column = indent; !text.empty();) {
    const std::size_t comma = text.find(", ");
    const std::string_view piece = text.substr(0, comma == text.npos ? comma : comma + 2);
    if (column > indent && column + piece.size() > kColumns) {
      result.back() = '\n';  // it was a blank
      result.append(column = indent + 4, ' ');
    }
    result += piece;
    column += piece.size();
    text.remove_prefix(piece.size());
  }
  return result + "\n";
}

// "a,b" as "a, b".
std::string spaced(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    if (text[i] == ',' && text.substr(i + 1, 1) != " ") result += ' ';
  }
  return result;
}

// "convtune::stem<convtune::Stem{.n=1,.c=3}>" is a name, a type and its value.
struct KernelName {
  std::string name, type, value;
};
KernelName parts_of(const std::string& kernel) {
  const std::size_t open = kernel.find('<'), brace = kernel.find('{');
  if (open == kernel.npos || brace == kernel.npos || brace < open || !kernel.ends_with("}>"))
    fail(kernel + " has no config");
  return {kernel.substr(0, open), kernel.substr(open + 1, brace - open - 1),
          spaced(kernel.substr(brace, kernel.size() - 1 - brace))};
}

// Lines of a file that stay in one text of all: its own includes are there already.
std::string body_of(const std::string& text) {
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (!line.starts_with("#include \"") && !line.starts_with("#pragma once")) result += line;
    begin = end;
  }
  return result;
}

// A file and all that it includes, each behind what it needs itself.
void append_in_order(const std::string& file, std::vector<KernelSource>& ordered) {
  if (std::any_of(ordered.begin(), ordered.end(), [&](const KernelSource& one) { return one.name == file; }))
    return;
  const std::vector<KernelSource> sources = kernel_sources(file);
  for (std::size_t i = 1; i < sources.size(); ++i) append_in_order(sources[i].name, ordered);
  ordered.push_back(sources.front());
}

std::string device_code_of(const CompileJob& job) {
  const KernelName kernel = parts_of(job.kernels.front());
  for (const std::string& other : job.kernels)
    if (parts_of(other).value != kernel.value) fail("its kernels have different configs");
  const std::string type = kernel.type.substr(kernel.type.rfind(':') + 1);
  const std::string config = fmt::format(
      "// ---- The problem, and what was chosen for it ----\n"
      "namespace convtune {{\n\n{}\n}}  // namespace convtune\n\n",
      wrapped(fmt::format("__device__ constexpr {} config{};", type, kernel.value), 0));
  std::vector<KernelSource> ordered;
  append_in_order(job.headers.front().name, ordered);
  std::string text;
  for (const KernelSource& source : ordered) {
    if (&source == &ordered.back()) text += config;
    text += fmt::format("// ---- {} ----\n{}\n", source.name, body_of(source.text));
  }
  const std::string templated = fmt::format("template <{} config>\n__global__ ", type);
  std::size_t kernels = 0;
  for (std::size_t at = 0; (at = text.find(templated, at)) != text.npos; ++kernels)
    text.replace(at, templated.size(), "__global__ ");
  if (kernels != job.kernels.size()) fail(fmt::format("{} of {} kernels found", kernels, job.kernels.size()));
  return text;
}

std::string statements_of(const std::vector<RehearsedStep>& steps) {
  std::string text;
  const auto add = [&](const std::string& statement) { text += wrapped(statement, 2); };
  for (const RehearsedStep& step : steps) {
    if (step.kernel.empty()) {
      if (step.arguments[1] != "0") fail("memory is filled with " + step.arguments[1]);
      add(fmt::format("C10_CUDA_CHECK(cudaMemsetAsync({}, 0, {} * sizeof(float), stream));",
                      step.arguments[0], step.arguments[2]));
      continue;
    }
    const std::string name = parts_of(step.kernel).name;
    if (step.dynamic_smem_bytes > kMostStaticSmemBytes)
      add(fmt::format(
          "C10_CUDA_CHECK(cudaFuncSetAttribute({}, cudaFuncAttributeMaxDynamicSharedMemorySize, {}));", name,
          step.dynamic_smem_bytes));
    const auto extent = [](const Extent3& e) { return fmt::format("dim3({}, {}, {})", e.x, e.y, e.z); };
    add(fmt::format("{}<<<{}, {}, {}, stream>>>({});", name, extent(step.grid), extent(step.block),
                    step.dynamic_smem_bytes, spaced(fmt::format("{}", fmt::join(step.arguments, ", ")))));
    add("C10_CUDA_KERNEL_LAUNCH_CHECK();");
  }
  return text;
}

CompileJob job_of(const Conv2dProblem& problem, const DeviceInfo& device, const Candidate& candidate) {
  Rehearsal rehearsal(nullptr);
  try {
    candidate.algorithm->build(problem, device, candidate.config);
  } catch (const Rehearsal::StoppedAtCompile&) {
    return *rehearsal.job;
  }
  throw Error(ErrorKind::unsupported,
              fmt::format("{} has no source to write out", candidate.algorithm->name()));
}

}  // namespace

ProgramText program_text(const Conv2dProblem& problem, const DeviceInfo& device, const Candidate& candidate) {
  const CompileJob job = job_of(problem, device, candidate);
  CompiledModule module;  // what its kernels need, nobody asks here
  for (const std::string& kernel : job.kernels) {
    KernelResources resources;
    resources.kernel = kernel;
    module.kernels.push_back(resources);
  }
  Rehearsal rehearsal(&module);
  const auto executable = candidate.algorithm->build(problem, device, candidate.config);
  executable->pack(rehearsed_address(Operand::w), problem.bias ? rehearsed_address(Operand::bias) : nullptr,
                   rehearsed_address(Operand::packed), nullptr);
  ProgramText program;
  program.arch = job.arch;
  program.pack = statements_of(std::exchange(rehearsal.steps, {}));
  executable->run(rehearsed_address(Operand::x), rehearsed_address(Operand::packed),
                  rehearsed_address(Operand::y), nullptr);
  program.run = statements_of(rehearsal.steps);
  program.has_tensor_maps = !rehearsal.tensor_maps.empty();
  program.packed_bytes = executable->packed_bytes();
  program.device_code = device_code_of(job);
  return program;
}

}  // namespace convtune::cuda
