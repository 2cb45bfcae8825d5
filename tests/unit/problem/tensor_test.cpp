// The text forms of the enumerations and of Device, both ways.
#include "convtune/tensor.h"

#include <gtest/gtest.h>

#include <vector>

#include "convtune/error.h"
#include "refusal.h"

namespace convtune {
namespace {

TEST(Tensor, EveryNameParsesBack) {
  for (const DType value : {DType::f32, DType::f16, DType::bf16})
    EXPECT_EQ(parse_dtype(to_string(value)), value);
  for (const Layout value : {Layout::nchw, Layout::nhwc}) EXPECT_EQ(parse_layout(to_string(value)), value);
  for (const Precision value :
       {Precision::automatic, Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16})
    EXPECT_EQ(parse_precision(to_string(value)), value);
  for (const Activation value : {Activation::none, Activation::relu})
    EXPECT_EQ(parse_activation(to_string(value)), value);
  EXPECT_EQ(to_string(Precision::automatic), "auto");
  EXPECT_EQ(to_string(DType::bf16), "bf16");
}

TEST(Tensor, UnknownNamesListTheKnown) {
  EXPECT_EQ(refusal([] { parse_dtype("F32"); }), "dtype 'F32' is not one of f32, f16, bf16");
  EXPECT_EQ(refusal([] { parse_layout(""); }), "layout '' is not one of nchw, nhwc");
  EXPECT_EQ(refusal([] { parse_precision("fp64"); }),
            "precision 'fp64' is not one of auto, fp32, tf32, fp16, bf16");
  EXPECT_EQ(refusal([] { parse_activation("\n"); }), "act '\\x0a' is not one of none, relu");
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
}  // namespace convtune
