// export_cuda(): the templates cuda_*.py with kernels' sources and launches put in.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/sha256.h"
#include "convtune/error.h"
#include "convtune/export.h"
#include "cuda/launch/launch_plan.h"
#include "cuda/launch/program_text.h"
#include "export/export_template.h"
#include "model/capability_facts.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"
#include "plan/planner.h"

namespace convtune {
namespace {

void check_cuda_module(const ExportModule& module, const ExportOptions& options) {
  check_module(module, {DType::f32, DType::f16, DType::bf16}, options.module_name,
               {"torch", "nn", "load_inline", "CUDA_SOURCE", "CPP_SOURCE", "extension", "pack", "conv1d",
                "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
                "packed_weights", "object", "id"});
  for (const ExportLayer& layer : module.layers)
    if (layer.problem.n == 0) refuse_export(layer.problem, "a batch of 0 has nothing to run");
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

// Exchanges the functions that round operands to TF32 away from zero for such that round ties to even.
// Kernels have no switch for it: their texts are what records are for.
void round_ties_to_even(std::string& device_code, const ConvProblem& problem, const std::string& algorithm) {
  if (problem.precision != Precision::tf32)
    throw Error(ErrorKind::invalid_argument, fmt::format("ties to even are for TF32, and {} multiplies in {}",
                                                         to_string(problem), to_string(problem.precision)));
  const std::pair<std::string_view, std::string_view> exchanged[] = {
      {R"(asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));)",
       "bits = __float_as_uint(value);\n"
       "  bits = value == value ? bits + 0xfff + (bits >> 13 & 1) : 0x7fffffff;"},
      {"return bits + 0x1000;", "return bits + 0xfff + (bits >> 13 & 1);"}};
  int found = 0;
  for (const auto& [away, even] : exchanged)
    if (const std::size_t at = device_code.find(away); at != std::string::npos)
      device_code.replace(at, away.size(), even), ++found;
  constexpr std::string_view kStores = "st_shared_v4_rounded_if(";  // its definition, and where it is called
  if (const std::size_t at = device_code.find(kStores);
      found == 0 || (at != std::string::npos && device_code.find(kStores, at + 1) != std::string::npos))
    throw Error(ErrorKind::unsupported,
                fmt::format("{} rounds operands while it stores them, away from zero alone; name another "
                            "algorithm for ties to even, such as implicit_gemm_sm90",
                            algorithm));
}

// Memory for sums that blocks share; a kernel may name it and have none.
std::string partial_sums(const cuda::ProgramText& program) {
  if (program.run.find("partial_sums") == std::string::npos) return {};
  if (program.partial_sums_bytes == 0) return "  float* const partial_sums = nullptr;\n";
  return fmt::format(
      "  const at::Tensor sums = at::empty({{{}}}, weights.options());\n"
      "  float* const partial_sums = sums.data_ptr<float>();\n",
      (program.partial_sums_bytes + 3) / 4);
}

// "channels_last" of images and "channels_last_3d" of volumes.
std::string channels_last(const ExportLayer& layer) {
  return layer.rank == 3 ? "channels_last_3d" : "channels_last";
}

// Floats that a part's packed weights take in a layer's: a multiple of 256 bytes.
std::int64_t packed_floats(const cuda::ProgramText& program) {
  return static_cast<std::int64_t>(cuda::in_lines(program.packed_bytes) / 4);
}

// "extension_conv1_part2" of the second kernel of a layer.
std::string suffix_of(const std::string& layer, std::size_t part) {
  return part == 0 ? layer : fmt::format("{}_part{}", layer, part + 1);
}

// Calls of all parts of a layer: PACKS and RUNS of cuda_functions.py.
Words calls_of(const std::vector<const cuda::ProgramText*>& parts, const std::string& suffix) {
  std::string packs, runs;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string extension = "extension" + suffix_of(suffix, i);
    packs += fmt::format("{}{}.conv2d_pack(weight, bias)", i > 0 ? ", " : "", extension);
    const std::int64_t end = begin + packed_floats(*parts[i]);
    const std::string packed = parts.size() > 1 ? fmt::format("packed[{}:{}]", begin, end) : "packed";
    runs += fmt::format("    {}{}.conv2d_run(x, {}, {})\n", i > 0 ? "" : "y = ", extension, packed,
                        i > 0 ? "y" : "None");
    begin = end;
  }
  return {{"PACKS", parts.size() > 1 ? fmt::format("torch.cat([{}])", packs) : packs}, {"RUNS", runs}};
}

Words words_of(const ExportModule& module, std::size_t at, const DeviceInfo& device, const Plan& plan,
               const cuda::ProgramText& program) {
  const ExportLayer& layer = module.layers[at];
  const ConvProblem& a = layer.problem;
  const LayerShape shape(a);
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  const bool nhwc = a.layout == Layout::nhwc;
  const std::string source = program.arch + program.device_code + program.pack + program.run;
  std::string map;
  if (program.has_tensor_maps) map = fill_template("tensor_map.cu", {});
  if (program.has_walks) map += fill_template("walking_map.cu", {});
  const bool x_last = nhwc || program.converts_x, y_last = nhwc || program.converts_y;
  Words words = layer_words(layer, module.layers.size());
  words.merge(Words{
      {"PROBLEM", one_line(to_string(a))},
      {"DEVICE", one_line(device.name)},
      {"ALGORITHM", fmt::format("{} {}", plan.algorithm, to_string(plan.config))},
      {"WHY", fmt::format("{}: {}", to_string(plan.source), one_line(plan.why))},
      {"DEVICE_CODE", program.device_code},
      {"TENSOR_MAP", map},
      {"PACK", program.pack},
      {"RUN", program.run},
      {"PACKED_FLOATS", number(packed_floats(program))},
      {"EXTENSION", "conv2d_" + sha256(source).substr(0, 16)},
      {"ARCH", program.arch},
      {"COMPUTE", virtual_isa_of(device.capability)},
      {"MAJOR", number(device.capability.major)},
      {"MINOR", number(device.capability.minor)},
      {"Y_SHAPE",
       fmt::format("{}, {}, {}", a.n, shape.out_channels,
                   fmt::join(shape.output.end() - std::max(layer.rank, 2), shape.output.end(), ", "))},
      {"PARTIAL_SUMS", partial_sums(program)},
      {"DTYPE", dtype_of(a)},
      {"MEMORY_FORMAT", x_last ? "memory_format=torch." + channels_last(layer) : ""},
      {"MEMORY_FORMAT_CPP",
       y_last ? fmt::format(".memory_format(at::MemoryFormat::ChannelsLast{})", layer.rank == 3 ? "3d" : "")
              : ""},
      {"CONVERTED", program.converts_y ? ".contiguous()" : ""}});
  return words;
}

// Rounds as the options say, and checks that a Python string holds the text.
void finish(cuda::ProgramText& program, const ConvProblem& problem, const Plan& plan,
            const CudaExportOptions& options) {
  if (options.ties_to_even) round_ties_to_even(program.device_code, problem, plan.algorithm);
  if (program.device_code.find("\"\"\"") != std::string::npos)
    throw Error(ErrorKind::internal, "a kernel's source has three quotes in a row");
}

// Sources and extensions of all layers, then their functions, then the class.
std::string text_of(const ExportModule& module, const DeviceInfo& device,
                    const std::vector<CudaExport::Kernel>& kernels, const CudaExportOptions& options) {
  std::string sources, functions, forward, kept;
  for (std::size_t i = 0; i < module.layers.size(); ++i) {
    const Plan& plan = kernels[i].plan;
    cuda::ProgramText program = cuda::program_text(
        module.layers[i].problem, device, {&find_algorithm(Device::Kind::cuda, plan.algorithm), plan.config});
    finish(program, module.layers[i].problem, plan, options);
    for (cuda::ProgramText& part : program.more) finish(part, module.layers[i].problem, plan, options);
    std::vector<const cuda::ProgramText*> parts{&program};
    for (cuda::ProgramText& part : program.more) parts.push_back(&part);
    Words words = words_of(module, i, device, plan, program);
    const std::string suffix = words.at("SUFFIX");
    for (std::size_t part = 0; part < parts.size(); ++part) {
      Words of_part = words_of(module, i, device, plan, *parts[part]);
      of_part["SUFFIX"] = suffix_of(suffix, part);
      of_part["PART"] = parts.size() > 1 ? fmt::format(", part {} of {}", part + 1, parts.size()) : "";
      sources += fill_template("cuda_source.py", of_part);
    }
    words.merge(calls_of(parts, suffix));
    functions += fill_template("cuda_functions.py", words);
    kept += i > 0 ? ", {}" : "{}";
  }
  for (const std::size_t at : module.chain) {
    const Words words = layer_words(module.layers[at], module.layers.size());
    forward += fmt::format("        x = {}(x, packed_weights(self.packed[{}], self.{}, pack{}))\n",
                           words.at("FUNCTION"), at, module.layers[at].name, words.at("SUFFIX"));
  }
  Words words = module_words(module, options.module_name);
  words["KEPT"] = fmt::format("        self.packed = [{}]\n", kept);
  words["FORWARD"] = forward + "        return x\n";
  return fill_template("cuda_imports.py", {{"VERSION", CONVTUNE_VERSION}}) + sources + functions +
         fill_template("cuda_packed_weights.py", {}) + fill_template("module.py", words);
}

// The kernels of a module whose plans `chosen` gives.
template <class Chosen>
CudaExport exported(ExportModule module, const DeviceInfo& device, const CudaExportOptions& options,
                    Chosen chosen) {
  if (!options.algorithm.empty() && module.layers.size() > 1)
    throw Error(ErrorKind::invalid_argument, fmt::format("{} cannot be the algorithm of {} layers",
                                                         options.algorithm, module.layers.size()));
  CudaExport result;
  for (ExportLayer& layer : module.layers) {
    layer.problem = chosen.resolved(layer.problem);
    Plan plan = options.algorithm.empty() ? chosen.plan(layer.problem, result.note)
                                          : named_plan(layer.problem, device, options);
    const Algorithm& algorithm = find_algorithm(Device::Kind::cuda, plan.algorithm);
    const auto us = algorithm.estimated_us(layer.problem, device, plan.config);
    result.kernels.push_back({std::move(plan), us});
  }
  result.text = text_of(module, device, result.kernels, options);
  return result;
}

struct ForTarget {
  const DeviceInfo& device;

  ConvProblem resolved(const ConvProblem& problem) const { return resolve(problem, Precision::tf32); }
  Plan plan(const ConvProblem& problem, std::string&) const { return first_guess(problem, device, true); }
};

struct ForDevice {
  const Backend& on;

  ConvProblem resolved(const ConvProblem& problem) const { return resolve(problem, on); }
  Plan plan(const ConvProblem& problem, std::string& note) const {
    Plan plan = choose(problem, on.info());
    if (!find_algorithm(Device::Kind::cuda, plan.algorithm).vendor()) return plan;
    Plan ours = first_guess(problem, on.info(), true);
    ours.why = fmt::format("the plan is {} {}, which has no source; exported is {} {} ({})", plan.algorithm,
                           to_string(plan.config), ours.algorithm, to_string(ours.config), ours.why);
    note += (note.empty() ? "" : "; ") + ours.why;
    return ours;
  }
};

}  // namespace

CudaExport export_cuda(const ExportModule& module, const Target& target, const CudaExportOptions& options) {
  check_cuda_module(module, options);
  const DeviceInfo device = device_of(target);
  return exported(module, device, options, ForTarget{device});
}

CudaExport export_cuda(const ExportModule& module, Device device, const CudaExportOptions& options) {
  check_cuda_module(module, options);
  if (device.kind != Device::Kind::cuda)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("a CUDA kernel is for an NVIDIA GPU, not for {}", to_string(device)));
  const Backend& on = backend(device);
  return exported(module, on.info(), options, ForDevice{on});
}

}  // namespace convtune
