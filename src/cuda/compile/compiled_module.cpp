// The text form is lines of numbers and strings, then the log and the cubin with their lengths before them.
#include "cuda/compile/compiled_module.h"

#include <fmt/format.h>

#include <charconv>

#include "convtune/error.h"

namespace convtune::cuda {
namespace {

constexpr std::size_t kMaxKernels = 1000;

void put(std::string& text, std::string_view value) {
  text += fmt::format("{}\n", value.size());
  text += value;
}

// Takes values off the front of a text; after the first that is not there, ok is false.
struct Reader {
  std::string_view text;
  bool ok = true;

  std::int64_t number() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const auto length = static_cast<std::size_t>(end - text.data());
    ok = ok && error == std::errc() && value >= 0 && length < text.size() && text[length] == '\n';
    if (!ok) return 0;
    text.remove_prefix(length + 1);
    return value;
  }
  std::string string() {
    const auto length = static_cast<std::size_t>(number());
    ok = ok && length <= text.size();
    if (!ok) return {};
    std::string value(text.substr(0, length));
    text.remove_prefix(length);
    return value;
  }
};

// The number that stands right before `unit` in a line; 0 where there is none.
std::int64_t number_before(std::string_view line, std::string_view unit) {
  const std::size_t end = line.find(unit);
  if (end == line.npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  std::int64_t value = 0;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

}  // namespace

std::string to_text(const CompiledModule& module) {
  std::string text = fmt::format("{}\n", module.kernels.size());
  for (const KernelResources& kernel : module.kernels) {
    put(text, kernel.kernel);
    put(text, kernel.symbol);
    text += fmt::format("{}\n{}\n{}\n{}\n", kernel.registers, kernel.spill_bytes, kernel.stack_bytes,
                        kernel.static_smem_bytes);
  }
  put(text, module.log);
  put(text, module.cubin);
  return text;
}

std::optional<CompiledModule> parse_module(std::string_view text) {
  Reader reader{text};
  CompiledModule module;
  const auto kernels = static_cast<std::size_t>(reader.number());
  if (kernels > kMaxKernels) return std::nullopt;
  for (std::size_t i = 0; i < kernels && reader.ok; ++i) {
    KernelResources& kernel = module.kernels.emplace_back();
    kernel.kernel = reader.string();
    kernel.symbol = reader.string();
    kernel.registers = static_cast<int>(reader.number());
    kernel.spill_bytes = reader.number();
    kernel.stack_bytes = reader.number();
    kernel.static_smem_bytes = reader.number();
  }
  module.log = reader.string();
  module.cubin = reader.string();
  if (!reader.ok || !reader.text.empty()) return std::nullopt;
  return module;
}

// The lines are, with a prefix that changes from version to version:
//   Compiling entry function 'SYMBOL' for 'sm_90a'
//   Function properties for SYMBOL
//     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
//   Used 72 registers, used 1 barriers, 2048 bytes smem
KernelResources read_resources(std::string_view log, const std::string& kernel, const std::string& symbol) {
  KernelResources resources{kernel, symbol};
  const std::string entry = fmt::format("Compiling entry function '{}'", symbol);
  bool inside = false;
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    const std::string_view line = log.substr(begin, end - begin);
    begin = end + 1;
    if (line.find("Compiling entry function") != line.npos) inside = line.find(entry) != line.npos;
    if (!inside) continue;
    resources.stack_bytes += number_before(line, " bytes stack frame");
    resources.spill_bytes +=
        number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
    if (line.find("Used ") == line.npos) continue;
    resources.registers = static_cast<int>(number_before(line, " registers"));
    resources.static_smem_bytes = number_before(line, " bytes smem");
  }
  if (resources.registers == 0)
    throw Error(ErrorKind::internal,
                fmt::format("NVRTC's log says nothing about the registers of {}:\n{}", kernel, log));
  return resources;
}

const KernelResources& CompiledModule::kernel(const std::string& name) const {
  for (const KernelResources& resources : kernels)
    if (resources.kernel == name) return resources;
  throw Error(ErrorKind::internal, fmt::format("kernel {} was not compiled into this module", name));
}

}  // namespace convtune::cuda
