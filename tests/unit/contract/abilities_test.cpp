#include "contract/abilities.h"

#include <gtest/gtest.h>

#include "problem/activation.h"
#include "problem/random_problem.h"

namespace convtune::abilities_test {
namespace {

std::string refused(const Abilities& abilities, const std::string& words) {
  const bool depth = words.find("id") == 0;
  const Support support = within(abilities, parse_problem((depth ? "mb1ic4oc4" : "mb1ic4ih9oc4kh3") + words));
  return support ? "accepted" : support.reason();
}

TEST(Abilities, AsTheyStandAreForward2dOfF32) {
  const Abilities standard;
  EXPECT_EQ(refused(standard, ""), "accepted");
  EXPECT_EQ(refused(standard, " act=relu bias=0 layout=nhwc precision=tf32"), "accepted");
  EXPECT_EQ(refused(standard, " dtype=bf16"), "it is for f32 tensors only, and these are bf16");
  EXPECT_EQ(refused(standard, " dtype=f32:f32:f32:f16"),
            "it is for f32 tensors only, and these are f32:f32:f32:f16");
  EXPECT_EQ(refused(standard, " dir=bwd_d"), "it computes forward only, not bwd_d");
  EXPECT_EQ(refused(standard, " dir=bwd_w"), "it computes forward only, not bwd_w");
  EXPECT_EQ(refused(standard, "id9ih9iw9kd3kh3kw3"), "it has no third dimension");
  EXPECT_EQ(refused(standard, "id1ih9iw9kd1kh3kw3"), "accepted");
  EXPECT_EQ(refused(standard, " act=silu"), "its activations are none, relu, not silu");
  EXPECT_EQ(refused(standard, " residual=1"), "it adds no residual");
  EXPECT_EQ(refused(standard, " snake=after"), "it has no snake behind its sums");
  EXPECT_EQ(refused({.snake = true}, " snake=beside"), "accepted");
}

TEST(Abilities, TypesMayBeSeveralAlikeOrMixed) {
  Abilities halves{.types = {DType::f16, DType::bf16}};
  EXPECT_EQ(refused(halves, " dtype=f16"), "accepted");
  EXPECT_EQ(refused(halves, ""), "it is for f16, bf16 tensors only, and these are f32");
  EXPECT_EQ(refused(halves, " dtype=f16:bf16:f16"),
            "it is for tensors of one type, and these are f16:bf16:f16");
  halves.mixed_types = true;
  EXPECT_EQ(refused(halves, " dtype=f16:bf16:f16"), "accepted");
  EXPECT_EQ(refused(halves, " dtype=bf16:bf16:f32"),
            "it is for f16, bf16 tensors only, and these are bf16:bf16:f32");
}

TEST(Abilities, BiasesMayBeOfF32BesideAnyType) {
  Abilities halves{.types = {DType::f16, DType::bf16}, .f32_bias = true};
  EXPECT_EQ(refused(halves, " dtype=bf16:bf16:bf16:f32"), "accepted");
  EXPECT_EQ(refused(halves, " dtype=bf16"), "accepted");
  EXPECT_EQ(refused(halves, " dtype=bf16:bf16:bf16:f16"),
            "it is for tensors of one type, and these are bf16:bf16:bf16:f16");
  EXPECT_EQ(refused(halves, " dtype=bf16:bf16:f32:f32"),
            "it is for f16, bf16 tensors only, and these are bf16:bf16:f32:f32");
}

// An output of f32 is rounded to nothing in between: eager or not is the same.
TEST(Abilities, EagerRoundingCountsWhereItMakesADifference) {
  Abilities any{.types = {DType::f32, DType::bf16}, .mixed_types = true};
  EXPECT_EQ(refused(any, " rounding=eager"), "accepted");
  EXPECT_EQ(refused(any, " dtype=bf16:bf16:f32 rounding=eager"), "accepted");
  EXPECT_EQ(refused(any, " dtype=bf16 rounding=eager"), "it rounds once, not eagerly");
  any.eager_rounding = true;
  EXPECT_EQ(refused(any, " dtype=bf16 rounding=eager"), "accepted");
}

TEST(Abilities, AllOfThemTakeEverything) {
  Abilities all{.types = {DType::f32, DType::f16, DType::bf16},
                .mixed_types = true,
                .activations = all_activations(),
                .residual = true,
                .eager_rounding = true,
                .depth = true,
                .cache = true,
                .directions = {Direction::forward, Direction::backward_data, Direction::backward_weights}};
  int refused_by_default = 0;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const ConvProblem problem = random_problem_of_any_kind(23, index);
    const Support support = within(all, problem);
    EXPECT_TRUE(support) << to_string(problem) << ": " << (support ? "" : support.reason());
    if (!within({}, problem)) ++refused_by_default;
    EXPECT_TRUE(within({}, random_problem(23, index)));
  }
  EXPECT_GT(refused_by_default, 500);
}

}  // namespace
}  // namespace convtune::abilities_test
