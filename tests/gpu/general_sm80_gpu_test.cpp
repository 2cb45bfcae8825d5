// The kernel that takes everything, on a GPU: what only it takes, or takes in every form. (What it shares
// with others is in kernel_gpu_test.cpp.)
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpu/reference/oracle.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/device/driver.h"
#include "kernel_problems.h"
#include "measure/testbed.h"
#include "problem/element.h"
#include "problem/random_problem.h"

namespace convtune::general_sm80_gpu_test {
namespace {

class GeneralSm80 : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no NVIDIA GPU: " << cuda::describe_driver();
  }
  Backend& gpu() { return cuda::backend({Device::Kind::cuda, 0}); }
  std::unique_ptr<Executable> built(const ConvProblem& problem, const Config& config) {
    return cuda::general_sm80().build(problem, gpu().info(), config);
  }
  std::vector<Config> configs(const ConvProblem& problem) {
    return cuda::general_sm80().candidates(problem, gpu().info());
  }
};

TEST_F(GeneralSm80, IsRightOnProblemsOfAnyKind) {
  for (std::uint64_t i = 0; i < 600; ++i) {
    const ConvProblem problem = random_problem_of_any_kind(3, i);
    if (problem.n == 0) continue;
    const std::vector<Config> all = configs(problem);
    for (const TestData data : {TestData::integer, TestData::real}) {
      Testbed bed(problem, gpu(), data, i, 2000);
      const Config& config = all[i % all.size()];
      EXPECT_EQ(bed.check(*built(problem, config)).failure, "")
          << to_string(problem) << " with " << to_string(config);
    }
  }
}

// A problem's tensors on the host, as floats: small integers.
struct Values {
  explicit Values(const ConvProblem& a)
      : x(drawn(a.input_elements(), 1)),
        w(drawn(a.weight_elements(), 2)),
        dy(drawn(a.output_elements(), 3)),
        bias(drawn(a.k, 4)),
        residual(drawn(a.output_elements(), 5)) {}
  static std::vector<float> drawn(std::int64_t count, std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(static_cast<int>(random_bits(seed, i) % 7) - 3);
    return values;
  }
  std::vector<float> x, w, dy, bias, residual;
};

// The first difference of a result, `shift` elements off every alignment, from the oracle.
std::string difference(Backend& gpu, const Executable& executable, const ConvProblem& a, const Values& t,
                       std::size_t shift) {
  struct OnDevice {
    std::shared_ptr<void> memory;
    unsigned char* at = nullptr;
  };
  const auto to_device = [&](DType type, const std::vector<float>& values) {
    const std::vector<unsigned char> bytes = to_bytes(type, values);
    const std::size_t before = shift * static_cast<std::size_t>(size_of(type));
    OnDevice tensor{gpu.allocate(bytes.size() + before)};
    tensor.at = static_cast<unsigned char*>(tensor.memory.get()) + before;
    gpu.upload(tensor.at, bytes.data(), bytes.size());
    return tensor;
  };
  const cpu::ResultShape shape = cpu::result_of(a);
  const auto nothing = [](std::int64_t count) {
    return std::vector<float>(static_cast<std::size_t>(count), -30000.0f);
  };
  const OnDevice x = to_device(a.dtype.x, t.x), w = to_device(a.dtype.w, t.w),
                 dy = to_device(a.dtype.y, t.dy), bias = to_device(a.dtype.bias, t.bias),
                 residual = to_device(a.dtype.y, t.residual),
                 to = to_device(shape.type, nothing(shape.elements)),
                 dbias = to_device(shape.bias_type, nothing(shape.bias_elements));
  const auto packed = gpu.allocate(executable.packed_bytes());
  if (a.direction != Direction::backward_weights)
    executable.pack(w.at, a.bias ? bias.at : nullptr, packed.get(), nullptr);
  const bool forward = a.direction == Direction::forward, data = a.direction == Direction::backward_data;
  executable.run({.x = x.at,
                  .residual = a.residual ? residual.at : nullptr,
                  .dy = dy.at,
                  .y = forward ? to.at : nullptr,
                  .dx = data ? to.at : nullptr,
                  .dw = forward || data ? nullptr : to.at,
                  .dbias = shape.bias_elements > 0 ? dbias.at : nullptr},
                 packed.get(), nullptr);
  gpu.synchronize(nullptr);
  std::vector<unsigned char> result(static_cast<std::size_t>(shape.elements * size_of(shape.type))),
      bias_result(static_cast<std::size_t>(shape.bias_elements * size_of(shape.bias_type)));
  gpu.download(result.data(), to.at, result.size());
  if (!bias_result.empty()) gpu.download(bias_result.data(), dbias.at, bias_result.size());
  const cpu::HostValues values{t.x.data(), t.w.data(), t.bias.data(), t.residual.data(), t.dy.data()};
  for (std::int64_t i = 0; i < shape.elements + shape.bias_elements; ++i) {
    const bool of_bias = i >= shape.elements;
    const DType type = of_bias ? shape.bias_type : shape.type;
    const float got =
        of_bias ? load(type, bias_result.data(), i - shape.elements) : load(type, result.data(), i);
    const double want = rounded(type, cpu::oracle(a, values, i).value);
    if (std::isnan(want) ? !std::isnan(got) : want != got)
      return cpu::name_of_element(a, i) + " is " + std::to_string(got) + ", not " + std::to_string(want);
  }
  return {};
}

const char* const kProblems[] = {
    "mb2ic5id6ih9iw8oc7kd3kh3kw2sd2pd1ph1 act=relu",
    "mb1ic6id4ih5iw7oc4kd2kh3kw3dd1pw1 layout=nhwc residual=1 dtype=bf16:f32:f16:f32",
    "mb2ic6iw11oc9kw3pw1 dtype=f16 rounding=eager residual=1",
    "mb2ic6ih9iw11oc9kh3sh2ph1 dir=bwd_d",
    "mb2g3ic6id4ih7iw6oc9kd2kh3kw2pd1ph1 dir=bwd_d layout=nhwc dtype=bf16",
    "mb2ic6ih9iw11oc9kh3sh2ph1 dir=bwd_w dtype=f16",
    "mb2g4ic8id4ih7iw6oc8kd2kh3kw2pd1ph1 dir=bwd_w layout=nhwc bias=0",
    "g20mb3ic20ih16iw11oc20kh3ph1 dir=bwd_w layout=nhwc dtype=bf16:bf16:bf16:f32",
};

TEST_F(GeneralSm80, SpreadsNanAndInfinityNoFurtherThanTheSumsReach) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const char* text : kProblems) {
    const ConvProblem problem = tf32(text);
    for (const Config& config : configs(problem))
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf})
        for (std::vector<float> Values::*const tensor :
             {&Values::x, &Values::w, &Values::dy, &Values::bias}) {
          Values values(problem);
          std::vector<float>& spoilt = values.*tensor;
          spoilt[spoilt.size() / 3] = bad;
          spoilt.back() = bad;
          EXPECT_EQ(difference(gpu(), *built(problem, config), problem, values, 0), "")
              << text << ", " << bad;
        }
  }
}

TEST_F(GeneralSm80, TakesBadlyAlignedPointers) {
  for (const char* text : kProblems)
    for (const std::size_t shift : {1, 3}) {
      const ConvProblem problem = tf32(text);
      EXPECT_EQ(difference(gpu(), *built(problem, configs(problem).front()), problem, Values(problem), shift),
                "")
          << text << ", " << shift << " off";
    }
}

// Offsets and counts must have 64 bits.
TEST_F(GeneralSm80, CountsMoreThanAnIntCan) {
  if (gpu().info().memory_bytes < std::int64_t{20} << 30) GTEST_SKIP() << "it needs 10 GB";
  for (const char* text :
       {"mb1ic1ih1iw2200000000oc1kh1kw3 dtype=f16", "mb3ic1ih1iw1500000oc500kh1kw1 dtype=bf16"}) {
    const ConvProblem problem = tf32(text);
    Testbed bed(problem, gpu(), TestData::integer, 5, 1000);
    EXPECT_EQ(bed.check(*built(problem, configs(problem).front())).failure, "") << text;
  }
}

}  // namespace
}  // namespace convtune::general_sm80_gpu_test
