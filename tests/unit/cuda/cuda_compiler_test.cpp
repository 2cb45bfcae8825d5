// The real compiler, on any machine: no driver and no GPU is needed. Where NVRTC cannot be had these tests
// are skipped and say so.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "convtune/error.h"
#include "convtune/problem.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/ceilings_job.h"
#include "cuda/backend/cuda.h"
#include "cuda/compile/compile_all.h"
#include "cuda/compile/compiler.h"
#include "cuda/cudnn/cudnn.h"
#include "cuda/launch/dry_run.h"
#include "model/capability_facts.h"
#include "plan/estimate_candidates.h"
#include "tune/compile_ahead.h"

namespace convtune::cuda::cuda_compiler_test {
namespace {

namespace fs = std::filesystem;

#define SKIP_WITHOUT_NVRTC() \
  if (!has_nvrtc()) GTEST_SKIP() << "NVRTC cannot be had here: " << describe_nvrtc()

// A kernel whose template argument is a struct: shared memory and work as the config says.
const KernelSource kScale = {"scale.cuh", R"(#pragma once
struct Config {
  int width = 1, words = 256;
  constexpr int threads() const { return 32 * width; }
};
template <Config kConfig>
__global__ void __launch_bounds__(kConfig.threads()) scale(float* y, const float* x) {
  __shared__ float staged[kConfig.words];
  const int i = threadIdx.x;
  staged[i % kConfig.words] = x[i];
  __syncthreads();
  y[i] = kConfig.width * staged[(i + 1) % kConfig.words];
}
)"};

CompileJob scale_job(const std::string& kernel, const std::string& arch) {
  return {"#include \"scale.cuh\"\n", {kScale}, {}, arch, {kernel}};
}

// Compiles for a time that grows with `rounds`, and needs many registers.
CompileJob long_job(int rounds, std::vector<std::string> options = {}) {
  const std::string source = R"(template <int kRounds>
__global__ void churn(float* y, const float* x) {
  float a[64];
  for (int i = 0; i < 64; i++) a[i] = x[i * 32 + threadIdx.x];
#pragma unroll
  for (int j = 0; j < kRounds; j++)
#pragma unroll
    for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i * 7 + j) % 64] + __sinf(a[(i + j) % 64]);
  for (int i = 0; i < 64; i++) y[i * 32 + threadIdx.x] = a[i];
}
)";
  return {source, {}, std::move(options), "sm_80", {"churn<" + std::to_string(rounds) + ">"}};
}

std::string failure_of(const CompileJob& job) {
  try {
    compile(job, false);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    return error.what();
  }
  ADD_FAILURE() << "it compiled";
  return "";
}

// Each test has a cache of its own.
class Compiler : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_NVRTC();
    std::string name = testing::TempDir() + "convtune_cache_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    ::setenv("CONVTUNE_CACHE_DIR", name.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("CONVTUNE_CACHE_DIR");
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  std::ptrdiff_t cached_files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }
  // The files themselves: what is compiled again is another file of the same name.
  std::vector<ino_t> files_kept() const {
    std::vector<ino_t> all;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_)) {
      struct stat status {};
      EXPECT_EQ(::stat(entry.path().c_str(), &status), 0);
      all.push_back(status.st_ino);
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  fs::path folder_;
};

TEST_F(Compiler, StructArgumentsForEveryArchitecture) {
  const std::string kernel = "scale<Config{.width = 4, .words = 512}>";
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"}) {
    const CompiledModule module = compile(scale_job(kernel, arch), false);
    EXPECT_TRUE(
        module.cubin.starts_with("\x7f"
                                 "ELF"))
        << arch;
    const KernelResources& resources = module.kernel(kernel);
    EXPECT_NE(module.cubin.find(resources.symbol), std::string::npos) << arch;
    EXPECT_GE(resources.registers, 4) << arch;
    EXPECT_LE(resources.registers, 64) << arch;
    EXPECT_EQ(resources.spill_bytes, 0) << arch;
    EXPECT_EQ(resources.static_smem_bytes, 2048) << arch;
  }
}

TEST_F(Compiler, SeveralKernelsInOneModule) {
  CompileJob job = scale_job("scale<Config{1, 32}>", "sm_80");
  job.kernels.push_back("scale<Config{2, 64}>");
  const CompiledModule module = compile(job, false);
  EXPECT_EQ(module.kernel("scale<Config{1, 32}>").static_smem_bytes, 128);
  EXPECT_EQ(module.kernel("scale<Config{2, 64}>").static_smem_bytes, 256);
  EXPECT_NE(module.kernels[0].symbol, module.kernels[1].symbol);
  EXPECT_THROW(module.kernel("scale<Config{3, 64}>"), Error);
}

TEST_F(Compiler, SpillsAreSeen) {
  const CompiledModule roomy = compile(long_job(2), false);
  EXPECT_GT(roomy.kernels[0].registers, 64);
  EXPECT_EQ(roomy.kernels[0].spill_bytes, 0);
  const CompiledModule tight = compile(long_job(2, {"--maxrregcount=32"}), false);
  EXPECT_LE(tight.kernels[0].registers, 32);
  EXPECT_GT(tight.kernels[0].spill_bytes, 0);
  EXPECT_GT(tight.kernels[0].stack_bytes, 0);
}

TEST_F(Compiler, ErrorsCarryTheLog) {
  CompileJob job = scale_job("scale<Config{}>", "sm_90a");
  job.headers[0].text += "int broken = nonsense;\n";
  const std::string message = failure_of(job);
  EXPECT_NE(message.find("scale<Config{}>"), std::string::npos) << message;
  EXPECT_NE(message.find("nonsense"), std::string::npos) << message;
  EXPECT_NE(message.find("scale.cuh"), std::string::npos) << message;
  EXPECT_NE(failure_of(scale_job("scale<Config{}>", "sm_1")).find("sm_1"), std::string::npos);
  EXPECT_NE(failure_of(scale_job("absent<3>", "sm_80")).find("absent"), std::string::npos);
}

TEST_F(Compiler, IncludesComeFromMemoryAlone) {
  CompileJob job = scale_job("scale<Config{}>", "sm_80");
  job.source += "#include \"/proc/self/status\"\n";
  failure_of(job);
  // A header that lies in the working folder is not seen.
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  std::ofstream("beside.cuh") << "\n";
  job.source = "#include \"beside.cuh\"\n#include \"scale.cuh\"\n";
  EXPECT_NE(failure_of(job).find("beside.cuh"), std::string::npos);
  fs::current_path(before);
}

TEST_F(Compiler, TheCacheAnswersTheSecondTime) {
  const CompileJob job = scale_job("scale<Config{}>", "sm_89");
  EXPECT_FALSE(find_compiled(job));
  const CompiledModule first = compile(job);
  EXPECT_EQ(cached_files(), 1);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(compile(job), first);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  RecordProperty("cached_compile_ms", std::to_string(took.count()));
  EXPECT_EQ(compile(job, false), first) << "NVRTC makes the same bytes again";

  // Everything that the compiler sees is part of the key; the order of options is not.
  std::vector<CompileJob> others(6, job);
  others[0].source += " ";
  others[1].headers[0].text += " ";
  others[2].headers.push_back({"unused.cuh", ""});
  others[3].arch = "sm_86";
  others[4].options = {"--maxrregcount=32", "-DA"};
  others[5].kernels = {"scale<Config{2}>"};
  for (const CompileJob& other : others) EXPECT_FALSE(find_compiled(other));
  compile(others[4]);
  std::swap(others[4].options[0], others[4].options[1]);
  EXPECT_TRUE(find_compiled(others[4]));
}

TEST_F(Compiler, ADamagedEntryIsCompiledAgain) {
  const CompileJob job = scale_job("scale<Config{}>", "sm_80");
  const CompiledModule first = compile(job);
  const fs::path file = fs::directory_iterator(folder_)->path();
  fs::resize_file(file, fs::file_size(file) / 2);
  EXPECT_EQ(compile(job), first);
  EXPECT_EQ(find_compiled(job), first) << "the damaged file was not replaced";
}

TEST_F(Compiler, ManyAtOnceWithinATimeLimit) {
  std::vector<CompileJob> jobs;
  for (int width = 1; width <= 6; ++width)
    jobs.push_back(scale_job("scale<Config{.width = " + std::to_string(width) + "}>", "sm_80"));
  jobs[2].headers[0].text += "syntax error";
  compile(jobs[4]);  // one is in the cache
  jobs.push_back(long_job(100));
  for (int rounds = 60; rounds < 160; ++rounds)  // a minute of work and more
    jobs.back().kernels.push_back("churn<" + std::to_string(rounds) + ">");
  const auto start = std::chrono::steady_clock::now();
  const std::vector<CompileResult> results = compile_all(jobs, 2, 3);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  ASSERT_EQ(results.size(), jobs.size());
  for (const std::size_t i : {0, 1, 3, 4, 5}) {
    ASSERT_TRUE(results[i].module) << results[i].failure;
    EXPECT_EQ(*results[i].module, compile(jobs[i], false)) << i;
    EXPECT_TRUE(find_compiled(jobs[i])) << i;
  }
  EXPECT_FALSE(results[2].module);
  EXPECT_NE(results[2].failure.find("syntax"), std::string::npos) << results[2].failure;
  EXPECT_FALSE(results[6].module);
  EXPECT_NE(results[6].failure.find("longer than 3 seconds"), std::string::npos) << results[6].failure;
  EXPECT_LT(took.count(), 30);
  EXPECT_TRUE(compile_all({}, 2, 1).empty());
}

TEST_F(Compiler, AheadLeavesWhatABuildCompilesInTheCache) {
  const ConvProblem problem = parse_problem("mb1ic8ih8oc8kh3ph1 precision=tf32");
  const DeviceInfo device = device_of(find_target("h100"));
  const Algorithm& algorithm = implicit_gemm_sm80();
  const Way good = {&algorithm, algorithm.candidates(problem, device).front()};
  CompileAhead ahead(problem, device, {good, {&algorithm, parse_config("nonsense=1")}});
  const double slowest = ahead.wait();
  EXPECT_GT(slowest, 0.01);
  EXPECT_EQ(ahead.wait(), slowest);
  const std::vector<ino_t> before = files_kept();
  EXPECT_FALSE(before.empty());
  EXPECT_EQ(dry_run(problem, device, {{good.first, good.second}}, 1, 60).front().failure, "");
  EXPECT_EQ(files_kept(), before) << "compiled again";
  EXPECT_EQ(CompileAhead(problem, device, {}).wait(), 0);
}

TEST_F(Compiler, AheadIsOverWhenItsTimeIsUpOrNobodyWaits) {
  const ConvProblem problem = parse_problem("mb1ic16ih16oc16kh9ph4 precision=tf32");
  const DeviceInfo device = device_of(find_target("h100"));
  const Algorithm& algorithm = implicit_gemm_sm80();
  std::vector<Way> several;
  for (const Config& config : algorithm.candidates(problem, device))
    if (several.size() < 4) several.push_back({&algorithm, config});
  CompileAhead hurried(problem, device, several, 0.001);
  EXPECT_EQ(hurried.wait(), 0);
  EXPECT_TRUE(hurried.late().empty()) << "all of them are: it is not the candidates";
  const auto start = std::chrono::steady_clock::now();
  { const CompileAhead unheeded(problem, device, several); }
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 5);
}

TEST(CompiledModule, TextFormGoesBothWays) {
  const CompiledModule module = {std::string("\x7f"
                                             "ELF\0\n\xff",
                                             7),
                                 {{"k<1>", "_Z1k", 32, 8, 16, 2048}, {"k<2>", "_Z2k", 255, 0, 0, 0}},
                                 "a log\nof two lines"};
  const std::string text = to_text(module);
  EXPECT_EQ(parse_module(text), module);
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_FALSE(parse_module(text.substr(0, length))) << length;
  EXPECT_FALSE(parse_module(text + "x"));
  EXPECT_FALSE(parse_module("99999999999999999999\n"));
  EXPECT_FALSE(parse_module("-1\n"));
}

TEST(CompiledModule, ResourcesAreReadFromTheLog) {
  const std::string log = R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_90a'
ptxas info    : Function properties for other
    8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
ptxas info    : Compiling entry function 'mine' for 'sm_90a'
ptxas info    : Function properties for mine
ptxas         .     64 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 4096 bytes smem, 400 bytes cmem[0]
ptxas info    : Function properties for callee
    16 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
)";
  const KernelResources expected = {"mine<1>", "mine", 168, 72, 80, 4096};
  EXPECT_EQ(read_resources(log, "mine<1>", "mine"), expected);
  EXPECT_THROW(read_resources(log, "absent", "absent"), Error);
  EXPECT_THROW(read_resources("", "mine", "mine"), Error);
}

TEST(KernelSources, AreReadFromAFolderWhereOneIsNamed) {
  std::string name = testing::TempDir() + "convtune_kernels_XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const auto write = [&](const char* file, const char* text) {
    std::ofstream(fs::path(name) / file) << text;
  };
  write("a.cuh", "#pragma once\n  # include  \"b.cuh\"  // why\n#include \"c.cuh\"\n");
  write("b.cuh", "#include \"c.cuh\"\n#include \"a.cuh\"");
  write("c.cuh", "int c;\n");
  ::setenv("CONVTUNE_KERNEL_DIR", name.c_str(), 1);
  const std::vector<KernelSource> sources = kernel_sources("a.cuh");
  ASSERT_EQ(sources.size(), 3u);
  EXPECT_EQ(sources[0].name, "a.cuh");
  EXPECT_EQ(sources[1].name, "b.cuh");
  EXPECT_EQ(sources[2], (KernelSource{"c.cuh", "int c;\n"}));
  const std::string hash = kernel_source_hash("a.cuh");
  EXPECT_EQ(kernel_source_hash("a.cuh"), hash);
  write("c.cuh", "// a comment\n\n  int  c;  // another: \"\n/* and\n   a third */\n");
  EXPECT_EQ(kernel_source_hash("a.cuh"), hash) << "comments and blank space are part of the hash";
  const auto changes_hash = [&](const char* text) {
    write("c.cuh", text);
    return kernel_source_hash("a.cuh") != hash;
  };
  EXPECT_TRUE(changes_hash("int d;\n")) << "an edit two includes away was not seen";
  EXPECT_TRUE(changes_hash("intc;\n"));
  for (const char* literal : {"a // b", "a /* */b", "a  b", "a \\\" // b"}) {
    write("c.cuh",
          fmt::format("auto c = \"{}\";  // ' an apostrophe opens nothing\nint d = 1'000;", literal).c_str());
    const std::string of_literal = kernel_source_hash("a.cuh");
    write("c.cuh", fmt::format("auto c = \"{}c\";\nint d = 1'000;", literal).c_str());
    EXPECT_NE(kernel_source_hash("a.cuh"), of_literal) << literal;
  }
  write("b.cuh", "#include \"gone.cuh\"\n");
  EXPECT_THROW(kernel_sources("a.cuh"), Error);
  ::unsetenv("CONVTUNE_KERNEL_DIR");
  fs::remove_all(name);
}

TEST(KernelSources, AreBuiltIn) {
  const std::vector<KernelSource> sources = kernel_sources("cuda/ptx/sm80.cuh");
  ASSERT_EQ(sources.size(), 2u) << "and what it includes";
  EXPECT_NE(sources[0].text.find("mma_m16n8k8_tf32"), std::string::npos);
  EXPECT_EQ(sources[1].name, "cuda/ptx/shared.cuh");
  EXPECT_THROW(kernel_sources("absent.cuh"), Error);
}

TEST_F(Compiler, TheKernelsOfTheCeilingsSpillNothing) {
  SKIP_WITHOUT_NVRTC();
  for (const ComputeCapability capability : nvrtc_capabilities()) {
    const std::string arch = isa_of(capability);
    const CompiledModule module = compile(ceilings_job(capability, isa_of(capability)), false);
    EXPECT_EQ(module.kernels.size(), 3u) << arch;
    for (const KernelResources& resources : module.kernels) {
      EXPECT_EQ(resources.spill_bytes, 0) << arch << " " << resources.kernel;
      EXPECT_LE(resources.registers, 168) << arch << " " << resources.kernel;  // three warps a part and more
    }
  }
}

}  // namespace
}  // namespace convtune::cuda::cuda_compiler_test
