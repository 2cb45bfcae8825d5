// The judge is judged: executables that are wrong in every way must be caught.
#include "measure/testbed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "counted_memory.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/reference/oracle.h"
#include "cpu/reference/reference.h"
#include "problem/element.h"

namespace convtune::testbed_test {
namespace {

const ConvProblem kProblem = parse_problem("mb2ic3ih10oc5kh3ph1 precision=fp32");

// The reference's answer, then a vandal's hand on it.
class Vandal final : public Executable {
 public:
  using Deed = std::function<void(const float* x, float* packed, float* y)>;
  explicit Vandal(Deed deed, const ConvProblem& problem = kProblem)
      : honest_(cpu::reference().build(problem, cpu::backend().info(), {})), deed_(std::move(deed)) {}
  std::size_t packed_bytes() const override { return honest_->packed_bytes(); }
  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    honest_->pack(w, bias, packed, stream);
  }
  void run(const Tensors& tensors, const void* packed, Stream stream) const override {
    honest_->run(tensors, packed, stream);
    deed_(static_cast<const float*>(tensors.x), static_cast<float*>(const_cast<void*>(packed)),
          static_cast<float*>(tensors.y));
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
  EXPECT_EQ(caught(TestData::non_finite, nothing), "");
  EXPECT_EQ(caught(TestData::denormal, nothing), "");
}

// Rounded eagerly: the last place of a half that is made of a denormal sum is a sigmoid's to lose, and no
// more.
TEST(Testbed, LetsASigmoidOfNothingBeOffByItsLastPlace) {
  const ConvProblem problem = parse_problem(to_string(kProblem) + " act=sigmoid rounding=eager");
  const auto fails_by = [&](const auto& change) {
    int failures = 0;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const auto deed = [&](const float*, float*, float* y) {
        std::for_each_n(y, problem.output_elements(), [&](float& value) { value = change(value); });
      };
      failures += !Testbed(problem, cpu::backend(), TestData::denormal, seed, 0)
                       .check(Vandal(deed, problem))
                       .failure.empty();
    }
    return failures;
  };
  EXPECT_EQ(fails_by([](float v) { return std::nextafter(v, 1.0F); }), 0);
  EXPECT_EQ(fails_by([](float v) { return v + 0x1p-20F; }), 10);
}

TEST(Testbed, CatchesWhatIsMadeOfSpecialNumbers) {
  const auto each = [](auto change) {
    return [change](const float*, float*, float* y) {
      std::for_each_n(y, kProblem.output_elements(), [&](float& value) { value = change(value); });
    };
  };
  const auto is_nan = [](float v) { return std::isnan(v); };
  const auto times_caught = [](TestData data, const Vandal::Deed& deed) {
    int times = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed)
      times += !Testbed(kProblem, cpu::backend(), data, seed, 0).check(Vandal(deed)).failure.empty();
    return times;
  };
  // As max(NaN, 0) does; an infinity of the other sign; NaN for an infinity, as of infinity times padding.
  EXPECT_GT(times_caught(TestData::non_finite, each([&](float v) { return is_nan(v) ? 0 : v; })), 10);
  EXPECT_GT(times_caught(TestData::non_finite, each([&](float v) { return std::isinf(v) ? -v : v; })), 10);
  EXPECT_GT(times_caught(TestData::non_finite, each([&](float v) { return std::isinf(v) ? v - v : v; })), 10);
  EXPECT_EQ(times_caught(TestData::denormal, each([](float v) { return std::abs(v) < 0x1p-126F ? 0 : v; })),
            20);
}

TEST(TestTensors, HaveSpecialNumbersWithinOrdinaryOnes) {
  std::map<std::string, int> kinds;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const ConvProblem problem = parse_problem("mb2ic3ih10oc5kh3ph1 residual=1");
    const TestTensors tensors = test_tensors(problem, TestData::non_finite, seed);
    std::int64_t special = 0;
    const std::pair<const char*, const std::vector<float>*> named[] = {
        {"x", &tensors.x}, {"w", &tensors.w}, {"bias", &tensors.bias}, {"residual", &tensors.residual}};
    for (const auto& [name, values] : named)
      for (const float value : *values)
        if (!std::isfinite(value)) {
          ++special, ++kinds[name];
          ++kinds[std::isnan(value) ? "NaN" : value > 0 ? "inf" : "-inf"];
        }
    EXPECT_GE(special, 1);
    EXPECT_LE(special, 12);
    EXPECT_EQ(test_tensors(problem, TestData::non_finite, seed).w.size(), tensors.w.size());
  }
  for (const char* kind : {"x", "w", "bias", "residual", "NaN", "inf", "-inf"})
    EXPECT_GT(kinds[kind], 20) << kind;
}

TEST(TestTensors, AreDenormalInEveryType) {
  for (const char* dtype : {"f32", "f16", "bf16"})
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const ConvProblem problem = parse_problem(std::string("mb2ic3ih10oc5kh3ph1 dtype=") + dtype);
      const TestTensors tensors = test_tensors(problem, TestData::denormal, seed);
      const float least_normal = problem.dtype.x == DType::f16 ? 0x1p-14F : 0x1p-126F;
      const auto denormal = [&](const std::vector<float>& values) {
        return std::ranges::all_of(values, [&](float v) { return std::abs(v) < least_normal; }) &&
               std::ranges::any_of(values, [](float v) { return v != 0; });
      };
      EXPECT_NE(denormal(tensors.x), denormal(tensors.w)) << dtype;
    }
}

TEST(Testbed, TheOracleComputesAsManyElementsAsItHasTimeFor) {
  EXPECT_EQ(affordable_samples(kProblem, 2048), 2048);
  EXPECT_EQ(affordable_samples(parse_problem("mb1ic1024id3ih90iw162oc1024kd3kh3kw3"), 2048), 2048);
  const auto video = parse_problem("mb1ic256id17ih544iw960oc128kd3kh3kw3 dir=bwd_w");  // 9 million terms
  EXPECT_EQ(affordable_samples(video, 2048), 64);
  EXPECT_EQ(affordable_samples(video, 16), 16);
  const Testbed bed(kProblem, cpu::backend(), TestData::real, 1, 100);
  EXPECT_EQ(bed.samples(), 100);
  EXPECT_EQ(bed.elements(), kProblem.output_elements());
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

// A sequence of two kernels, which stores the sum in bf16 between them, and says so or not.
class Sequence final : public Executable {
 public:
  Sequence(const ConvProblem& problem, bool says_so)
      : problem_(problem),
        honest_(cpu::reference().build(problem, cpu::backend().info(), {})),
        says_so_(says_so) {}
  std::size_t packed_bytes() const override { return honest_->packed_bytes(); }
  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    honest_->pack(w, bias, packed, stream);
  }
  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const std::vector<float> x = to_floats(problem_.dtype.x, tensors.x, problem_.input_elements());
    const auto* const w = static_cast<const float*>(packed);
    const cpu::HostValues values{.x = x.data(), .w = w, .bias = w + problem_.weight_elements()};
    for (std::int64_t i = 0; i < problem_.output_elements(); ++i)
      store(problem_.dtype.y, tensors.y, i, cpu::oracle(problem_, values, i).of_rounded_sum);
  }
  bool rounds_sum() const override { return says_so_; }

 private:
  ConvProblem problem_;
  std::unique_ptr<Executable> honest_;
  bool says_so_;
};

TEST(Testbed, AllowsForARoundedSumWhereAnExecutableSaysSo) {
  const ConvProblem problem = parse_problem("mb1ic200ih8oc5kh3ph1 dtype=bf16 precision=bf16 act=relu");
  for (const TestData data : {TestData::integer, TestData::real}) {
    Testbed bed(problem, cpu::backend(), data, 1, 0);
    EXPECT_EQ(bed.check(Sequence(problem, true)).failure, "");
    const auto reference = cpu::reference().build(problem, cpu::backend().info(), {});
    EXPECT_EQ(bed.check(*reference).failure, "");
    if (data == TestData::integer) {
      EXPECT_NE(bed.check(Sequence(problem, false)).failure, "");
    }
  }
}

TEST(Testbed, ErrorLimitsGrowWithRoughnessAndLength) {
  const auto limit = [](const char* text) { return error_limit(parse_problem(text)); };
  EXPECT_LT(limit("ic3ih8oc4kh3 precision=fp32"), 1e-5);
  EXPECT_LT(limit("ic3ih8oc4kh3 precision=fp32"), limit("ic512ih8oc4kh3 precision=fp32"));
  EXPECT_LT(limit("ic3ih8oc4kh3 precision=fp32"), limit("ic3ih8oc4kh3 precision=tf32"));
  EXPECT_LT(limit("ic3ih8oc4kh3 precision=tf32"), limit("ic3ih8oc4kh3 precision=bf16"));
  // Half-precision operands lose nothing in products of their own precision, nor in wider ones.
  EXPECT_EQ(limit("ic3ih8oc4kh3 dtype=bf16 precision=bf16"), limit("ic3ih8oc4kh3 precision=fp32"));
  EXPECT_EQ(limit("ic3ih8oc4kh3 dtype=f16 precision=tf32"), limit("ic3ih8oc4kh3 precision=fp32"));
  EXPECT_LT(limit("ic3ih8oc4kh3 dtype=bf16 precision=bf16"), limit("ic3ih8oc4kh3 dtype=bf16 precision=fp16"));
}

// A set has 42 MB: a cache of 480 MiB would have all eight of them.
TEST(Testbed, RotatedSetsAreFewBesideALargeCacheOrWhereMemoryIsShort) {
  constexpr std::int64_t kServerCache = std::int64_t{480} << 20;
  const ConvProblem large = parse_problem("mb5ic64ih128oc64kh1");
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

// A layer finds in the caches what the one before left there: 7 MB fit half of a cache of 32 MiB, and a
// server's whole cache is not one program's.
TEST(Testbed, TensorsThatTheCachesKeepStayThere) {
  const auto sets = [](const char* text, std::int64_t cache, TimedFrom from = TimedFrom::caches) {
    const ConvProblem problem = parse_problem(text);
    CountedMemory memory(cache, std::size_t{1} << 32);
    const Testbed bed(problem, memory, TestData::real, 1, 1, from);
    return memory.peak() / static_cast<std::size_t>(problem.bytes());
  };
  constexpr std::int64_t kMiB = 1 << 20;
  EXPECT_EQ(sets("mb1ic64ih120oc64kh1", 32 * kMiB), 1);
  EXPECT_EQ(sets("mb1ic64ih120oc64kh1", 8 * kMiB), 3);
  EXPECT_GT(sets("mb1ic64ih120oc64kh1", 32 * kMiB, TimedFrom::memory), 5);
  EXPECT_GT(sets("mb3ic64ih120oc64kh1", 480 * kMiB), 5);
}

TEST(Testbed, HasTensorsBeginBehindALine) {
  Testbed bed(kProblem, cpu::backend(), TestData::real, 1, 0);
  for (const std::uintptr_t behind : {16, 32, 0}) {
    bed.begin_tensors(behind);
    std::uintptr_t x_at = 0, y_at = 0;
    const Vandal honest([&](const float* x, float*, float* y) {
      x_at = reinterpret_cast<std::uintptr_t>(x), y_at = reinterpret_cast<std::uintptr_t>(y);
    });
    EXPECT_EQ(bed.check(honest).failure, "");
    EXPECT_EQ(x_at % 64, behind);
    EXPECT_EQ(y_at % 64, behind);
  }
  EXPECT_EQ(bed.check(Vandal([](const float*, float*, float* y) { y[-1] = 0; })).failure,
            "it wrote outside the output");
}

TEST(Testbed, TimesPositively) {
  Testbed bed(kProblem, cpu::backend(), TestData::real, 1, 16);
  const auto executable = cpu::reference().build(kProblem, cpu::backend().info(), {});
  Testbed::Timed timed = bed.prepare(*executable);
  EXPECT_GT(timed.sample_us(), 0);
}

}  // namespace
}  // namespace convtune::testbed_test
