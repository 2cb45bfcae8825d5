// Every kernel of the table, executed here: on small problems of kernel_problems.h that it supports, exact on
// integers between canaries, with copies and products that are done as late as they may be, and in shuffled
// order. A few of each by default; with CONVTUNE_HOST_GPU_ALL=1 all of them, random layers too, in every mode
// (`make kernels`), or with CONVTUNE_HOST_GPU_PART=2/8 the third of eight parts of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "contract/most_images.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/compile/compile_all.h"
#include "cuda/launch/sum_pixels_step.h"
#include "kernel_problems.h"
#include "measure/test_data.h"
#include "problem/config_fields.h"
#include "problem/element.h"
#include "stand_ins.h"

namespace convtune::kernels_test {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kQuick = 2;  // compiling and running take several times as long
#else
constexpr std::size_t kQuick = 6;
#endif

bool all() {
  const char* const value = std::getenv("CONVTUNE_HOST_GPU_ALL");
  return value && std::string(value) == "1";
}

// On 8.0 a kernel whose text asks for no architecture is the text that runs on 9.0: of it two problems are
// computed, with the first guess for that device.
bool is_known_text(std::string_view algorithm) {
  if (host_gpu_tests::device_words().empty() || all()) return false;
  const auto folder = std::filesystem::path(CONVTUNE_HOST_GPU_DIR) / "../../src/cuda/algorithms" / algorithm;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(file.path(), std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    if (text.find("__CUDA_ARCH") != text.npos) return false;
  }
  return true;
}

// Takes every so many-th problem where this process computes a part of them.
template <class T>
void keep_part(std::vector<T>& list) {
  const char* const value = std::getenv("CONVTUNE_HOST_GPU_PART");
  unsigned part = 0, parts = 1;
  if (!value || std::sscanf(value, "%u/%u", &part, &parts) != 2 || parts == 0) return;
  std::vector<T> kept;
  for (std::size_t i = part; i < list.size(); i += parts) kept.push_back(list[i]);
  list = std::move(kept);
}

std::vector<std::string> modes() {
  std::vector<std::string> modes = {"late watch", "shuffled watch nan seed=1"};
  if (all()) {
    modes = {"eager", "late watch", "late watch backwards", "late watch nan"};
    for (int seed = 1; seed <= 5; ++seed) modes.push_back(fmt::format("shuffled watch seed={}", seed));
  }
  for (std::string& mode : modes) mode = host_gpu_tests::device_words() + mode;
  return modes;
}

// Lines of kernels that the others seldom come to (coverage.py): tiles within a row, rows of an odd width,
// matrices to transpose that move by 8 bytes, planes of less than 16, and padding wider than the filter.
// general_sm80 would take a minute of them.
std::vector<ConvProblem> seldom_lines(std::string_view algorithm) {
  if (algorithm == "general_sm80") return {};
  return {tf32("mb1ic3ih8iw800oc32kh3sh4ph1"), tf32("mb1ic3ih9iw13oc12kh3ph1"),
          parse_problem("mb1ic64ih14oc64kh3ph1 dtype=bf16 precision=bf16"),
          parse_problem("mb1ic24ih4oc24kh3 dtype=f16 precision=fp16 dir=bwd_w"),
          parse_problem("mb1ic16ih4iw8oc8kh3ph1pw4 dtype=bf16 precision=bf16 layout=nhwc dir=bwd_w")};
}

// A problem's outputs on integers, with tensors that begin so many elements off every alignment.
class Outputs {
 public:
  Outputs(const ConvProblem& problem, Backend& gpu, const Executable& executable)
      : problem_(problem),
        gpu_(gpu),
        executable_(executable),
        tensors_(test_tensors(problem, TestData::integer, 5)) {}

  // `in_place`: y is the residual's memory.
  std::vector<unsigned char> operator()(std::size_t shift, bool in_place) const {
    const DTypes& types = problem_.dtype;
    const DType type = problem_.result_type();
    std::vector<unsigned char> y(static_cast<std::size_t>(problem_.result_elements() * size_of(type)));
    const auto x = to_device(types.x, to_bytes(types.x, tensors_.x), shift),
               w = to_device(types.w, to_bytes(types.w, tensors_.w), shift),
               bias = to_device(types.bias, to_bytes(types.bias, tensors_.bias), shift),
               dy = to_device(types.y, to_bytes(types.y, tensors_.dy), shift),
               residual = to_device(type, to_bytes(type, tensors_.residual), shift),
               result = in_place ? residual : to_device(type, y, shift);
    const auto packed = gpu_.allocate(executable_.packed_bytes());
    executable_.pack(w.get(), problem_.bias ? bias.get() : nullptr, packed.get(), nullptr);
    executable_.run({.x = x.get(),
                     .residual = residual.get(),
                     .dy = dy.get(),
                     .y = result.get(),
                     .dx = result.get(),
                     .dw = result.get()},
                    packed.get(), nullptr);
    gpu_.synchronize(nullptr);
    gpu_.download(y.data(), result.get(), y.size());
    return y;
  }

 private:
  std::shared_ptr<void> to_device(DType type, const std::vector<unsigned char>& bytes,
                                  std::size_t shift) const {
    const std::size_t skipped = shift * static_cast<std::size_t>(size_of(type));
    auto block = gpu_.allocate(bytes.size() + skipped);
    auto* const begin = static_cast<unsigned char*>(block.get()) + skipped;
    gpu_.upload(begin, bytes.data(), bytes.size());
    return std::shared_ptr<void>(block, begin);
  }

  const ConvProblem& problem_;
  Backend& gpu_;
  const Executable& executable_;
  TestTensors tensors_;
};

class HostKernel : public testing::TestWithParam<const cuda::KernelAlgorithm*> {
 protected:
  void SetUp() override {
    host_gpu_tests::set_mode(modes().front());
    if (!problems().empty()) return;
    // A 9.0 runs every kernel, an 8.0 those that are not for 9.0; a part of the problems may hold none of
    // one's.
    const bool is_an_older = !host_gpu_tests::device_words().empty();
    ASSERT_TRUE((is_an_older && algorithm().name().ends_with("_sm90")) ||
                std::getenv("CONVTUNE_HOST_GPU_PART"))
        << algorithm().name() << " has no problem here";
    GTEST_SKIP() << algorithm().name() << " is for none of these problems on a "
                 << to_string(gpu().info().capability);
  }
  Backend& gpu() { return cuda::backend({Device::Kind::cuda, 0}); }
  const cuda::KernelAlgorithm& algorithm() { return *GetParam(); }

  // Problems that are computed in a moment: an oracle and a processor do it.
  std::vector<ConvProblem> problems() {
    constexpr double kMostFlops = 100e6;
    std::vector<ConvProblem> small = supported(algorithm(), gpu().info(), small_problems());
    std::vector<ConvProblem> others = supported(algorithm(), gpu().info(), seldom_lines(algorithm().name()));
    if (!all()) {
      small = spread(small, is_known_text(algorithm().name()) ? 2 : kQuick);
      small.insert(small.end(), others.begin(), others.end());
      return small;
    }
    std::vector<ConvProblem> random = supported(algorithm(), gpu().info(), random_layers(4000));
    std::erase_if(random, [](const ConvProblem& a) { return a.flops() > kMostFlops; });
    random = spread(random, 200);
    small.insert(small.end(), random.begin(), random.end());
    small.insert(small.end(), others.begin(), others.end());
    keep_part(small);
    return small;
  }

  // The first config; of every second problem one from anywhere, too.
  std::vector<Config> configs(const ConvProblem& problem, std::size_t index) {
    const std::vector<Config> listed = algorithm().candidates(problem, gpu().info());
    std::vector<Config> chosen = {listed.front()};
    Picker pick(index);
    const Config& other = listed[static_cast<std::size_t>(pick(0, std::ssize(listed) - 1))];
    if (index % 2 == 0 && !(other == listed.front()) && !is_known_text(algorithm().name()))
      chosen.push_back(other);
    return chosen;
  }
};

TEST_P(HostKernel, IsExactInEveryMode) {
  const std::vector<ConvProblem> chosen = problems();
  std::vector<cuda::CompileJob> jobs;
  for (std::size_t i = 0; i < chosen.size(); ++i)
    for (const Config& config : configs(chosen[i], i)) {
      const cuda::LaunchPlan plan = algorithm().plan(chosen[i], gpu().info(), config);
      jobs.push_back(cuda::compile_job(plan, plan.configs.front()));
    }
  cuda::compile_all(jobs, 1, 600);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    Testbed bed(chosen[i], gpu(), TestData::integer, 5, 0);
    for (const Config& config : configs(chosen[i], i)) {
      const auto executable = algorithm().build(chosen[i], gpu().info(), config);
      for (const std::string& mode : modes()) {
        host_gpu_tests::set_mode(mode);
        EXPECT_EQ(host_gpu_tests::fault_of(bed, *executable), "")
            << fmt::format("run it again: {} {} '{}' '{}' '{}'", CONVTUNE_HOST_KERNEL, algorithm().name(),
                           to_string(chosen[i]), to_string(config), mode);
      }
    }
  }
}

// NaN and infinities in every tensor, as the reference has them.
TEST_P(HostKernel, SpreadsNanAndInfinityAsTheReferenceDoes) {
  for (const ConvProblem& problem : problems()) {
    const Config config = algorithm().candidates(problem, gpu().info()).front();
    const auto executable = algorithm().build(problem, gpu().info(), config);
    std::vector<std::uint64_t> seeds = {5, 6, 7};  // in x, in weights, or in both
    constexpr double kSoonRepaired = 50e6;  // NaN among weights has most outputs added up again, one by one
    if (!all() && problem.flops() > kSoonRepaired) seeds = {7};
    for (const std::uint64_t seed : seeds) {
      Testbed bed(problem, gpu(), TestData::non_finite, seed, 0);
      EXPECT_EQ(host_gpu_tests::fault_of(bed, *executable), "")
          << algorithm().name() << " " << to_string(problem) << " with " << to_string(config);
    }
  }
}

// Denormal numbers, as exactly as the precision has them.
TEST_P(HostKernel, TakesDenormalNumbers) {
  for (const ConvProblem& problem : spread(problems(), all() ? 20 : 2)) {
    const Config config = algorithm().candidates(problem, gpu().info()).front();
    const auto executable = algorithm().build(problem, gpu().info(), config);
    for (const std::uint64_t seed : {5, 6}) {
      Testbed bed(problem, gpu(), TestData::denormal, seed, 0);
      EXPECT_EQ(host_gpu_tests::fault_of(bed, *executable), "")
          << algorithm().name() << " " << to_string(problem) << " with " << to_string(config);
    }
  }
}

// Exact on aligned pointers, by a test above: so it is on others, and where y is the residual's memory.
TEST_P(HostKernel, TakesAnyPointersAndItsResidualInPlace) {
  for (const ConvProblem& problem : spread(problems(), all() ? 20 : 2)) {
    const Config config = algorithm().candidates(problem, gpu().info()).front();
    const auto executable = algorithm().build(problem, gpu().info(), config);
    const Outputs outputs(problem, gpu(), *executable);
    const std::string what =
        fmt::format("{} {} with {}", algorithm().name(), to_string(problem), to_string(config));
    const auto expected = outputs(0, false);
    EXPECT_EQ(outputs(1, false), expected) << what;
    if (problem.residual) {
      EXPECT_EQ(outputs(0, true), expected) << what;
    }
  }
}

// Blocks that go from tile to tile: the fewest take all of them, and change no bit.
TEST_P(HostKernel, ComputesTheSameWithTheLeastShareOfTheGpu) {
  for (const ConvProblem& problem : spread(problems(), all() ? 20 : 3)) {
    const Config config = algorithm().candidates(problem, gpu().info()).front();
    if (algorithm().plan(problem, gpu().info(), config).kernel_launch().unit == 0) continue;
    if (problem.cache > 0) continue;  // which Outputs has none of
    const auto executable = algorithm().build(problem, gpu().info(), config);
    const Outputs outputs(problem, gpu(), *executable);
    for (const std::size_t shift : {0, 1}) {
      const auto expected = outputs(shift, false);
      set_gpu_share(1e-9);
      const auto shared = outputs(shift, false);
      set_gpu_share(1);
      EXPECT_EQ(shared, expected) << algorithm().name() << " " << to_string(problem) << " with "
                                  << to_string(config);
    }
  }
}

// A kernel that is compiled for a larger batch and told of this one, with tiles of more images than there
// are, too.
TEST_P(HostKernel, TakesAnyBatchUpToItsOwn) {
  std::size_t computed = 0;
  for (const ConvProblem& problem : spread(problems(), all() ? 40 : 3)) {
    ConvProblem largest = problem;
    largest.n = 2 * problem.n + 3;
    if (!algorithm().supports(largest, gpu().info())) continue;
    Config config = algorithm().candidates(largest, gpu().info()).front();
    config.values.emplace_back(kMostImages, largest.n);
    if (!algorithm().accepts(problem, gpu().info(), config)) continue;
    const auto of_all = algorithm().build(largest, gpu().info(), config);  // one kernel is loaded for both
    const auto executable = algorithm().build(problem, gpu().info(), config);
    const std::string what =
        fmt::format("{} {} with {}", algorithm().name(), to_string(problem), to_string(config));
    Testbed whole(largest, gpu(), TestData::integer, 7, 0);
    EXPECT_EQ(host_gpu_tests::fault_of(whole, *of_all), "") << what;
    for (const TestData data : {TestData::integer, TestData::non_finite}) {
      Testbed bed(problem, gpu(), data, 7, 0);
      EXPECT_EQ(host_gpu_tests::fault_of(bed, *executable), "") << what;
    }
    if (problem.cache == 0) {
      const Outputs outputs(problem, gpu(), *executable);
      EXPECT_EQ(outputs(1, false), outputs(0, false)) << what;
    }
    ++computed;
  }
  const std::set<std::string_view> any = {"direct_body_half_sm90", "direct_body_half_nchw_sm90",
                                          "implicit_gemm_half_sm90", "direct_stem_half"};
  if (computed == 0 && std::getenv("CONVTUNE_HOST_GPU_PART"))
    GTEST_SKIP() << "none of these is for any batch";
  EXPECT_EQ(computed > 0, any.contains(algorithm().name()));
}

// A consumer that begins when others have done their rows: the units that it waits for first were full long
// ago, and others lie in their places.
TEST(DirectStemSm90, TakesConsumersThatComeLate) {
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  const Algorithm& stem = find_algorithm(Device::Kind::cuda, "direct_stem_sm90");
  const ConvProblem problem = tf32("mb1ic4ih29iw156oc139kh3kw4sh3sw4ph1pw4");
  const auto executable = stem.build(problem, gpu.info(), parse_config("consumers=3 units=2 filters=96"));
  Testbed bed(problem, gpu, TestData::integer, 5, 0);
  host_gpu_tests::set_mode("eager");
  EXPECT_EQ(host_gpu_tests::fault_of(bed, *executable), "");
}

// Elements that no tap meets: in units of 16 bytes, of channels that are the same for a thread and others,
// with a residual, and by single elements where dx begins anywhere.
TEST(BareResidues, AreStoredToAnyPointers) {
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  const Algorithm& gemm = find_algorithm(Device::Kind::cuda, "implicit_gemm_half_sm90");
  for (const char* text :
       {"mb2ic64ih9oc64kh1sh2 bias=1 act=relu", "mb2ic24ih10oc64kh1sh2",
        "mb1ic40id3ih7iw9oc64kd1kh1kw2sd2sh2sw3 residual=1", "mb2ic20ih9oc64kh1sh2 bias=1"}) {
    const ConvProblem problem =
        parse_problem(text + std::string(" dtype=bf16 precision=bf16 layout=nhwc dir=bwd_d"));
    ASSERT_TRUE(gemm.supports(problem, gpu.info())) << text;
    const auto executable = gemm.build(problem, gpu.info(), gemm.candidates(problem, gpu.info()).front());
    Testbed bed(problem, gpu, TestData::integer, 5, 0);
    host_gpu_tests::set_mode(modes().front());
    EXPECT_EQ(host_gpu_tests::fault_of(bed, *executable), "") << text;
    const Outputs outputs(problem, gpu, *executable);
    EXPECT_EQ(outputs(1, false), outputs(0, false)) << text;
  }
}

// Residues of a stride that begin each with its own first output, of one image a tile and of several.
TEST(LateResidues, AreStoredWhereTheyLie) {
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  const Algorithm& body = cuda::direct_body_half_sm90();
  for (const char* text : {"mb3ic64ih14oc72kh3sh2ph1", "mb1ic40ih26iw16oc64kh3sh2ph1 bias=1 residual=1"})
    for (const TestData data : {TestData::integer, TestData::non_finite}) {
      const ConvProblem problem =
          parse_problem(text + std::string(" dtype=bf16 precision=bf16 layout=nhwc dir=bwd_d"));
      const auto executable = body.build(problem, gpu.info(), body.candidates(problem, gpu.info()).front());
      Testbed bed(problem, gpu, data, 5, 0);
      host_gpu_tests::set_mode(modes().front());
      EXPECT_EQ(host_gpu_tests::fault_of(bed, *executable), "") << text;
    }
}

// The gradient of a bias beside a library that has none: exact on integers, in words and by single elements.
TEST(PixelSums, AddsUpAllPixels) {
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  for (const char* text : {"mb3ic8ih5iw7oc24kh1 dtype=bf16", "mb2ic8ih9oc13kh1 dtype=f16", "mb2ic8ih9oc12kh1",
                           "mb1ic8ih1oc2000kh1 dtype=bf16:bf16:bf16:f32"}) {
    const ConvProblem problem = parse_problem(text + std::string(" layout=nhwc dir=bwd_w"));
    const std::int64_t pixels = problem.n * problem.p() * problem.q();
    std::vector<float> numbers(static_cast<std::size_t>(pixels * problem.k)), expected(problem.k),
        sums(problem.k);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<float>(static_cast<int>(i * 7 % 5) - 2);
      expected[i % expected.size()] += numbers[i];
    }
    const DType type = problem.dtype.y, sum_type = problem.dtype.bias;
    std::vector<unsigned char> bytes(numbers.size() * static_cast<std::size_t>(size_of(type)));
    store_all(type, numbers.data(), std::ssize(numbers), bytes.data());
    for (const char* mode : {"late watch", "shuffled watch nan seed=1"}) {
      host_gpu_tests::set_mode(host_gpu_tests::device_words() + mode);
      const cuda::PixelSums step(gpu.info(), cuda::sums_of_dy(problem), pixels);
      const auto from = gpu.allocate(bytes.size()), workspace = gpu.allocate(step.workspace_bytes());
      std::vector<unsigned char> result(sums.size() * static_cast<std::size_t>(size_of(sum_type)));
      const auto to = gpu.allocate(result.size());
      gpu.upload(from.get(), bytes.data(), bytes.size());
      step.run(from.get(), workspace.get(), to.get(), nullptr);
      gpu.synchronize(nullptr);
      gpu.download(result.data(), to.get(), result.size());
      for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i] = load(sum_type, result.data(), static_cast<std::int64_t>(i));
      EXPECT_EQ(sums, expected) << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, HostKernel, testing::ValuesIn(own_algorithms()),
                         [](const auto& info) { return std::string(info.param->name()); });

}  // namespace
}  // namespace convtune::kernels_test

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  convtune::host_gpu_tests::use_stand_ins();
  return RUN_ALL_TESTS();
}
