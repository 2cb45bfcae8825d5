// program_text(): a launch plan written out; nothing is compiled.
//
// nvcc's host code names a template argument's class by its mangled name where that is in a namespace, and
// g++ knows no such name. So the kernels' template lines go, and what was their argument becomes a constant
// of the same name; device functions keep theirs.
#include "cuda/launch/program_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/compile/kernel_sources.h"
#include "cuda/launch/bare_step.h"
#include "cuda/launch/conversions.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/gather_axes.h"
#include "cuda/launch/gather_step.h"
#include "cuda/launch/kernel_algorithm.h"

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

// A constant of the device code in place of a kernel's template argument.
std::string constant_of(std::string_view comment, std::string_view type, std::string_view name,
                        std::string_view value) {
  return fmt::format("// ---- {} ----\nnamespace convtune {{\n\n{}\n}}  // namespace convtune\n\n", comment,
                     wrapped(fmt::format("__device__ constexpr {} {}{};", type, name, value), 0));
}

// Takes the template lines away before the kernels of so named a constant; how many there were.
std::size_t drop_template(std::string& text, std::string_view type, std::string_view name) {
  const std::string templated = fmt::format("template <{} {}>\n__global__ ", type, name);
  std::size_t kernels = 0;
  for (std::size_t at = 0; (at = text.find(templated, at)) != text.npos; ++kernels)
    text.replace(at, templated.size(), "__global__ ");
  return kernels;
}

template <class Kind>
const Kind* find_step(const std::vector<Step>& steps) {
  for (const Step& step : steps)
    if (const auto* found = std::get_if<Kind>(&step)) return found;
  return nullptr;
}

std::string device_code_of(const LaunchPlan& plan, const CompileJob& job) {
  const KernelName kernel = parts_of(job.kernels.front());
  for (const std::string& other : job.kernels)
    if (parts_of(other).value != kernel.value) fail("its kernels have different configs");
  const std::string type = kernel.type.substr(kernel.type.rfind(':') + 1);
  const Bare* const bare = find_step<Bare>(plan.run);
  std::vector<KernelSource> ordered;
  if (find_step<Gathered>(plan.pack)) append_in_order(Gather::kFile, ordered);
  if (bare) append_in_order(StoreBare::kFile, ordered);
  append_in_order(job.headers.front().name, ordered);
  std::string text;
  for (const KernelSource& source : ordered) {
    if (&source == &ordered.back())
      text += constant_of("The problem, and what was chosen for it", type, "config", kernel.value);
    if (source.name == StoreBare::kFile)
      text +=
          constant_of("The outputs that no tap meets", BareResidues::kName, "what",
                      spaced(to_cuda(bare->what))
                          .substr(sizeof("convtune::") - 1 + std::string_view(BareResidues::kName).size()));
    text += fmt::format("// ---- {} ----\n{}\n", source.name, body_of(source.text));
  }
  drop_template(text, BareResidues::kName, "what");
  const std::size_t kernels = drop_template(text, type, "config");
  if (kernels < job.kernels.size()) fail(fmt::format("{} of {} kernels found", kernels, job.kernels.size()));
  return text;
}

// "x", "packed + 8", "reinterpret_cast<unsigned*>(packed)": operands are floats there.
std::string pointer_text(const Pointer& pointer) {
  std::string text;
  switch (pointer.operand) {
    case Operand::x_nhwc:
      text = "x";
      break;
    case Operand::y_nhwc:
      text = "y";
      break;
    case Operand::x:
    case Operand::w:
    case Operand::bias:
    case Operand::packed:
    case Operand::y:
    case Operand::partial_sums:
    case Operand::w_gathered:
    case Operand::bias_gathered:
      text = to_string(pointer.operand);
      break;
    default:
      return "nullptr";  // no operand of a layer without a residual
  }
  if (pointer.offset > 0) text += fmt::format(" + {}", pointer.offset);
  if (pointer.type == "const float*" || pointer.type == "float*") return text;
  return fmt::format("reinterpret_cast<{}>({})", pointer.type, text);
}

std::string_view type_text(ElementType type) {
  switch (type) {
    case ElementType::f32:
      return "CU_TENSOR_MAP_DATA_TYPE_FLOAT32";
    case ElementType::f16:
      return "CU_TENSOR_MAP_DATA_TYPE_FLOAT16";
    case ElementType::bf16:
      break;
  }
  return "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16";
}

std::string_view swizzle_text(Swizzle swizzle) {
  constexpr std::array<std::string_view, 4> kNames = {"NONE", "32B", "64B", "128B"};
  return kNames.at(static_cast<std::size_t>(swizzle));
}

std::string tensor_map_text(Operand operand, const TensorMapLayout& map) {
  const std::string tensor =
      fmt::format("{}, {}, {{{}}}, {{{}}}, {{{}}}", pointer_text({operand}), type_text(map.type),
                  fmt::join(map.extents, ", "), fmt::join(map.strides, ", "), fmt::join(map.box, ", "));
  if (map.walk)
    return fmt::format("walking_map({}, {{{}}}, {{{}}}, {{{}}}, CU_TENSOR_MAP_SWIZZLE_{})", tensor,
                       fmt::join(map.walk->first_corner, ", "), fmt::join(map.walk->last_corner, ", "),
                       fmt::join(map.walk->strides, ", "), swizzle_text(map.swizzle));
  return fmt::format("tensor_map({}, CU_TENSOR_MAP_SWIZZLE_{}{})", tensor, swizzle_text(map.swizzle),
                     map.steps.empty() ? "" : fmt::format(", {{{}}}", fmt::join(map.steps, ", ")));
}

// A gathering's numbers put into memory of pack()'s own, which the steps behind it read.
std::string gathering_text(const Gathered& step) {
  const std::string name(to_string(step.to));
  const std::string_view type = step.element_bytes == 2 ? "unsigned short" : "unsigned";
  const GatherAxes axes = axes_of(step.what);
  std::string memory;
  if (step.to != Operand::packed)
    memory = fmt::format(
        "const at::Tensor memory_of_{0} = at::empty({{{1}}}, result.options());\n"
        "auto* const {0} = memory_of_{0}.data_ptr<float>();\n",
        name, (step.what.elements() * step.element_bytes + 3) / 4);
  return fmt::format(
      "{1}convtune::gather_numbers<{2}><<<dim3({3}, 1, 1), dim3({4}, 1, 1), 0, "
      "stream>>>(reinterpret_cast<const {2}*>({5}), "
      "reinterpret_cast<{2}*>({0}), convtune::GatherAxes{{{6}, {{{7}}}, {{{8}}}, {{{9}}}}});\n"
      "C10_CUDA_KERNEL_LAUNCH_CHECK();\n",
      name, memory, type, axes.blocks(), GatherAxes::kThreads, pointer_text({step.from}), axes.begin,
      fmt::join(axes.extents, ", "), fmt::join(axes.steps, ", "), fmt::join(axes.whole, ", "));
}

// Arguments as CUDA C++ writes them, for tensors that begin at multiples of 16 bytes.
struct ArgumentText {
  const KernelLaunch& launch;

  std::string operator()(const Pointer& pointer) const { return pointer_text(pointer); }
  std::string operator()(int value) const { return std::to_string(value); }
  std::string operator()(const ConvExtents& extents) const { return to_cuda(extents); }
  std::string operator()(const ConvNumbers& numbers) const { return to_cuda(numbers); }
  std::string operator()(const TensorMaps& maps) const {
    std::vector<std::string> groups;
    for (const TensorMapGroup& group : maps.groups) {
      std::vector<std::string> texts;
      for (const TensorMapLayout& map : group.maps) texts.push_back(tensor_map_text(group.operand, map));
      texts.resize(std::max<std::size_t>(group.places, 1), "convtune::ptx::TensorMap{}");
      const std::string all = fmt::format("{}", fmt::join(texts, ", "));
      groups.push_back(group.places > 0 ? "{" + all + "}" : all);
    }
    return fmt::format("{}{{{}}}", maps.type, fmt::join(groups, ", "));
  }
  std::string operator()(const TensorMapsUsable& usable) const {
    for (const Argument& argument : launch.arguments)
      if (const auto* maps = std::get_if<TensorMaps>(&argument))
        return maps->groups.at(usable.group).maps.empty() ? "0" : "1";
    return "0";
  }
  std::string operator()(const Turn&) const { return "0"; }
  std::string operator()(const DwLast&) const { return "0"; }
};

std::string statements_of(const std::vector<Step>& steps, const CompileJob& job) {
  std::string text;
  const auto add = [&](const std::string& statement) { text += wrapped(statement, 2); };
  for (const Step& step : steps) {
    if (const auto* clear = std::get_if<Clear>(&step)) {
      add(fmt::format("C10_CUDA_CHECK(cudaMemsetAsync({}, 0, {} * sizeof(float), stream));",
                      pointer_text(clear->begin), clear->words));
      continue;
    }
    if (std::holds_alternative<Conversion>(step)) continue;  // the caller's: converts_x, converts_y
    if (const auto* gathered = std::get_if<Gathered>(&step)) {
      const std::string all = gathering_text(*gathered);
      for (std::string_view left = all; !left.empty(); left.remove_prefix(left.find('\n') + 1))
        add(std::string(left.substr(0, left.find('\n'))));
      continue;
    }
    if (const auto* bare = std::get_if<Bare>(&step)) {
      add(fmt::format(
          "convtune::store_bare_residues<<<dim3({}, 1, 1), dim3({}, 1, 1), 0, stream>>>({}, {}, {});",
          bare->what.blocks(), BareResidues::kThreads, bare->bias ? pointer_text(*bare->bias) : "nullptr",
          pointer_text({bare->residual}), pointer_text({bare->to})));
      add("C10_CUDA_KERNEL_LAUNCH_CHECK();");
      continue;
    }
    const auto& launch = std::get<KernelLaunch>(step);
    const std::string name = parts_of(job.kernels[launch.kernel]).name;
    if (launch.dynamic_smem_bytes > kMostStaticSmemBytes)
      add(fmt::format(
          "C10_CUDA_CHECK(cudaFuncSetAttribute({}, cudaFuncAttributeMaxDynamicSharedMemorySize, {}));", name,
          launch.dynamic_smem_bytes));
    const auto extent = [](const Extent3& e) { return fmt::format("dim3({}, {}, {})", e.x, e.y, e.z); };
    std::vector<std::string> arguments;
    for (const Argument& argument : launch.arguments)
      arguments.push_back(std::visit(ArgumentText{launch}, argument));
    add(fmt::format("{}<<<{}, {}, {}, stream>>>({});", name, extent(launch.grid), extent(launch.block),
                    launch.dynamic_smem_bytes, spaced(fmt::format("{}", fmt::join(arguments, ", ")))));
    add("C10_CUDA_KERNEL_LAUNCH_CHECK();");
  }
  return text;
}

// Looks for a tensor map of the plan's kernel that is so.
bool any_map(const LaunchPlan& plan, bool (*is)(const TensorMapLayout&)) {
  const auto& arguments = plan.kernel_launch().arguments;
  return std::any_of(arguments.begin(), arguments.end(), [&](const Argument& argument) {
    const auto* maps = std::get_if<TensorMaps>(&argument);
    return maps && std::any_of(maps->groups.begin(), maps->groups.end(), [&](const TensorMapGroup& group) {
             return std::any_of(group.maps.begin(), group.maps.end(), is);
           });
  });
}

bool converts(const LaunchPlan& plan, Operand operand) {
  return std::any_of(plan.run.begin(), plan.run.end(), [&](const Step& step) {
    const auto* conversion = std::get_if<Conversion>(&step);
    return conversion && (conversion->from == operand || conversion->to == operand);
  });
}

ProgramText text_of(LaunchPlan plan, bool transposed) {
  if (transposed)
    for (Step& step : plan.run) {
      replace(step, Operand::x, Operand::dw), replace(step, Operand::dy, Operand::x);
      replace(step, Operand::y, Operand::dw), replace(step, Operand::dx, Operand::y);
    }
  gather_before_packing(plan);
  const CompileJob job = compile_job(plan, plan.configs.front());
  ProgramText program;
  program.arch = plan.arch;
  program.pack = statements_of(plan.pack, job);
  program.run = statements_of(plan.run, job);
  program.has_tensor_maps = any_map(plan, [](const TensorMapLayout&) { return true; });
  program.has_walks = any_map(plan, [](const TensorMapLayout& map) { return map.walk.has_value(); });
  program.converts_x = converts(plan, Operand::x), program.converts_y = converts(plan, Operand::y);
  for (const WorkspacePart& part : plan.workspace)
    if (part.operand == Operand::partial_sums) program.partial_sums_bytes += part.bytes;
  program.packed_bytes = plan.packed_bytes();
  program.device_code = device_code_of(plan, job);
  for (LaunchPlan& part : plan.more) program.more.push_back(text_of(std::move(part), transposed));
  return program;
}

}  // namespace

ProgramText program_text(const ConvProblem& problem, const DeviceInfo& device, const Candidate& candidate) {
  const KernelAlgorithm* const algorithm = kernel_algorithm(*candidate.algorithm);
  if (!algorithm)
    throw Error(ErrorKind::unsupported,
                fmt::format("{} has no source to write out", candidate.algorithm->name()));
  if (problem.dtype != problem.dtype.x || problem.direction == Direction::backward_weights ||
      problem.residual || problem.cache > 0)
    throw Error(
        ErrorKind::unsupported,
        "only forward and backward data problems of tensors of one type without a residual and a cache "
        "are written out");
  return text_of(algorithm->plan(problem, device, candidate.config),
                 problem.direction == Direction::backward_data);
}

}  // namespace convtune::cuda
