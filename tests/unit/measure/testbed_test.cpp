// The judge is judged: executables that are wrong in every way must be caught.
#include "measure/testbed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "counted_memory.h"
#include "cpu/cpu.h"

namespace convtune {
namespace {

const Conv2dProblem kProblem = parse_problem("mb2ic3ih10oc5kh3ph1");

// The reference's answer, then a vandal's hand on it.
class Vandal final : public Executable {
 public:
  using Deed = std::function<void(const float* x, float* packed, float* y)>;
  explicit Vandal(Deed deed)
      : honest_(cpu::reference().build(kProblem, cpu::backend().info(), {})), deed_(std::move(deed)) {}
  std::size_t packed_bytes() const override { return honest_->packed_bytes(); }
  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    honest_->pack(w, bias, packed, stream);
  }
  void run(const void* x, const void* packed, void* y, Stream stream) const override {
    honest_->run(x, packed, y, stream);
    deed_(static_cast<const float*>(x), static_cast<float*>(const_cast<void*>(packed)),
          static_cast<float*>(y));
  }

 private:
  std::unique_ptr<Executable> honest_;
  Deed deed_;
};

std::string caught(TestData data, Vandal::Deed deed) {
  Testbed bed(kProblem, cpu::backend(), data, 1, 0);
  return bed.check(Vandal(std::move(deed))).failure;
}

TEST(Testbed, ARightAnswerPasses) {
  const auto nothing = [](const float*, float*, float*) {};
  EXPECT_EQ(caught(TestData::integer, nothing), "");
  EXPECT_EQ(caught(TestData::real, nothing), "");
}

TEST(Testbed, CatchesOneWrongElement) {
  const std::string failure = caught(TestData::integer, [](const float*, float*, float* y) { y[123] += 1; });
  EXPECT_NE(failure.find("y[n=0, k=1, p=2, q=3]"), std::string::npos) << failure;
  EXPECT_NE(caught(TestData::real, [](const float*, float*, float* y) { y[123] += 1e-3f; }), "");
}

TEST(Testbed, CatchesAnElementLeftUnwritten) {
  // The poison is NaN: whoever leaves it there is wrong, even after a right run before.
  EXPECT_NE(caught(TestData::real,
                   [](const float*, float*, float* y) {
                     const std::uint32_t bits = 0x7fc00000;
                     std::memcpy(y + 7, &bits, sizeof bits);
                   }),
            "");
}

TEST(Testbed, CatchesWritesOutsideEveryBuffer) {
  const std::int64_t outputs = kProblem.output_elements(), inputs = kProblem.input_elements();
  EXPECT_EQ(caught(TestData::real, [&](const float*, float*, float* y) { y[-1] = 0; }),
            "it wrote outside the output");
  EXPECT_EQ(caught(TestData::real, [&](const float*, float*, float* y) { y[outputs] = 0; }),
            "it wrote outside the output");
  EXPECT_EQ(caught(TestData::real, [&](const float*, float*, float* y) { y[outputs + 1000] = 0; }),
            "it wrote outside the output");
  EXPECT_EQ(
      caught(TestData::real, [&](const float* x, float*, float*) { const_cast<float*>(x)[inputs] = 0; }),
      "it wrote outside the input");
  EXPECT_EQ(caught(TestData::real, [&](const float*, float* packed, float*) { packed[-2] = 0; }),
            "it wrote outside the packed weights");
}

TEST(Testbed, ErrorLimitsGrowWithRoughnessAndLength) {
  EXPECT_LT(error_limit(Precision::fp32, 27), 1e-5);
  EXPECT_LT(error_limit(Precision::fp32, 27), error_limit(Precision::fp32, 4608));
  EXPECT_LT(error_limit(Precision::fp32, 27), error_limit(Precision::tf32, 27));
  EXPECT_LT(error_limit(Precision::tf32, 27), error_limit(Precision::bf16, 27));
}

// Of 42 MB a set: a cache of 480 MiB would have all eight of them.
TEST(Testbed, RotatedSetsAreFewBesideALargeCacheOrWhereMemoryIsShort) {
  constexpr std::int64_t kServerCache = std::int64_t{480} << 20;
  const Conv2dProblem large = parse_problem("mb5ic64ih128oc64kh1");
  const auto peak = [&](std::size_t most) {
    CountedMemory memory(kServerCache, most);
    const Testbed bed(large, memory, TestData::real, 1, 1);
    return memory.peak();
  };
  const std::size_t all = std::size_t{1} << 32, set = static_cast<std::size_t>(large.bytes());
  EXPECT_LE(peak(all), std::size_t{256} << 20);
  EXPECT_GE(peak(all), 5 * set);
  EXPECT_LE(peak(2 * set + set / 2), 2 * set + set / 4);
  EXPECT_THROW(peak(set / 2), Error);
}

TEST(Testbed, TimesPositively) {
  Testbed bed(kProblem, cpu::backend(), TestData::real, 1, 16);
  const auto executable = cpu::reference().build(kProblem, cpu::backend().info(), {});
  Testbed::Timed timed = bed.prepare(*executable);
  EXPECT_GT(timed.sample_us(), 0);
}

}  // namespace
}  // namespace convtune
