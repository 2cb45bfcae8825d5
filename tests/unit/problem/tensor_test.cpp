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
  for (int value = 0; value <= static_cast<int>(Activation::sigmoid); ++value)
    EXPECT_EQ(parse_activation(to_string(static_cast<Activation>(value))), static_cast<Activation>(value));
  for (const Direction value : {Direction::forward, Direction::backward_data, Direction::backward_weights})
    EXPECT_EQ(parse_direction(to_string(value)), value);
  for (const Rounding value : {Rounding::once, Rounding::eager})
    EXPECT_EQ(parse_rounding(to_string(value)), value);
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
  EXPECT_EQ(refusal([] { parse_activation("\n"); }),
            "act '\\x0a' is not one of none, relu, clip, silu, gelu_erf, gelu_tanh, hardswish, leaky_relu, "
            "sigmoid");
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
