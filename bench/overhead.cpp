// Measures the library's cost round the kernel: planning from a record, and run() against the bare
// executable behind it. Google Benchmark; the problem is as small as can be, so that the host's part
// is what shows.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "convtune/convolution.h"
#include "convtune/tuner.h"
#include "plan/algorithms.h"

namespace {

using namespace convtune;

const ConvProblem kProblem = parse_problem("mb1ic1ih4oc1kh1 precision=fp32");

struct Tensors {
  std::vector<float> x = std::vector<float>(static_cast<std::size_t>(kProblem.input_elements()), 1.0f);
  std::vector<float> w = std::vector<float>(static_cast<std::size_t>(kProblem.weight_elements()), 1.0f);
  std::vector<float> bias = std::vector<float>(static_cast<std::size_t>(kProblem.k), 1.0f);
  std::vector<float> y = std::vector<float>(static_cast<std::size_t>(kProblem.output_elements()));
};

void bare_executable(benchmark::State& state) {
  Tensors t;
  Backend& on = backend({});
  const Algorithm& direct = find_algorithm(Device::Kind::cpu, "direct");
  const auto executable = direct.build(kProblem, on.info(), direct.candidates(kProblem, on.info()).front());
  const auto packed = on.allocate(executable->packed_bytes());
  executable->pack(t.w.data(), t.bias.data(), packed.get(), nullptr);
  for (auto _ : state) executable->run({.x = t.x.data(), .y = t.y.data()}, packed.get(), nullptr);
}
BENCHMARK(bare_executable);

void convolution_run(benchmark::State& state) {
  Tensors t;
  const Convolution conv = plan(kProblem, {}, "direct");
  const PackedWeights weights = conv.pack(t.w.data(), t.bias.data());
  for (auto _ : state) conv.run({.x = t.x.data(), .y = t.y.data()}, weights);
}
BENCHMARK(convolution_run);

void plan_from_record(benchmark::State& state) {
  std::string folder = (std::filesystem::temp_directory_path() / "convtune-overhead-XXXXXX").string();
  if (!mkdtemp(folder.data())) return state.SkipWithError("no temporary folder");
  setenv("CONVTUNE_DATA_DIR", folder.c_str(), 1);
  TuneOptions quick;
  quick.budget_trials = 3;
  tune(kProblem, {}, quick);
  for (auto _ : state) benchmark::DoNotOptimize(plan(kProblem));
  if (plan(kProblem).plan().source == PlanSource::estimate) state.SkipWithError("the record did not answer");
  std::filesystem::remove_all(folder);
}
BENCHMARK(plan_from_record)->Unit(benchmark::kMicrosecond);

void plan_without_record(benchmark::State& state) {
  setenv("CONVTUNE_DATA_DIR", "/nonexistent/convtune", 1);
  const ConvProblem problem = parse_problem("mb256ic3ih224oc96kh11sh4ph2");
  for (auto _ : state) benchmark::DoNotOptimize(plan(problem));
}
BENCHMARK(plan_without_record)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
