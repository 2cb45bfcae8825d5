// Forward parts of backward data, computed by the oracle and laid out in dx, against the oracle's gradient.
#include "problem/forward_parts.h"

#include <gtest/gtest.h>

#include <random>

#include "cpu/reference/oracle.h"
#include "problem/random_problem.h"

namespace convtune::forward_parts_test {
namespace {

using std::int64_t;

std::vector<float> integers(int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 7) - 3);
  return values;
}

std::vector<float> gathered(const Gathering& what, const std::vector<float>& from) {
  std::vector<float> values(static_cast<std::size_t>(what.elements()));
  for (std::size_t i = 0; i < values.size(); ++i)
    if (const int64_t source = what.source_of(static_cast<int64_t>(i)); source >= 0)
      values[i] = from.at(static_cast<std::size_t>(source));
  return values;
}

struct Index {
  int64_t n, k, z, p, q;
};
int64_t offset_of(Layout layout, const Index& at, int64_t k, int64_t z, int64_t p, int64_t q) {
  return layout == Layout::nchw ? (((at.n * k + at.k) * z + at.z) * p + at.p) * q + at.q
                                : (((at.n * z + at.z) * p + at.p) * q + at.q) * k + at.k;
}

// Element of dx by element of the part's output, or -1.
int64_t place_of(const ConvProblem& a, const ForwardPart& part, const Index& at) {
  const int64_t channels = a.c / a.groups, of_group = channels * part.residues();
  const int64_t rest = at.k % of_group, residue = rest / channels;
  const auto along = [](const PartAxis& axis, int64_t position, int64_t r) {
    const int64_t x = (position + axis.late(r)) * axis.stride + r * axis.step - axis.crop;
    return x >= 0 && x < axis.extent ? x : -1;
  };
  const int64_t w = along(part.width, at.q, residue % part.width.residues);
  const int64_t h = along(part.height, at.p, residue / part.width.residues % part.height.residues);
  const int64_t d = along(part.depth, at.z, residue / part.width.residues / part.height.residues);
  if (w < 0 || h < 0 || d < 0) return -1;
  return offset_of(a.layout, {at.n, at.k / of_group * channels + rest % channels, d, h, w}, a.c, a.d, a.h,
                   a.w);
}

// The problem with positions enough for residues that begin late, and that of an output in it.
ConvProblem widened(const ForwardPart& part) {
  ConvProblem wide = part.problem;
  wide.pad_bottom += part.height.late(0), wide.pad_right += part.width.late(0);
  return wide;
}
Index computed_at(const ConvProblem& a, const ForwardPart& part, Index at) {
  const int64_t channels = a.c / a.groups, residue = at.k % (channels * part.residues()) / channels;
  at.p += part.height.late(residue / part.width.residues % part.height.residues);
  at.q += part.width.late(residue % part.width.residues);
  return at;
}

// How many parts there are; each element must be written once, and as the oracle has it.
std::size_t expect_right(const ConvProblem& a, Cut cut = {},
                         std::vector<ForwardPart> (*cut_up)(const ConvProblem&, Cut) = forward_parts) {
  const std::vector<float> dy = integers(a.output_elements(), 1), w = integers(a.weight_elements(), 2),
                           bias = integers(a.c, 3), residual(static_cast<std::size_t>(a.input_elements()));
  const std::vector<ForwardPart> parts = cut_up(a, cut);
  std::vector<int> written(static_cast<std::size_t>(a.input_elements()), parts.empty() ? 1 : 0);
  for (const ForwardPart& part : parts) {
    const ConvProblem &f = part.problem, wide = widened(part);
    validate(f);
    EXPECT_EQ(f.input_elements(), a.output_elements());
    const std::vector<float> weights = gathered(part.weights, w), biases = gathered(part.bias, bias);
    EXPECT_EQ(std::ssize(weights), f.weight_elements());
    EXPECT_EQ(std::ssize(biases), f.k);
    const std::vector<float> zeros(static_cast<std::size_t>(wide.output_elements()));
    for (Index at{}; at.n < a.n; ++at.n)
      for (at.k = 0; at.k < f.k; ++at.k)
        for (at.z = 0; at.z < f.z(); ++at.z)
          for (at.p = 0; at.p < f.p(); ++at.p)
            for (at.q = 0; at.q < f.q(); ++at.q) {
              const int64_t from = offset_of(a.layout, at, f.k, f.z(), f.p(), f.q()),
                            to = place_of(a, part, at);
              if (part.is_whole()) {
                EXPECT_EQ(from, to);
              }
              if (to < 0) continue;
              ++written.at(static_cast<std::size_t>(to));
              const int64_t computed =
                  offset_of(a.layout, computed_at(a, part, at), f.k, wide.z(), wide.p(), wide.q());
              const double got =
                  cpu::oracle(wide, {dy.data(), weights.data(), biases.data(), zeros.data()}, computed).value;
              const double want =
                  cpu::oracle(a, {nullptr, w.data(), bias.data(), residual.data(), dy.data()}, to).value;
              if (got != want) {
                ADD_FAILURE() << to_string(a) << " at " << to << ": " << got << ", not " << want;
                return parts.size();
              }
            }
  }
  const auto met = met_residues(a);
  const auto is_met = [&](std::size_t axis, int64_t x, int64_t stride) {
    return met[axis] >> x % stride & 1;
  };
  for (int64_t i = 0; i < a.input_elements() && !parts.empty(); ++i) {
    const int64_t pixel = a.layout == Layout::nhwc ? i / a.c : i % (a.d * a.h * a.w);
    const bool is_bare = cut.bare && !(is_met(0, pixel / (a.h * a.w) % a.d + a.pad_front, a.stride_d) &&
                                       is_met(1, pixel / a.w % a.h + a.pad_top, a.stride_h) &&
                                       is_met(2, pixel % a.w + a.pad_left, a.stride_w));
    EXPECT_EQ(written[static_cast<std::size_t>(i)], is_bare ? 0 : 1) << to_string(a) << " at " << i;
    EXPECT_TRUE(!is_bare || has_bare_residues(a));
  }
  return parts.size();
}

TEST(ForwardParts, TogetherAreTheGradient) {
  int counts[9] = {};
  for (std::uint64_t i = 0; i < 4000; ++i) {
    ConvProblem a = random_problem_of_any_kind(29, i, 2e3);
    if (a.direction == Direction::backward_weights) continue;
    if (a.residual || a.dtype != DTypes(DType::f32)) continue;
    a.direction = Direction::backward_data, a.cache = 0;
    ++counts[expect_right(a)];
    EXPECT_LE(expect_right(a, {.joined = true}), a.groups == 1 ? 2u : 8u) << "rows and columns are one part";
    EXPECT_GE(expect_right(a, {.bare = true}), 1u);
    EXPECT_GE(expect_right(a, {.joined = true, .bare = true}), 1u);
    EXPECT_GE(expect_right(a, {.joined = true, .bare = true, .late = true}), 1u);
    EXPECT_GE(expect_right(a, {.bare = true}, tight_parts), 1u);
    if (testing::Test::HasFailure()) return;
  }
  for (const int parts : {0, 1, 2, 4}) EXPECT_GE(counts[parts], 20) << parts;
}

TEST(ForwardParts, OfCommonLayersAreOne) {
  const auto part = [](const char* layer) {
    const std::vector<ForwardPart> parts =
        forward_parts(parse_problem(std::string(layer) + " dir=transposed"));
    EXPECT_EQ(parts.size(), 1u) << layer;
    return key(parts.front().problem);
  };
  EXPECT_EQ(part("mb1ic64ih28oc32kh3ph1"), "mb1ic64ih28oc32kh3ph1");
  EXPECT_EQ(part("mb1ic64ih28oc32kh2sh2"), "mb1ic64ih28oc128kh1");
  EXPECT_EQ(part("mb1ic64ih28oc32kh4sh2ph1"), "mb1ic64ih28oc128kh2ph1");
  EXPECT_EQ(part("mb1ic64iw100oc32kw16sw8pw4"), "mb1ic64ih1iw100oc256kh1kw2ph0pw1");
  EXPECT_EQ(forward_parts(parse_problem("mb1ic64ih28oc32oh56kh3sh2ph1 dir=transposed")).size(), 4u);
  const auto joined =
      forward_parts(parse_problem("mb1ic64ih28oc32oh56kh3sh2ph1 dir=transposed"), {.joined = true});
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(key(joined.front().problem), "mb1ic64ih28oc128kh2ph1");
  EXPECT_EQ(joined.front().height.whole, 1) << "of two residues one has both taps";
  const auto tight = forward_parts(parse_problem("mb1ic64ih14oc32kh3sh2ph1 dir=bwd_d"),
                                   {.joined = true, .bare = true, .late = true});
  ASSERT_EQ(tight.size(), 1u);
  EXPECT_EQ(tight.front().problem.p(), 7) << "not 8, of which either residue has 7";
  EXPECT_EQ(tight.front().height.late(0), 1);
  EXPECT_EQ(tight.front().height.late(1), 0);
  EXPECT_TRUE(forward_parts(parse_problem("mb1ic64ih28oc32kh1sh2 dir=bwd_d")).empty());
  EXPECT_TRUE(forward_parts(parse_problem("mb1ic64ih28oc32kh3sh2dh1 dir=bwd_d")).empty());
  EXPECT_TRUE(forward_parts(parse_problem("mb1ic64ih28oc32kh3")).empty());
  const auto dilated =
      forward_parts(parse_problem("mb1ic64ih28oc32kh3sh5dh1 dir=transposed"), {.bare = true});
  ASSERT_EQ(dilated.size(), 1u);
  EXPECT_EQ(key(dilated.front().problem), "mb1ic64ih28oc288kh1") << "three of five residues have a tap each";
}

// Residues with taps of their own have no position more than dx has, however few that saves.
TEST(ForwardParts, OfOneResidueAreTight) {
  const auto parts =
      tight_parts(parse_problem("mb1ic128ih64oc64oh128kh3sh2ph1 dir=transposed"), {.bare = true});
  ASSERT_EQ(parts.size(), 4u);
  for (const ForwardPart& part : parts) EXPECT_EQ(part.problem.p() * part.problem.q(), 64 * 64);
}

}  // namespace
}  // namespace convtune::forward_parts_test
