// The text forms of the enumerations and of Device, both ways.
#include "convtune/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "convtune/error.h"
#include "problem/activation.h"
#include "problem/element.h"
#include "refusal.h"

namespace convtune::tensor_test {
namespace {

TEST(Tensor, EveryNameParsesBack) {
  for (const ElementRow& row : kElements) EXPECT_EQ(parse_dtype(to_string(row.type)), row.type);
  for (const Layout value : {Layout::nchw, Layout::nhwc}) EXPECT_EQ(parse_layout(to_string(value)), value);
  for (const Precision value :
       {Precision::automatic, Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16})
    EXPECT_EQ(parse_precision(to_string(value)), value);
  for (const Activation value : all_activations()) EXPECT_EQ(parse_activation(to_string(value)), value);
  for (const Direction value : {Direction::forward, Direction::backward_data, Direction::backward_weights})
    EXPECT_EQ(parse_direction(to_string(value)), value);
  for (const Rounding value : {Rounding::once, Rounding::eager})
    EXPECT_EQ(parse_rounding(to_string(value)), value);
  for (const Snake value : {Snake::none, Snake::after, Snake::beside})
    EXPECT_EQ(parse_snake(to_string(value)), value);
  for (const char* types : {"f32", "bf16", "bf16:bf16:f32", "f16:f16:f16:f32", "f32:bf16:f16"})
    EXPECT_EQ(to_string(parse_dtypes(types)), types);
  EXPECT_EQ(parse_layout("ndhwc"), Layout::nhwc);
  EXPECT_EQ(to_string(Precision::automatic), "auto");
  EXPECT_EQ(to_string(DType::bf16), "bf16");
}

TEST(Tensor, UnknownNamesListTheKnown) {
  EXPECT_EQ(refusal([] { parse_dtype("F32"); }), "dtype 'F32' is not one of f32, f16, bf16");
  EXPECT_EQ(refusal([] { parse_layout(""); }), "layout '' is not one of nchw, nhwc, ncw, nwc, ncdhw, ndhwc");
  EXPECT_EQ(refusal([] { parse_precision("fp64"); }),
            "precision 'fp64' is not one of auto, fp32, tf32, fp16, bf16");
  std::string known;
  for (const ActivationRow& row : activation_rows())
    known += (known.empty() ? "" : ", ") + std::string(row.name());
  EXPECT_EQ(refusal([] { parse_activation("\n"); }), "act '\\x0a' is not one of " + known);
}

// The words between the braces of `enum`, in lower case and without what they are set to.
std::vector<std::string> enumerators(const std::string& file, const std::string& of) {
  std::ifstream in(std::string(CONVTUNE_SOURCE_DIR) + "/" + file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const std::size_t begin = text.find(of + " {"), end = text.find('}', begin);
  std::vector<std::string> words;
  if (begin == std::string::npos) return words;
  const std::string body = std::regex_replace(text.substr(begin + of.size(), end - begin - of.size()),
                                              std::regex(R"(/\*.*?\*/)"), "");
  const std::regex word(R"([A-Za-z_]+)");
  for (std::sregex_iterator match(body.begin(), body.end(), word); match != std::sregex_iterator(); ++match) {
    std::string& lower = words.emplace_back(match->str());
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  }
  return words;
}

// The C face and device code can include nothing of the C++ face, and have enumerations of their own.
TEST(Tensor, ActivationsAreTheSameEverywhere) {
  std::vector<std::string> names, c_names;
  for (const ActivationRow& row : activation_rows()) {
    names.emplace_back(row.name());
    c_names.push_back(row.activation == Activation::none ? "convtune_no_activation"
                                                         : "convtune_" + names.back());
  }
  EXPECT_EQ(enumerators("include/convtune/tensor.h", "enum class Activation"), names);
  EXPECT_EQ(enumerators("src/cuda/tile/conv_extents.h", "enum class ConvActivation"), names);
  EXPECT_EQ(enumerators("include/convtune/c.h", "typedef enum convtune_activation"), c_names);
}

TEST(Tensor, SizesOfElements) {
  EXPECT_EQ(size_of(DType::f32), 4);
  EXPECT_EQ(size_of(DType::f16), 2);
  EXPECT_EQ(size_of(DType::bf16), 2);
}

TEST(Device, HasATextFormBothWays) {
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(Device{Device::Kind::cuda, 3}), "cuda:3");
  EXPECT_EQ(parse_device("cpu"), Device{});
  EXPECT_EQ(parse_device("cuda"), (Device{Device::Kind::cuda, 0}));
  EXPECT_EQ(parse_device("cuda:12"), (Device{Device::Kind::cuda, 12}));
  for (const char* text : {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:+1", "cuda:1x", "cuda: 1",
                           "cuda1", "cuda:99999999999"})
    EXPECT_EQ(refusal([&] { parse_device(text); }),
              "device '" + std::string(text) + "' is not cpu, cuda or cuda:N");
}

}  // namespace
}  // namespace convtune::tensor_test
