// export_cuda(): the template src/export/conv2d_cuda.py with a kernel's source and launches put in.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/sha256.h"
#include "convtune/error.h"
#include "convtune/export.h"
#include "cuda/launch/program_text.h"
#include "export/export_template.h"
#include "model/capability.h"
#include "plan/algorithms.h"
#include "plan/estimate.h"
#include "plan/planner.h"

namespace convtune {
namespace {

void check(const ConvProblem& a, const ExportOptions& options) {
  check_layer(a, {DType::f32}, options.module_name,
              {"torch", "nn", "load_inline", "CUDA_SOURCE", "CPP_SOURCE", "extension", "pack", "conv2d",
               "object", "id"});
  if (a.n == 0) refuse_export(a, "a batch of 0 has nothing to run");
}

Plan named_plan(const ConvProblem& problem, const DeviceInfo& device, const CudaExportOptions& options) {
  const Algorithm& algorithm = find_algorithm(Device::Kind::cuda, options.algorithm);
  if (algorithm.vendor() || algorithm.reference())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} has no source that could be exported", options.algorithm));
  if (const Support support = algorithm.supports(problem, device); !support)
    throw Error(ErrorKind::unsupported,
                fmt::format("{} cannot run {}: {}", options.algorithm, to_string(problem), support.reason()));
  const Config config =
      options.config.values.empty() ? algorithm.candidates(problem, device).front() : options.config;
  if (const Support support = algorithm.accepts(problem, device, config); !support)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} does not take the config '{}': {}", options.algorithm, to_string(config),
                            support.reason()));
  return {options.algorithm, config, PlanSource::forced, "named by the caller"};
}

// A line of a Python comment, which nothing in it can end: names come from outside. In UTF-8, since Python
// reads no other file: JSON's writer puts U+FFFD where bytes are malformed.
std::string one_line(std::string text) {
  for (char& letter : text)
    if (static_cast<unsigned char>(letter) < 0x20) letter = ' ';
  using nlohmann::json;
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

Words words_of(const ConvProblem& a, const DeviceInfo& device, const Plan& plan,
               const cuda::ProgramText& program, const ExportOptions& options) {
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  const bool nhwc = a.layout == Layout::nhwc;
  const std::string source = program.arch + program.device_code + program.pack + program.run;
  std::string map;
  if (program.has_tensor_maps) map = fill_template("tensor_map.cu", {});
  Words words = layer_words(a);
  words.merge(Words{{"VERSION", CONVTUNE_VERSION},
                    {"PROBLEM", one_line(to_string(a))},
                    {"DEVICE", one_line(device.name)},
                    {"ALGORITHM", fmt::format("{} {}", plan.algorithm, to_string(plan.config))},
                    {"WHY", fmt::format("{}: {}", to_string(plan.source), one_line(plan.why))},
                    {"DEVICE_CODE", program.device_code},
                    {"TENSOR_MAP", map},
                    {"PACK", program.pack},
                    {"RUN", program.run},
                    {"PACKED_FLOATS", number(static_cast<std::int64_t>((program.packed_bytes + 3) / 4))},
                    {"EXTENSION", "conv2d_" + sha256(source).substr(0, 16)},
                    {"ARCH", program.arch},
                    {"COMPUTE", virtual_isa_of(device.capability)},
                    {"MAJOR", number(device.capability.major)},
                    {"MINOR", number(device.capability.minor)},
                    {"N", number(a.n)},
                    {"H", number(a.h)},
                    {"W", number(a.w)},
                    {"P", number(a.p())},
                    {"Q", number(a.q())},
                    {"GROUPS", number(a.groups)},
                    {"GROUP_C", number(a.c / a.groups)},
                    {"MEMORY_FORMAT", nhwc ? "memory_format=torch.channels_last" : ""},
                    {"MEMORY_FORMAT_CPP", nhwc ? ".memory_format(at::MemoryFormat::ChannelsLast)" : ""},
                    {"FALLBACK", a.activation == Activation::relu ? "self.conv1(x).relu()" : "self.conv1(x)"},
                    {"MODULE", options.module_name}});
  return words;
}

CudaExport written(const ConvProblem& problem, const DeviceInfo& device, Plan plan, std::string note,
                   const ExportOptions& options) {
  const cuda::ProgramText program =
      cuda::program_text(problem, device, {&find_algorithm(Device::Kind::cuda, plan.algorithm), plan.config});
  if (program.device_code.find("\"\"\"") != std::string::npos)  // Python's end of the text
    throw Error(ErrorKind::internal, "a kernel's source has three quotes in a row");
  std::string text = fill_template("conv2d_cuda.py", words_of(problem, device, plan, program, options));
  return {std::move(text), std::move(plan), std::move(note)};
}

}  // namespace

CudaExport export_cuda(const ConvProblem& problem, const Target& target, const CudaExportOptions& options) {
  check(problem, options);
  const ConvProblem resolved = resolve(problem, Precision::tf32);
  const DeviceInfo device = device_of(target);
  Plan plan =
      options.algorithm.empty() ? first_guess(resolved, device, true) : named_plan(resolved, device, options);
  return written(resolved, device, std::move(plan), {}, options);
}

CudaExport export_cuda(const ConvProblem& problem, Device device, const CudaExportOptions& options) {
  check(problem, options);
  if (device.kind != Device::Kind::cuda)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("a CUDA kernel is for an NVIDIA GPU, not for {}", to_string(device)));
  Backend& on = backend(device);
  const ConvProblem resolved = resolve(problem, on);
  if (!options.algorithm.empty())
    return written(resolved, on.info(), named_plan(resolved, on.info(), options), {}, options);
  Plan plan = choose(resolved, on.info());
  std::string note;
  if (find_algorithm(device.kind, plan.algorithm).vendor()) {
    Plan ours = first_guess(resolved, on.info(), true);
    note = fmt::format("the plan is {} {}, which has no source; exported is {} {} ({})", plan.algorithm,
                       to_string(plan.config), ours.algorithm, to_string(ours.config), ours.why);
    plan = std::move(ours);
    plan.why = note;
  }
  return written(resolved, on.info(), std::move(plan), std::move(note), options);
}

}  // namespace convtune
