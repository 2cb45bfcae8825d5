// libnvrtc.so.13: compiles device code by the host's compiler into a shared object. Kernels' texts are as
// they are; src/cuda/ptx is left to its twins here, which stand in front of it on the path of includes.
// $CONVTUNE_HOST_GPU_FLAGS: more flags for the compiler ("-O0 -g3"); $CONVTUNE_HOST_GPU_KEEP: a folder that
// keeps what it compiles, for debuggers and coverage.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "image.h"

namespace {

namespace fs = std::filesystem;

struct Program {
  std::string source, log, image;
  std::map<std::string, std::string> headers;
  std::vector<std::string> kernels, symbols;
};

// Device code is looked at as this library is.
#if defined(__SANITIZE_ADDRESS__)
constexpr const char* kSanitizers = " -fsanitize=address,undefined -fno-sanitize-recover=all";
#else
constexpr const char* kSanitizers = "";
#endif

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}
void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}
std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}
fs::path library() {
  Dl_info mine{};
  dladdr(reinterpret_cast<void*>(&library), &mine);
  return fs::canonical(mine.dli_fname);
}

// Text that no macro can say to a host's compiler.
std::string for_the_host(const std::string& file, std::string text) {
  // Shared memory of a size that the launch gives.
  static const std::regex shared(R"(extern __shared__ (?:__align__\(\d+\) )?([a-z ]+) (\w+)\[\];)");
  // Shared memory of fixed size, which stands first in its kernel's.
  static const std::regex fixed(R"(__shared__ (?:__align__\(\d+\) )?([a-z ]+) (\w+)\[[^,;]*\];)");
  if (text.find("__shared__ ") != text.npos)  // few files have it, and expressions are slow
    for (const std::regex* declared : {&shared, &fixed})
      text = std::regex_replace(text, *declared,
                                "$1* const $2 = reinterpret_cast<$1*>(host_gpu_position->dynamic_shared);");
  // g++ 12 breaks down over a constant of a class in a lambda within a lambda, unless it is static.
  if (!file.ends_with(".cuh") || text.find(" constexpr ConvExtents a = ") == text.npos) return text;
  static const std::regex constant(R"(\n( +)constexpr ConvExtents a = )");
  return std::regex_replace(text, constant, "\n$1static constexpr ConvExtents a = ");
}

// "ns::kernel<ns::Config{...}>" in parts, with what its file says of clusters and of its launch.
struct Kernel {
  std::string space, type, config, cluster, bounds;
};
Kernel parts_of(const Program& program, const std::string& name) {
  const std::size_t open = name.find('<'), brace = name.find('{');
  const std::string called = name.substr(0, open);
  const std::size_t colon = called.rfind("::");
  if (open == name.npos || brace == name.npos || colon == called.npos) return {};
  Kernel kernel{called.substr(0, colon), name.substr(open + 1, brace - open - 1),
                name.substr(open + 1, name.size() - open - 2), "", ""};
  const std::string own = called.substr(colon + 2) + R"(\()";
  const std::regex dims(R"(__cluster_dims__\((.*), 1, 1\)[^;{]*?\n?\s*)" + own),
      bounds(R"(template <\w+ config>\s+__global__ [^;{]*?__launch_bounds__\((.*)\)\s+)" + own);
  for (const auto& [file, text] : program.headers) {
    if (text.find("__global__") == text.npos) continue;
    if (std::smatch found; std::regex_search(text, found, dims)) kernel.cluster = found[1];
    if (std::smatch found; std::regex_search(text, found, bounds)) kernel.bounds = found[1];
  }
  return kernel;
}

// A function for the driver, its name, its blocks of a cluster and the registers of its threads.
std::string entry_of(const Program& program, const std::string& name, const std::string& symbol) {
  const Kernel kernel = parts_of(program, name);
  std::string text;
  const auto add = [&](const std::string& what, const std::string& value) {
    text += "namespace " + kernel.space + " {\ntemplate <" + kernel.type +
            " config>\ninline constexpr unsigned " + symbol + "_of_" + what + " = " + value +
            ";\n}\nextern \"C\" unsigned " + symbol + "_" + what + "() { return " + kernel.space +
            "::" + symbol + "_of_" + what + "<" + kernel.config + ">; }\n";
  };
  if (!kernel.cluster.empty()) add("cluster", kernel.cluster);
  if (!kernel.bounds.empty()) add("registers", "host_gpu::registers_of(" + kernel.bounds + ")");
  return text + "extern \"C\" const char* const " + symbol + "_name = R\"name(" +
         name.substr(0, name.find('<')) + ")name\";\nextern \"C\" void " + symbol +
         "(void** arguments) { host_gpu::call(&" + name + ", arguments); }\n";
}

std::string architecture_flags(const std::vector<std::string>& options) {
  static const std::regex architecture(R"(--gpu-architecture=sm_(\d+)(a?))");
  for (const std::string& option : options)
    if (std::smatch found; std::regex_match(option, found, architecture))
      return " -D__CUDA_ARCH__=" + found[1].str() + "0" +
             (found[2].str().empty() ? "" : " -D__CUDA_ARCH_FEAT_SM" + found[1].str() + "_ALL");
  return {};
}

int compile(Program& program, const std::vector<std::string>& options) {
  constexpr int kCompilation = 6;
  const std::string kept = setting("CONVTUNE_HOST_GPU_KEEP");
  std::string pattern = (kept.empty() ? "/tmp" : kept) + "/host_gpu_XXXXXX";
  if (!mkdtemp(pattern.data())) return kCompilation;
  const fs::path work = pattern;
  for (const auto& [name, text] : program.headers)
    if (!name.starts_with("cuda/ptx/")) write_file(work / name, for_the_host(name, text));
  std::string unit = "#include \"device_words.h\"\n" + program.source;
  for (std::size_t i = 0; i < program.kernels.size(); ++i) {
    program.symbols.push_back("host_kernel_" + std::to_string(i));
    unit += entry_of(program, program.kernels[i], program.symbols.back());
  }
  write_file(work / "unit.cpp", unit);
  const std::string at = work.string();
  std::string command = CONVTUNE_HOST_GPU_CXX
      " -std=c++20 -O1 -g1 -march=x86-64-v3 -ffp-contract=off -fno-strict-aliasing"
      " -fno-omit-frame-pointer -w -fPIC -D__CUDACC_RTC__ -I" CONVTUNE_HOST_GPU_DIR;
  const std::string more = setting("CONVTUNE_HOST_GPU_FLAGS") + kSanitizers,
                    driver = library().parent_path() / "libcuda.so.1";
  // Two steps, or ThreadSanitizer's library would be linked (accesses.cpp).
  const bool watches = more.find("-fsanitize=") == more.npos;
  const std::string compiles =
      command + (watches ? " -fsanitize=thread --param=tsan-instrument-func-entry-exit=0 " : " ") + more +
      architecture_flags(options) + " -I" + at + " -c " + at + "/unit.cpp -o " + at + "/unit.o";
  const std::string links =
      CONVTUNE_HOST_GPU_CXX " -shared " + more + " " + at + "/unit.o -o " + at + "/unit.so " + driver;
  const int result = std::system(("{ " + compiles + " && " + links + "; } > " + at + "/log 2>&1").c_str());
  program.log = read_file(work / "log");
  if (result == 0) program.image = host_gpu::image_of(read_file(work / "unit.so"));
  if (kept.empty()) fs::remove_all(work);
  if (result != 0) return kCompilation;
  for (const std::string& symbol : program.symbols)  // as ptxas -v would say it
    program.log += "Compiling entry function '" + symbol +
                   "' for 'host'\n0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                   "Used 64 registers, used 1 barriers, 0 bytes smem\n";
  return 0;
}

}  // namespace

extern "C" {

const char* nvrtcGetErrorString(int result) {
  return result == 0 ? "success" : "compilation failed";
}
int nvrtcVersion(int* major, int* minor) {
  return *major = 13, *minor = 0, 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  return *count = 3, 0;
}
int nvrtcGetSupportedArchs(int* architectures) {
  return architectures[0] = 80, architectures[1] = 86, architectures[2] = 90, 0;
}
int nvrtcCreateProgram(Program** to, const char* source, const char*, int count, const char* const* texts,
                       const char* const* names) {
  *to = new Program{.source = source, .log = {}, .image = {}, .headers = {}, .kernels = {}, .symbols = {}};
  for (int i = 0; i < count; ++i) (*to)->headers[names[i]] = texts[i];
  return 0;
}
int nvrtcDestroyProgram(Program** program) {
  delete *program;
  return *program = nullptr, 0;
}
int nvrtcAddNameExpression(Program* program, const char* name) {
  return program->kernels.emplace_back(name), 0;
}
int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  return compile(*program, {options, options + count});
}
int nvrtcGetLoweredName(Program* program, const char* name, const char** to) {
  for (std::size_t i = 0; i < program->symbols.size(); ++i)
    if (program->kernels[i] == name) return *to = program->symbols[i].c_str(), 0;
  return 1;
}
int nvrtcGetCUBINSize(Program* program, std::size_t* bytes) {
  return *bytes = program->image.size(), 0;
}
int nvrtcGetCUBIN(Program* program, char* to) {
  return program->image.copy(to, program->image.size()), 0;
}
int nvrtcGetProgramLogSize(Program* program, std::size_t* bytes) {
  return *bytes = program->log.size() + 1, 0;
}
int nvrtcGetProgramLog(Program* program, char* to) {
  return std::strcpy(to, program->log.c_str()), 0;
}

}  // extern "C"
