// The text form of ConvProblem: grammar, defaults, every refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <regex>

#include "convtune/cases.h"
#include "convtune/error.h"
#include "convtune/problem.h"
#include "problem/random_problem.h"

namespace convtune::problem_text_test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

std::string refusal(std::string_view text) {
  try {
    return "accepted as " + to_string(parse_problem(text));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
}

TEST(ParseProblem, ReadsTheExampleOfTheHeader) {
  const ConvProblem problem =
      parse_problem("mb256ic3ih224oc96oh55kh11sh4ph2n\"alexnet_conv1\" precision=tf32 act=relu");
  ConvProblem expected;
  expected.n = 256, expected.c = 3, expected.h = expected.w = 224;
  expected.k = 96, expected.r = expected.s = 11;
  expected.stride_h = expected.stride_w = 4;
  expected.pad_top = expected.pad_left = expected.pad_bottom = expected.pad_right = 2;
  expected.precision = Precision::tf32;
  expected.activation = Activation::relu;
  EXPECT_EQ(problem, expected);
  EXPECT_EQ(problem.name, "alexnet_conv1");
}

TEST(ParseProblem, LeavesOutWhatBenchdnnLeavesOut) {
  const ConvProblem problem = parse_problem("ic3ih5oc4kh3");
  ConvProblem expected;
  expected.n = 2, expected.c = 3, expected.h = expected.w = 5, expected.k = 4, expected.r = expected.s = 3;
  EXPECT_EQ(problem, expected);
  EXPECT_EQ(problem.name, "");
  EXPECT_TRUE(problem.bias);
}

// Covers what benchdnn makes of a line, by hand after its rules.
TEST(ParseProblem, FillsInWhatBenchdnnFillsIn) {
  using Ints = std::vector<std::int64_t>;
  struct Case {
    const char* line;
    Ints image, filter, stride, dilation, before, after, output;  // height and width; dilation from 0
  };
  const Case cases[] = {
      // Heights alone are square, and 0 is as good as not written.
      {"ic3ih9oc4kh3sh2ph1dh1oh4", {9, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, {4, 4}},
      {"ic3ih9iw0oc4ow0kh3kw0sh2ph1", {9, 9}, {3, 3}, {2, 2}, {0, 0}, {1, 1}, {1, 1}, {5, 5}},
      // Widths alone are 1-D.
      {"mb10ic240iw59oc96ow30kw1sw2dw1", {1, 59}, {1, 1}, {1, 2}, {0, 1}, {0, 0}, {0, 0}, {1, 30}},
      {"ic3iw16oc8kw3pw1", {1, 16}, {1, 3}, {1, 1}, {0, 0}, {0, 1}, {0, 1}, {1, 16}},
      {"ic3iw16ow16oc8kw3ph0sh1", {1, 16}, {1, 3}, {1, 1}, {0, 0}, {0, 1}, {0, 1}, {1, 16}},
      // If the width is written, nothing is copied from the height.
      {"mb1ic3ih16iw16oc8kh3kw3sh2", {16, 16}, {3, 3}, {2, 1}, {0, 0}, {0, 0}, {0, 0}, {7, 14}},
      {"mb1_ic1oc1_ih1kh1ph1_iw1kw1", {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 0}, {1, 0}, {3, 1}},
      {"ic3ih9iw9oc4kh3kw3dh1", {9, 9}, {3, 3}, {1, 1}, {1, 0}, {0, 0}, {0, 0}, {5, 7}},
      {"ic3ih9iw14oc5kh9kw14ph1", {9, 14}, {9, 14}, {1, 1}, {0, 0}, {1, 0}, {1, 0}, {3, 1}},
      // Padding out of a stated output: half of it before, the rest behind.
      {"ic3ih8oc4oh8kh3", {8, 8}, {3, 3}, {1, 1}, {0, 0}, {1, 1}, {1, 1}, {8, 8}},
      {"ic3ih300oc4oh150kh3sh2", {300, 300}, {3, 3}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, {150, 150}},
      {"ic3ih8iw8oc4oh8ow8kh4kw3", {8, 8}, {4, 3}, {1, 1}, {0, 0}, {1, 1}, {2, 1}, {8, 8}},
      {"ic3ih7oc4oh11kh3ph2", {7, 7}, {3, 3}, {1, 1}, {0, 0}, {2, 2}, {4, 4}, {11, 11}},
      {"ic3ih8iw8oc4oh4ow3kh3kw3sh2sw2", {8, 8}, {3, 3}, {2, 2}, {0, 0}, {0, 0}, {1, 0}, {4, 3}},
      // Fewer outputs than padding on both sides would give: benchdnn's padding behind is negative.
      {"ic3ih7oc4oh1kh11sh2ph5", {7, 7}, {11, 11}, {2, 2}, {0, 0}, {5, 5}, {0, 0}, {1, 1}},
      {"ic3ih11iw11oc4oh2ow11kh3kw1sh2ph1dh3", {11, 11}, {3, 1}, {2, 1}, {3, 0}, {1, 0}, {0, 0}, {2, 11}},
      // A depth of 1, and a cube of it.
      {"ic3id1ih9iw8oc4od1oh9ow8kd1kh3kw3sd2pd0dd1ph1pw1",
       {9, 8},
       {3, 3},
       {1, 1},
       {0, 0},
       {1, 1},
       {1, 1},
       {9, 8}},
      {"ic3id1oc4kd1", {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {0, 0}, {1, 1}},
  };
  for (const Case& item : cases) {
    SCOPED_TRACE(item.line);
    const ConvProblem x = parse_problem(item.line);
    EXPECT_EQ((Ints{x.h, x.w}), item.image);
    EXPECT_EQ((Ints{x.r, x.s}), item.filter);
    EXPECT_EQ((Ints{x.stride_h, x.stride_w}), item.stride);
    EXPECT_EQ((Ints{x.dilation_h - 1, x.dilation_w - 1}), item.dilation);
    EXPECT_EQ((Ints{x.pad_top, x.pad_left}), item.before);
    EXPECT_EQ((Ints{x.pad_bottom, x.pad_right}), item.after);
    EXPECT_EQ((Ints{x.p(), x.q()}), item.output);
    EXPECT_EQ(parse_problem(to_string(x)), x) << to_string(x);
  }
}

TEST(ParseProblem, RefusesWhatBenchdnnRefuses) {
  EXPECT_THAT(refusal("ic3ih16oc4kh3sw2"), HasSubstr("column 14: iw and sh are missing: the line has sw"));
  EXPECT_THAT(refusal("ic3ih16iw16oc4kh3pw1"), HasSubstr("kw and ph are missing: the line has pw"));
  EXPECT_THAT(refusal("ic3ih16oc4ow16kh3ph1"), HasSubstr("iw is missing: the line has other widths"));
  EXPECT_THAT(refusal("ic3ih8iw9oc4oh6kh3"), HasSubstr("kw is missing"));
  EXPECT_THAT(refusal("ic3iw16oc4"), HasSubstr("kw is missing"));
  EXPECT_THAT(refusal("ic3iw16oc4kw3sh2"), HasSubstr("ih is missing"));
  EXPECT_THAT(refusal("ic3id1kd1ih8kh3oc4"), HasSubstr("iw is missing"));
  EXPECT_THAT(refusal("ic3id1kd1iw8kw3oc4"), HasSubstr("ih is missing"));
}

// benchdnn copies the height's over these; convtune wrote them once, and meant them.
TEST(ParseProblem, RefusesWidthsThatBenchdnnOverlooks) {
  EXPECT_THAT(refusal("ic3ih8oc4kh3sh2sw1"),
              HasSubstr("column 16: benchdnn reads sw2 for sw1 where there is neither iw nor kw"));
  EXPECT_THAT(refusal("ic3ih8oc4kh3ph1pw0"), HasSubstr("benchdnn reads pw1 for pw0"));
  EXPECT_THAT(refusal("ic3ih8oc4oh8kh3pw0"), HasSubstr("benchdnn reads pw1 for pw0"));
  EXPECT_THAT(refusal("ic3ih8oc4kh3dh1dw0"), HasSubstr("benchdnn reads dw1 for dw0"));
  EXPECT_EQ(parse_problem("ic3ih8oc4kh3sh1sw1ph0pw0dh0dw0"), parse_problem("ic3ih8oc4kh3"));
}

// Covers what to_string writes where the image or the filter is square, which benchdnn refuses.
TEST(ParseProblem, ReadsShortLines) {
  EXPECT_EQ(parse_problem("ic3ih9iw11oc4kh3sh2ph1"), parse_problem("ic3ih9iw11oc4kh3kw3sh2sw2ph1pw1"));
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3kw5ph1pw2"), parse_problem("ic3ih9iw9oc4kh3kw5ph1pw2"));
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3sh1sw2"), parse_problem("ic3ih9iw9oc4kh3kw3sh1sw2"));
}

TEST(ParseProblem, TakesAnyOrderUnderscoresAndBlanks) {
  const ConvProblem problem = parse_problem("g2mb3ic4ih9oc6kh3ph1n\"x\" act=relu bias=0");
  EXPECT_EQ(parse_problem("ph1_kh3oc6_ih9_ic4_mb3_g2n\"x\" bias=0 act=relu"), problem);
  EXPECT_EQ(parse_problem(" \t__g2__mb3ic4ih9oc6kh3ph1_n\"x\"  act=relu\tbias=0 \r\n"), problem);
}

TEST(ParseProblem, ReadsEveryWord) {
  const ConvProblem problem = parse_problem(
      "ic3ih9iw10oc4kh3ph1 pad_bottom=0 pad_right=2 dtype=bf16 layout=nhwc precision=fp16 act=relu bias=0");
  EXPECT_EQ(problem.pad_top, 1);
  EXPECT_EQ(problem.pad_left, 1);
  EXPECT_EQ(problem.pad_bottom, 0);
  EXPECT_EQ(problem.pad_right, 2);
  EXPECT_EQ(problem.dtype, DType::bf16);
  EXPECT_EQ(problem.layout, Layout::nhwc);
  EXPECT_EQ(problem.precision, Precision::fp16);
  EXPECT_EQ(problem.activation, Activation::relu);
  EXPECT_FALSE(problem.bias);
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3 precision=auto layout=nchw dtype=f32 act=none bias=1"),
            parse_problem("ic3ih9oc4kh3"));
}

TEST(ParseProblem, KeepsBlanksAndSignsInAName) {
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3n\"two words_ic7=#\"").name, "two words_ic7=#");
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3n\"\"").name, "");
}

TEST(ParseProblem, TakesNamesAsBenchdnnDoes) {
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3n").name, "");
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3n act=relu").activation, Activation::relu);
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3noc%simd_width_!=0_with_ic2 bias=0").name,
            "oc%simd_width_!=0_with_ic2");
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3_nres2a_branch1*5").name, "res2a_branch1*5");
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3n\"" + std::string(600, 'x') + "\"").name, std::string(600, 'x'));
  // benchdnn would take sh2 for a part of the name.
  EXPECT_THAT(refusal("ic3ih9oc4kh3n\"x\"sh2"), HasSubstr("column 17: after a name comes a blank"));
}

TEST(ParseProblem, NamesPlaceAndToken) {
  EXPECT_EQ(
      refusal("mb1ic3zz7oc4"),
      "problem 'mb1ic3zz7oc4': column 7: 'zz' is none of mb g ic id ih iw oc od oh ow kd kh kw sd sh sw "
      "pd ph pw dd dh dw n\"name\"");
  EXPECT_THAT(refusal("mb1ic3=7"), HasSubstr("column 7: '=' is none of mb g"));
  EXPECT_THAT(refusal("MB1"), HasSubstr("column 1: 'MB' is none of"));
  EXPECT_THAT(refusal("7"), HasSubstr("column 1: '7' is none of"));
  EXPECT_THAT(refusal("mb1\x01"), HasSubstr("column 4: '\\x01' is none of"));
  EXPECT_THAT(refusal("mb"), HasSubstr("column 1: 'mb' needs a whole number, not ''"));
  EXPECT_THAT(refusal("mb1ph-1"), HasSubstr("column 4: 'ph' needs a whole number, not '-'"));
  EXPECT_THAT(refusal("mb1ic3mb2"), HasSubstr("column 7: 'mb' is given twice"));
  EXPECT_THAT(refusal("mb1n\"abc ih3"), HasSubstr("column 4: the name has no closing '\"'"));
  EXPECT_THAT(refusal("n1ic3"), HasSubstr("column 1: 'n' is none of mb g"));
  EXPECT_THAT(refusal("ic3n1oc4"),
              EndsWith("oc is missing, and has no default; 'n' starts a name, the batch is 'mb'"));
}

TEST(ParseProblem, RefusesNumbersPastInt64) {
  EXPECT_THAT(refusal("ic9223372036854775808ih3oc1kh1"),
              HasSubstr("column 1: '9223372036854775808' is over 2^63 - 1"));
  EXPECT_THAT(refusal("ic9223372036854775807ih3oc1kh1"), HasSubstr("c (ic) is 9223372036854775807"));
  EXPECT_THAT(refusal("ic1ih3oc1kh1dh9223372036854775807"), HasSubstr("dh is too large"));
  EXPECT_THAT(refusal("ic1ih3oc1kh1dh9223372036854775806"), HasSubstr("dilation_h (dh + 1) is"));
  EXPECT_THAT(refusal("ic1ih3oc1kh1 pad_right=99999999999999999999"), HasSubstr("is over 2^63 - 1"));
}

TEST(ParseProblem, ReadsThreeDimensions) {
  const ConvProblem x = parse_problem("mb1ic3id16ih32iw30oc8kd3kh5kw7sd2sh1sw3pd1ph2pw3dd0dh1dw0");
  using Ints = std::vector<std::int64_t>;
  EXPECT_EQ((Ints{x.d, x.h, x.w, x.t, x.r, x.s}), (Ints{16, 32, 30, 3, 5, 7}));
  EXPECT_EQ((Ints{x.stride_d, x.stride_h, x.stride_w}), (Ints{2, 1, 3}));
  EXPECT_EQ((Ints{x.pad_front, x.pad_top, x.pad_left}), (Ints{1, 2, 3}));
  EXPECT_EQ((Ints{x.dilation_d, x.dilation_h, x.dilation_w}), (Ints{1, 2, 1}));
  EXPECT_EQ((Ints{x.z(), x.p(), x.q()}), (Ints{8, 28, 10}));
  EXPECT_EQ(parse_problem("ic3id8oc4kd3sd2pd1"),
            parse_problem("ic3id8ih8iw8oc4kd3kh3kw3sd2sh2sw2pd1ph1pw1"));  // a cube
  EXPECT_EQ(parse_problem("ic3id8ih9iw9oc4od8kd3kh3kw3").pad_front, 1);    // derived
  EXPECT_EQ(parse_problem("ic3id1ih5iw5oc4od3kd1kh3kw3pd1").z(), 3);
  EXPECT_EQ(parse_problem("ic3id1ih5iw5oc4od1kd3kh3kw3pd1").t, 3);  // one slice of it is all that is used
  EXPECT_EQ(parse_problem("ic3id4ih5iw5oc4kd2kh3kw3 pad_back=1").z(), 4);
  EXPECT_EQ(to_string(x), "mb1ic3id16ih32iw30oc8kd3kh5kw7sd2sw3pd1ph2pw3dh1");
  for (const std::string letters : {"od", "kd", "sd", "pd", "dd"})
    EXPECT_THAT(refusal("mb1ic3" + letters + "5ih5oc4kh3"), HasSubstr("id is missing"));
  EXPECT_THAT(refusal("ic3id5ih5iw5oc4kh3kw3"), HasSubstr("kd is missing"));
  EXPECT_THAT(refusal("ic3id5ih5oc4kd3kh3"), HasSubstr("iw is missing"));
  EXPECT_THAT(refusal("ic3id5ih5iw5oc4od2kd3kh3kw3pd0"), HasSubstr("od2 is stated"));
  EXPECT_THAT(refusal("ic3id8oc4kd3sd2sh1"), HasSubstr("benchdnn reads sh2 for sh1"));
  EXPECT_THAT(refusal("ic3id1ih5iw5oc4kd1kh3kw3sd0"), HasSubstr("stride_d (sd) is 0"));
}

TEST(ParseProblem, ReadsTypesDirectionsAndEpilogues) {
  const std::string line = "mb1ic3ih9oc4kh3";
  EXPECT_EQ(parse_problem(line + " dtype=bf16").dtype, DTypes(DType::bf16));
  EXPECT_EQ(parse_problem(line + " dtype=bf16:bf16:f32").dtype, DTypes(DType::bf16, DType::bf16, DType::f32));
  EXPECT_EQ(parse_problem(line + " dtype=f16:f16:f16:f32").dtype.bias, DType::f32);
  EXPECT_EQ(parse_problem(line + " dir=bwd_d"), parse_problem(line + " dir=bwd_d bias=0"));
  EXPECT_TRUE(parse_problem(line + " dir=bwd_w").bias);
  const ConvProblem clip = parse_problem(line + " act=clip:-1:6 residual=1 rounding=eager");
  EXPECT_EQ(clip.activation, Activation::clip);
  EXPECT_EQ(clip.alpha, -1);
  EXPECT_EQ(clip.beta, 6);
  EXPECT_TRUE(clip.residual);
  EXPECT_EQ(clip.rounding, Rounding::eager);
  EXPECT_EQ(to_string(clip), line + " act=clip:-1:6 residual=1 rounding=eager");
  EXPECT_EQ(parse_problem(line + " act=leaky_relu:0.01").alpha, 0.01F);
  EXPECT_EQ(to_string(parse_problem(line + " act=clip:-0:6")), line + " act=clip:0:6");
  EXPECT_EQ(parse_problem(line + " layout=ndhwc").layout, Layout::nhwc);
  const ConvProblem snake = parse_problem(line + " snake=beside");
  EXPECT_EQ(snake.snake, Snake::beside);
  EXPECT_EQ(to_string(snake), line + " snake=beside");
  EXPECT_EQ(snake.bias_elements(), 12);
  EXPECT_EQ(snake.result_elements(), 2 * snake.output_elements());
  EXPECT_EQ(snake.residual_elements(), snake.output_elements());
  EXPECT_FALSE(snake == parse_problem(line + " snake=after"));
}

TEST(ParseProblem, ReadsBenchdnnsWords) {
  const std::string line = "mb1ic3ih9oc4kh3";
  const auto same = [&](const std::string& theirs, const std::string& ours) {
    EXPECT_EQ(to_string(parse_problem(line + theirs)), line + ours);
  };
  same(" --dt=bf16:bf16:f32", " dtype=bf16:bf16:f32");
  same(" --dir=FWD_B", "");
  same(" --dir=FWD_D", " bias=0");
  same(" --dir=BWD_D", " dir=bwd_d");
  same(" --dir=BWD_W", " dir=bwd_w bias=0");
  same(" --dir=BWD_WB", " dir=bwd_w");
  same(" --attr-post-ops=sum+relu", " act=relu residual=1");
  same(" --attr-post-ops=relu:0.1", " act=leaky_relu:0.1");
  same(" --attr-post-ops=clip:0:6", " act=clip:0:6");
  same(" --attr-post-ops=swish:1", " act=silu");
  same(" --attr-post-ops=hardswish:0.16667:0.5", " act=hardswish");
  same(" --attr-post-ops=logistic", " act=sigmoid");
  same(" --attr-post-ops=gelu_erf --dt=f16", " dtype=f16 act=gelu_erf");
  EXPECT_THAT(refusal(line + " --dir=FWD"), HasSubstr("is not one of FWD_B, FWD_D"));
  EXPECT_THAT(refusal(line + " --attr-post-ops=relu+sum"), HasSubstr("room for a sum, then one activation"));
  EXPECT_THAT(refusal(line + " --attr-post-ops=swish"), HasSubstr("is none of relu"));
  EXPECT_THAT(refusal(line + " --dt=bf16 dtype=bf16"), HasSubstr("'dtype' is given too"));
  EXPECT_THAT(refusal(line + " --dt=s8:s8:s32"), HasSubstr("is not one of f32, f16, bf16"));
}

TEST(ParseProblem, RefusesEpiloguesThatAreNone) {
  const std::string line = "mb1ic3ih9oc4kh3";
  EXPECT_THAT(refusal(line + " act=clip"), HasSubstr("act clip has 2 parameters behind colons, not 0"));
  EXPECT_THAT(refusal(line + " act=relu:1"), HasSubstr("act relu has 0 parameters"));
  EXPECT_THAT(refusal(line + " act=clip:6:0"), HasSubstr("clip's bounds are 6 and 0"));
  EXPECT_THAT(refusal(line + " act=clip:0:nan"), HasSubstr("'nan' is not a number"));
  EXPECT_THAT(refusal(line + " act=leaky_relu:inf"),
              HasSubstr("leaky_relu:SLOPE has one parameter, a finite number"));
  EXPECT_THAT(refusal(line + " dir=bwd_w act=relu"), HasSubstr("backward weights (bwd_w) has no activation"));
  EXPECT_THAT(refusal(line + " dir=bwd_w residual=1"),
              HasSubstr("backward weights (bwd_w) has no activation"));
  EXPECT_THAT(refusal(line + " dtype=f32:f32"), HasSubstr("is not one type, x:w:y or x:w:y:bias"));
  EXPECT_THAT(refusal(line + " residual=2"), HasSubstr("residual is 0 or 1, not '2'"));
  EXPECT_THAT(refusal(line + " snake=1"), HasSubstr("snake '1' is not one of none, after, beside"));
  EXPECT_THAT(refusal(line + " snake=after bias=0"), HasSubstr("its numbers behind the bias"));
  EXPECT_THAT(refusal(line + " snake=after act=relu"), HasSubstr("its numbers behind the bias"));
  EXPECT_THAT(refusal(line + " snake=after dir=bwd_w"), HasSubstr("backward weights (bwd_w) has no snake"));
}

TEST(ParseProblem, RefusesBadWords) {
  const std::string line = "ic3ih9oc4kh3";
  EXPECT_THAT(refusal(line + " junk"), HasSubstr("column 14: after a blank comes key=value, not 'junk'"));
  EXPECT_THAT(refusal(line + " mb4"), HasSubstr("not 'mb4'"));
  EXPECT_THAT(refusal(line + " color=red"),
              HasSubstr("column 14: 'color' is none of the keys precision layout dtype dir act bias residual "
                        "rounding snake pad_back pad_bottom pad_right cache --dt --dir --attr-post-ops"));
  EXPECT_THAT(refusal(line + " bias=1 bias=1"), HasSubstr("column 21: 'bias' is given twice"));
  EXPECT_THAT(refusal(line + " bias=2"), HasSubstr("column 14: bias is 0 or 1, not '2'"));
  EXPECT_THAT(refusal(line + " precision=fp8"),
              HasSubstr("column 14: precision 'fp8' is not one of auto, fp32, tf32, fp16, bf16"));
  EXPECT_THAT(refusal(line + " layout=chwn"), HasSubstr("layout 'chwn' is not one of nchw, nhwc"));
  EXPECT_THAT(refusal(line + " dtype=f64"), HasSubstr("dtype 'f64' is not one of f32, f16, bf16"));
  EXPECT_THAT(refusal(line + " act=gelu"), HasSubstr("act 'gelu' is not one of none, relu"));
  EXPECT_THAT(refusal(line + " pad_bottom=-1"), HasSubstr("pad_bottom needs a whole number, not '-1'"));
  EXPECT_THAT(refusal(line + " pad_bottom=1x"), HasSubstr("pad_bottom needs a whole number, not '1x'"));
  EXPECT_THAT(refusal(line + " pad_right="), HasSubstr("pad_right needs a whole number, not ''"));
}

TEST(ParseProblem, RefusesWhatIsMissing) {
  EXPECT_THAT(refusal(""), EndsWith("ic is missing, and has no default"));
  EXPECT_THAT(refusal("ih5oc4kh3"), EndsWith("ic is missing, and has no default"));
  EXPECT_THAT(refusal("ic5ih4kh3"), EndsWith("oc is missing, and has no default"));
  EXPECT_THAT(refusal("ic5oc4kh3"), EndsWith("ih is missing, and has no default"));
  EXPECT_THAT(refusal("ic5ih5oc4"), EndsWith("kh is missing, and has no default"));
  const std::string rule =
      " is missing: beside a depth (id, kd) a line has both heights and widths, or neither";
  EXPECT_THAT(refusal("mb1ic4id6ih12oc16kd3kh3pd1ph1"), HasSubstr("iw" + rule));
  EXPECT_THAT(refusal("mb1ic4id6ih12iw12oc16kd3kh3"), HasSubstr("kw" + rule));
  EXPECT_THAT(refusal("mb1ic4id6iw12oc16kd3kw3"), HasSubstr("ih" + rule));
}

TEST(ParseProblem, ChecksTheOutputSizeThatIsStated) {
  EXPECT_THAT(
      refusal("mb1ic3ih10oc4oh4kh3"),
      HasSubstr("column 14: oh4 is stated, but the other numbers give oh8, even without padding behind"));
  EXPECT_THAT(refusal("mb1ic3ih8iw8oc4oh6ow5kh3kw3"), HasSubstr("column 19: ow5 is stated"));
  // Our own word leaves nothing to derive.
  EXPECT_EQ(parse_problem("mb1ic3ih8oc4oh4kh3sh2 pad_bottom=1 pad_right=1").p(), 4);
  EXPECT_THAT(refusal("mb1ic3ih8oc4oh8kh3 pad_bottom=1 pad_right=2"),
              EndsWith("oh8 is stated, but the other numbers give oh7"));
  EXPECT_THAT(
      refusal("ic1ih9223372036854775807oc1oh9223372036854775807kh9223372036854775807sh9223372036854775807"),
      HasSubstr("h (ih) is 9223372036854775807"));
}

TEST(ParseProblem, RefusesWhatValidateRefuses) {
  EXPECT_THAT(refusal("g2ic3ih8oc4kh3"), HasSubstr("groups (g) is 2; it must divide c (ic), which is 3"));
  EXPECT_THAT(refusal("ic3ih2oc4kh3"), HasSubstr("the output has no height"));
  EXPECT_THAT(refusal("ic3ih2oc0kh1"), HasSubstr("k (oc) is 0"));
  EXPECT_THAT(refusal("ic3ih2oc3kh1n\"a\tb\""), HasSubstr("control character"));
}

TEST(ParseProblem, RefusesMoreThan4096Bytes) {
  const std::string line = "ic3ih9oc4kh3";
  EXPECT_EQ(parse_problem(line + std::string(4096 - line.size(), '_')), parse_problem(line));
  EXPECT_THAT(refusal(line + std::string(4097 - line.size(), '_')),
              HasSubstr("4097 bytes are more than the limit of 4096"));
}

TEST(ToString, SaysNothingTwice) {
  EXPECT_EQ(to_string(parse_problem("g1mb2ic3ih5iw5oc4oh3kh3kw3sh1sw1ph0pw0dh0dw0 bias=1")), "ic3ih5oc4kh3");
  EXPECT_EQ(to_string(parse_problem("mb256ic3ih224oc96oh55kh11sh4ph2n\"alexnet_conv1\"")),
            "mb256ic3ih224oc96kh11sh4ph2n\"alexnet_conv1\"");
  EXPECT_EQ(to_string(parse_problem("ic3ih5oc4kh3sh1sw2 act=relu layout=nhwc pad_right=1 bias=0 dtype=f16 "
                                    "precision=fp32 pad_bottom=0")),
            "ic3ih5oc4kh3sh1sw2 precision=fp32 layout=nhwc dtype=f16 act=relu bias=0 pad_right=1");
}

TEST(ToString, WritesWidthsThatBenchdnnWouldReadOtherwise) {
  // It copies nothing where both iw and kw are written, and all where neither is.
  EXPECT_EQ(to_string(parse_problem("ic3ih9iw14oc5kh5kw7sh2sw2ph1pw1dh0dw0")),
            "ic3ih9iw14oc5kh5kw7sh2sw2ph1pw1");
  EXPECT_EQ(to_string(parse_problem("ic3ih9iw9oc5kh5kw5sh2sw1ph1pw1")), "ic3ih9iw9oc5kh5kw5sh2sw1ph1pw1");
  // Whatever convtune has always written, and benchdnn reads the same or not at all.
  EXPECT_EQ(to_string(parse_problem("ic3ih9iw9oc5kh5kw5sh1sw2ph1pw1")), "ic3ih9oc5kh5sh1sw2ph1");
  EXPECT_EQ(to_string(parse_problem("ic3ih9iw14oc5kh5kw5sh2sw2")), "ic3ih9iw14oc5kh5sh2");
  EXPECT_EQ(to_string(parse_problem("ic3ih9iw14oc5kh5kw7sh2sw1")), "ic3ih9iw14oc5kh5kw7sh2sw1");
}

TEST(Key, HasNoName) {
  const ConvProblem problem = parse_problem("ic3ih5oc4kh3n\"x\" act=relu");
  EXPECT_EQ(key(problem), "ic3ih5oc4kh3 act=relu");
  EXPECT_EQ(parse_problem(key(problem)), problem);
}

TEST(ToString, TheLongestStillFits) {
  ConvProblem problem;
  problem.n = problem.c = problem.k = problem.h = problem.w = 999;
  problem.stride_h = problem.stride_w = problem.dilation_h = problem.dilation_w = 2147483647;
  problem.stride_w = problem.dilation_w = problem.pad_top = 2147483646;
  problem.name = std::string(2048, 'x');
  const ConvProblem again = parse_problem(to_string(problem));
  EXPECT_EQ(again, problem);
  EXPECT_EQ(again.name, problem.name);
}

}  // namespace
}  // namespace convtune::problem_text_test
