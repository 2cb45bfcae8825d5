// Bits that device 0 computes, to compare a GPU with its stand-in:
//   host_bits forms              a line a form of instructions: its name and a hash of its results. Taken on
//   a
//                                GPU it is forms.txt.
//   host_bits form NAME FILE     writes the words that one of them leaves.
//   host_bits problems COUNT     lines of about so many small problems over all kernels: algorithm, problem,
//                                config, a hash of the result on integers, and one with NaN and infinities.
//   host_bits compare FILE       computes what the lines of FILE say, and prints those that differ.
// host_bits uses the stand-ins, gpu_bits what the machine has. Exits with 1 where something differs and with
// 2 where it was asked for what there is not.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <thread>

#include "base/sha256.h"
#include "cuda/backend/cuda.h"
#include "cuda/compile/compile_all.h"
#include "forms.h"
#include "kernel_problems.h"
#include "measure/test_data.h"
#include "problem/config_fields.h"
#include "problem/element.h"
#ifdef CONVTUNE_HOST_GPU_NVRTC
#include "stand_ins.h"
#endif

namespace convtune::host_gpu_tests {
namespace {

Backend& gpu() {
  return cuda::backend({Device::Kind::cuda, 0});
}

struct Line {
  std::string algorithm, problem, config, integers, specials;
};
std::string text_of(const Line& a) {
  return fmt::format("{}\t{}\t{}\t{}\t{}\n", a.algorithm, a.problem, a.config, a.integers, a.specials);
}

// A tensor on the device; null where the problem has none.
std::shared_ptr<void> to_device(DType type, const std::vector<float>& values) {
  if (values.empty()) return nullptr;
  std::vector<unsigned char> bytes(values.size() * static_cast<std::size_t>(size_of(type)));
  store_all(type, values.data(), std::ssize(values), bytes.data());
  std::shared_ptr<void> memory = gpu().allocate(bytes.size());
  gpu().upload(memory.get(), bytes.data(), bytes.size());
  return memory;
}

// Hash of the output of one run; all NaN count as one.
std::string hash_of(const ConvProblem& problem, const Executable& executable, TestData data) {
  const TestTensors host = test_tensors(problem, data, 5);
  const auto x = to_device(problem.dtype.x, host.x), w = to_device(problem.dtype.w, host.w),
             bias = to_device(problem.dtype.bias, host.bias),
             residual = to_device(problem.dtype.y, host.residual);
  const auto elements = static_cast<std::size_t>(problem.output_elements());
  std::vector<float> values(elements, std::numeric_limits<float>::quiet_NaN());
  const auto y = to_device(problem.dtype.y, values), packed = gpu().allocate(executable.packed_bytes());
  executable.pack(w.get(), bias.get(), packed.get(), nullptr);
  executable.run({.x = x.get(), .residual = residual.get(), .y = y.get()}, packed.get(), nullptr);
  gpu().synchronize(nullptr);
  std::vector<unsigned char> bytes(elements * static_cast<std::size_t>(size_of(problem.dtype.y)));
  gpu().download(bytes.data(), y.get(), bytes.size());
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = load(problem.dtype.y, bytes.data(), static_cast<std::int64_t>(i));
    if (std::isnan(values[i])) values[i] = std::numeric_limits<float>::quiet_NaN();
    if (values[i] == 0) values[i] = 0;  // either zero is right where terms cancel
  }
  return sha256({reinterpret_cast<const char*>(values.data()), elements * sizeof(float)}).substr(0, 16);
}

Line computed(const cuda::KernelAlgorithm& algorithm, const ConvProblem& problem, const Config& config) {
  const auto executable = algorithm.build(problem, gpu().info(), config);
  return {std::string(algorithm.name()), to_string(problem), to_string(config),
          hash_of(problem, *executable, TestData::integer),
          hash_of(problem, *executable, TestData::non_finite)};
}

// Compiled by all processors, and what was compiled is kept.
void compile_before(const std::vector<std::tuple<const cuda::KernelAlgorithm*, ConvProblem, Config>>& works) {
  std::vector<cuda::CompileJob> jobs;
  for (const auto& [algorithm, problem, config] : works) {
    const cuda::LaunchPlan plan = algorithm->plan(problem, gpu().info(), config);
    jobs.push_back(cuda::compile_job(plan, plan.configs.front()));
  }
  cuda::compile_all(jobs, static_cast<int>(std::thread::hardware_concurrency()), 600);
}

void print_problems(std::size_t count) {
  constexpr double kMostFlops = 30e6;
  const auto own = own_algorithms();
  std::vector<ConvProblem> all = small_problems(), random = random_layers(2000);
  all.insert(all.end(), random.begin(), random.end());
  std::erase_if(all, [](const ConvProblem& a) { return a.flops() > kMostFlops; });
  std::vector<std::tuple<const cuda::KernelAlgorithm*, ConvProblem, Config>> works;
  for (const cuda::KernelAlgorithm* algorithm : own)
    for (const ConvProblem& problem :
         spread(supported(*algorithm, gpu().info(), all), count / own.size() + 1)) {
      const std::vector<Config> configs = algorithm->candidates(problem, gpu().info());
      Picker pick(works.size());
      works.emplace_back(algorithm, problem,
                         configs[static_cast<std::size_t>(pick(0, std::ssize(configs) - 1))]);
    }
  compile_before(works);
  for (const auto& [algorithm, problem, config] : works) {
    fmt::print("{}", text_of(computed(*algorithm, problem, config)));
    std::fflush(stdout);
  }
}

int compare(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Error(ErrorKind::io, "there is no file " + file);
  std::vector<Line> lines;
  std::vector<std::tuple<const cuda::KernelAlgorithm*, ConvProblem, Config>> works;
  for (std::string text; std::getline(in, text);) {
    std::istringstream fields(text);
    Line& line = lines.emplace_back();
    for (std::string* field : {&line.algorithm, &line.problem, &line.config, &line.integers, &line.specials})
      std::getline(fields, *field, '\t');
    const auto own = own_algorithms();
    const auto algorithm =
        std::find_if(own.begin(), own.end(), [&](auto* one) { return one->name() == line.algorithm; });
    if (algorithm == own.end())
      throw Error(ErrorKind::invalid_argument, file + ": there is no kernel " + line.algorithm);
    works.emplace_back(*algorithm, tf32(line.problem), parse_config(line.config));
  }
  compile_before(works);
  std::size_t integers = 0, specials = 0;
  for (std::size_t i = 0; i < works.size(); ++i) {
    const auto& [algorithm, problem, config] = works[i];
    const Line here = computed(*algorithm, problem, config);
    integers += here.integers == lines[i].integers, specials += here.specials == lines[i].specials;
    if (here.integers != lines[i].integers || here.specials != lines[i].specials)
      fmt::print("there: {}here:  {}", text_of(lines[i]), text_of(here));
  }
  fmt::print("{} of {} equal on integers, {} with NaN and infinities, on {}\n", integers, works.size(),
             specials, gpu().info().name);
  return integers == works.size() && specials == works.size() ? 0 : 1;
}

}  // namespace
}  // namespace convtune::host_gpu_tests

int main(int count, char** arguments) {
  using namespace convtune::host_gpu_tests;
  const std::string what = count > 1 ? arguments[1] : "";
  try {
#ifdef CONVTUNE_HOST_GPU_NVRTC
    use_stand_ins();
#endif
    if (what == "forms" && count == 2) {
      for (const FormResult& form : run_forms()) fmt::print("{}\t{}\n", form.name, form.hash());
      return 0;
    }
    if (what == "form" && count == 4) {
      for (const FormResult& form : run_forms()) {
        if (form.name != arguments[2]) continue;
        std::ofstream out(arguments[3], std::ios::binary);
        out.write(reinterpret_cast<const char*>(form.words.data()), std::ssize(form.words) * 4);
        return 0;
      }
      throw convtune::Error(convtune::ErrorKind::invalid_argument,
                            fmt::format("there is no form {}", arguments[2]));
    }
    if (what == "problems" && count == 3) return print_problems(std::stoul(arguments[2])), 0;
    if (what == "compare" && count == 3) return compare(arguments[2]);
    fmt::print(stderr, "usage: {} forms | form NAME FILE | problems COUNT | compare FILE\n", arguments[0]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", arguments[0], error.what());
  }
  return 2;
}
