// cuDNN's graphs without a GPU: cuDNN itself checks every descriptor, and plans for a device that is
// described to it. What is compiled at run time needs a driver too, and is only listed here.
#include "cuda/cudnn/cudnn_graph.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cuda/cudnn/cudnn.h"
#include "cuda/cudnn/cudnn_offers.h"
#include "problem/random_problem.h"

namespace convtune::cuda::cudnn_graph_test {
namespace {

// An H200 as cuDNN 9.19 writes it.
constexpr std::string_view kDevice =
    R"({"deviceVer":900,"cudaDeviceId":0,"driverVer":13000,"totalGlobalMem":150000000000,)"
    R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
    R"("multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)"
    R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
    R"("supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":62914560,)"
    R"("deviceName":"NVIDIA H200"})";

class CudnnGraphs : public testing::Test {
 protected:
  void SetUp() override {
    if (!cudnn_found()) GTEST_SKIP() << cudnn_version();
    try {
      describe_device(session_, kDevice);
    } catch (const Error& error) {
      GTEST_SKIP() << "this cuDNN takes no description of a device: " << error.what();
    }
  }
  // Engines whose plans cuDNN makes here.
  std::set<std::int64_t> engines(const ConvProblem& problem, const CudnnForm& form) {
    CudnnOffers offers(problem, form, session_);
    std::set<std::int64_t> planned;
    for (std::size_t i = 0; i < offers.size(); ++i)
      if (offers.plan(i).support) planned.insert(offers.engine(i));
    return planned;
  }
  std::set<std::int64_t> engines(std::string text, const CudnnForm& form) {
    ConvProblem problem = parse_problem(text);
    if (problem.precision == Precision::automatic) problem.precision = Precision::tf32;
    return engines(problem, form);
  }
  CudnnSession session_;
};

constexpr CudnnForm kFirst{false, true}, kLast{true, true};

// No descriptor of any problem is refused, whatever engines then say.
TEST_F(CudnnGraphs, TakesTheDescriptorsOfAnyProblem) {
  std::map<Activation, int> activations;
  int eager = 0, depth = 0, residuals = 0, half = 0, transposed = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    ConvProblem problem = random_problem_of_any_kind(7, i);
    problem.n = std::max<std::int64_t>(problem.n, 1);
    for (const bool channels_last : {false, true})
      for (const bool fused : {false, true}) {
        const CudnnForm form{channels_last, fused};
        EXPECT_NO_THROW((void)convolution_graph(problem, form, session_)) << to_string(problem);
        EXPECT_NO_THROW((void)epilogue_graphs(problem, form, session_)) << to_string(problem);
      }
    ++activations[problem.activation];
    eager += rounds_eagerly(problem);
    depth += problem.has_depth();
    residuals += problem.residual;
    transposed += problem.direction == Direction::backward_data && has_epilogue(problem);
    half += problem.dtype.x != DType::f32;
  }
  EXPECT_EQ(activations.size(), 9u);
  EXPECT_GT(eager, 5);
  EXPECT_GT(depth, 10);
  EXPECT_GT(residuals, 10);
  EXPECT_GT(transposed, 5);
  EXPECT_GT(half, 50);
}

// Covers what precompiled engines fuse: bias, and with it residual and ReLU, in every type and layout.
TEST_F(CudnnGraphs, PrecompiledEnginesFuseTheClassicEpilogues) {
  for (const char* type : {"f32", "f16", "bf16"})
    for (const char* shape :
         {"mb8ic64ih56oc64kh3ph1", "mb8ic3ih64oc64kh7sh2ph3", "mb2ic3ih9oc7kh3ph1", "g4mb4ic64ih28oc64kh3ph1",
          "g96mb4ic96ih28oc96kh3ph1", "mb1ic32id8ih28iw28oc32kd3kh3kw3ph1pw1"})
      for (const char* epilogue : {"bias=0", "bias=1", "act=relu", "bias=0 act=relu", "residual=1 act=relu",
                                   "bias=0 residual=1", "residual=1"})
        for (const CudnnForm& form : {kFirst, kLast}) {
          const std::string text = std::string(shape) + " dtype=" + type + " " + epilogue;
          EXPECT_FALSE(engines(text, form).empty()) << text << (form.channels_last ? " channels-last" : "");
        }
}

// Covers gradients in every type and layout; what follows them is compiled at run time.
TEST_F(CudnnGraphs, EnginesComputeBackwardData) {
  for (const char* type : {"f32", "f16", "bf16"})
    for (const char* shape : {"mb8ic64ih32oc128kh4sh2ph1", "mb8ic64ih56oc64kh2sh2", "mb8ic64ih28oc64kh3ph1",
                              "g4mb4ic64ih28oc64kh3ph1", "mb1ic32id8ih28iw28oc32kd2kh2kw2sd2sh2sw2"})
      for (const CudnnForm& form : {kFirst, kLast}) {
        const std::string text = std::string(shape) + " dir=bwd_d dtype=" + type;
        EXPECT_FALSE(engines(text, form).empty()) << text << (form.channels_last ? " channels-last" : "");
      }
}

// Covers gradients of weights in every type and layout: one graph, which reads x and dy.
TEST_F(CudnnGraphs, EnginesComputeBackwardWeights) {
  for (const char* type : {"f32", "f16", "bf16"})
    for (const char* shape : {"mb8ic64ih56oc64kh3ph1", "mb8ic64ih28oc128kh3sh2ph1", "mb8ic3ih64oc64kh7sh2ph3",
                              "g96mb4ic96ih28oc96kh3ph1", "mb1ic32id8ih28iw28oc32kd3kh3kw3ph1pw1"})
      for (const CudnnForm& form : {kFirst, kLast}) {
        const std::string text = std::string(shape) + " bias=0 dir=bwd_w dtype=" + type;
        EXPECT_FALSE(engines(text, form).empty()) << text << (form.channels_last ? " channels-last" : "");
      }
  using enum CudnnTensor;
  const CudnnGraph graph =
      convolution_graph(parse_problem("mb2ic8ih9oc8kh3 bias=0 dir=bwd_w"), kFirst, session_);
  EXPECT_EQ(std::set<CudnnTensor>(graph.tensors.begin(), graph.tensors.end()),
            (std::set<CudnnTensor>{x, dy, y}));
}

// A gradient over no images is zeros, which cuDNN does not write: it is asked for none.
TEST_F(CudnnGraphs, NoImagesHaveNoGradientOfWeights) {
  const Support support =
      cudnn()->supports(parse_problem("mb0ic8id6ih4iw23oc1kd4kh3kw6pw3 dir=bwd_w dtype=bf16"), {});
  EXPECT_NE(support.reason().find("no images"), std::string::npos) << support.reason();
}

// Asking for such a gradient ended the process, with 9.19.0 on an H200: with a dilation of 2, three columns
// are five.
TEST_F(CudnnGraphs, DepthwiseFiltersLongerThanTheImageHaveNoGradientOfWeights) {
  const auto reason = [](const char* width) {
    return cudnn()
        ->supports(parse_problem("g6mb4ic6ih1iw" + std::string(width) +
                                 "oc6kh1kw3sh1sw2dh2dw1 dtype=bf16 dir=bwd_w pad_right=2"),
                   {})
        .reason();
  };
  EXPECT_NE(reason("3").find("longer than the image"), std::string::npos) << reason("3");
  EXPECT_EQ(reason("5").find("longer than the image"), std::string::npos) << reason("5");
}

// One channel is depthwise, too: two sweeps on an H200 died whose problems had such a layer, of those that
// had none, none did.
TEST_F(CudnnGraphs, FiltersOfOneChannelLongerThanTheImageHaveNoGradientOfWeights) {
  const auto reason = [](const char* height) {
    return cudnn()
        ->supports(parse_problem("mb2ic1ih" + std::string(height) +
                                 "iw23oc1kh11kw3sh2sw5ph3pw1 dtype=bf16 dir=bwd_w"),
                   {})
        .reason();
  };
  EXPECT_NE(reason("7").find("longer than the image"), std::string::npos) << reason("7");
  EXPECT_EQ(reason("11").find("longer than the image"), std::string::npos) << reason("11");
}

// The first of a sweep's problems that ended its process on an H200; the 16 before it did not.
TEST_F(CudnnGraphs, FiltersLongerThanAnImageWithUnequalSidesHaveNoGradientOfWeights) {
  const auto reason = [](const char* bottom) {
    const std::string line =
        "mb3ic19ih2iw65oc17kh2kw3sh1sw2ph0pw1dh2dw0 layout=nhwc dtype=f16 dir=bwd_w pad_bottom=";
    return cudnn()->supports(parse_problem(line + bottom), {}).reason();
  };
  EXPECT_NE(reason("2").find("longer than the image"), std::string::npos) << reason("2");
  const auto even =
      parse_problem("mb3ic19ih2iw65oc17kh2kw3sh1sw2ph1pw1dh2dw0 layout=nhwc dtype=f16 dir=bwd_w");
  EXPECT_EQ(cudnn()->supports(even, {}).reason().find("longer than the image"), std::string::npos);
}

// Of a row whose two ends have other paddings engine 1 answered -7 for -14, on an H200.
TEST_F(CudnnGraphs, WeightsOfARowWithUnequalEndsLeaveEngine1Out) {
  const auto has = [&](const char* shape) {
    return engines(std::string(shape) + " bias=0 dir=bwd_w dtype=f16", kLast).contains(1);
  };
  EXPECT_TRUE(has("mb1ic180ih1iw31oc2kh1kw11ph0pw6"));
  EXPECT_FALSE(has("mb1ic180ih1iw31oc2kh1kw11ph0pw6 pad_right=4"));
}

// Engine 1 answered wrongly for a filter of 11 columns over images of 1 and of 4: it is left out there.
TEST_F(CudnnGraphs, WeightsOfFiltersLongerThanTheImageLeaveEngine1Out) {
  const auto has = [&](const char* shape) {
    return engines(std::string(shape) + " bias=0 dir=bwd_w dtype=f16", kLast).contains(1);
  };
  EXPECT_TRUE(has("g2mb1ic12id1ih3iw11oc30kd1kh3kw11ph1pw4"));
  EXPECT_FALSE(has("g2mb1ic12id1ih3iw4oc30kd3kh3kw11pd3ph1pw4"));
}

// In three dimensions it answered wrongly for four problems whose padding differs between two sides, too.
TEST_F(CudnnGraphs, WeightsOfUnevenPaddingInThreeDimensionsLeaveEngine1Out) {
  const auto has = [&](const char* padding) {
    return engines("mb1ic16id4ih2iw2oc29kd2kh1kw1sd2pd2 bias=0 dir=bwd_w" + std::string(padding), kLast)
        .contains(1);
  };
  EXPECT_TRUE(has(""));
  EXPECT_FALSE(has(" pad_back=0"));
}

// Engine 47 adds partial sums in the type of the result: 191 became 192. cuDNN notes that where it is fp16.
TEST_F(CudnnGraphs, WeightsOfHalvesLeaveEngine47Out) {
  for (const char* type : {"f16", "bf16"})
    EXPECT_FALSE(
        engines(std::string("g4mb1ic4ih33oc8kh5 bias=0 dir=bwd_w dtype=") + type, kLast).contains(47))
        << type;
}

// Tensor cores serve halves also where fp32 is asked for: no product is rounded.
TEST_F(CudnnGraphs, PrecisionOfHalvesIsTheirOwn) {
  const std::string shape = "mb8ic64ih56oc64kh3ph1 precision=fp32 dtype=";
  EXPECT_TRUE(engines(shape + "f16", kLast).contains(10));
  EXPECT_FALSE(engines(shape + "f32", kLast).contains(51));
}

// The steps of a sequence: which tensors each names.
TEST_F(CudnnGraphs, SequencesNameTheirTensors) {
  using enum CudnnTensor;
  const auto tensors = [&](const char* words) {
    const ConvProblem problem = parse_problem(std::string("mb2ic8ih9oc8kh3 dtype=f16 ") + words);
    const CudnnForm form{false, false};
    std::vector<std::set<CudnnTensor>> steps;
    const auto add = [&](const CudnnGraph& graph) {
      steps.emplace_back(graph.tensors.begin(), graph.tensors.end());
      EXPECT_EQ(steps.back().size(), graph.tensors.size()) << "one of them twice";
    };
    add(convolution_graph(problem, form, session_));
    for (const CudnnGraph& graph : epilogue_graphs(problem, form, session_)) add(graph);
    return steps;
  };
  using Steps = std::vector<std::set<CudnnTensor>>;
  EXPECT_EQ(tensors("bias=0"), (Steps{{x, w, y}}));
  EXPECT_EQ(tensors("residual=1 act=silu"), (Steps{{x, w, sum}, {sum, bias, residual, y}}));
  EXPECT_EQ(tensors("act=hardswish"), (Steps{{x, w, sum}, {sum, bias, three, sixth, y}}));
  EXPECT_EQ(tensors("residual=1 act=silu rounding=eager"),
            (Steps{{x, w, sum}, {sum, bias, partial}, {partial, residual, sum}, {sum, y}}));
}

TEST_F(CudnnGraphs, AreGivenABiasWhereTheyFuse) {
  EXPECT_EQ(cudnn_bias_elements(parse_problem("mb3ic8ih9oc5kh3"), {true, true}), 5);
  EXPECT_EQ(cudnn_bias_elements(parse_problem("mb3ic8ih9oc5kh3"), {true, false}), 5);
  EXPECT_EQ(cudnn_bias_elements(parse_problem("mb3ic8ih9oc5kh3 bias=0 act=silu"), {true, false}), 0);
  EXPECT_EQ(cudnn_bias_elements(parse_problem("mb3ic8ih9oc5kh3 bias=0"), {true, true}), 0);
  EXPECT_EQ(cudnn_bias_elements(parse_problem("mb3ic8ih9oc5kh3 bias=0 act=silu"), {true, true}), 5);
}

// Only of rows that are whole vectors cuDNN's operations by element are right.
TEST_F(CudnnGraphs, SequencesAreForChannelsLastInEights) {
  const auto right = [](const char* text, bool last) {
    return sequence_is_right(parse_problem(text), {last, false});
  };
  EXPECT_TRUE(right("mb3ic8ih8oc16kh3ph1", true));
  EXPECT_FALSE(right("mb3ic8ih8oc16kh3ph1", false));
  EXPECT_FALSE(right("mb3ic8ih8oc12kh3ph1", true));
  EXPECT_FALSE(right("mb3ic8ih7oc16kh3ph1", true));  // 147 pixels
}

// Covers what is compiled at run time: an engine for every epilogue channels-last, and for what follows a
// convolution.
TEST_F(CudnnGraphs, EveryEpilogueHasAnEngine) {
  // Why there is none, or nothing. Where the driver is a stub, all is compiled and nothing can be loaded.
  const auto reason = [&](const ConvProblem& problem, const CudnnForm& form) -> std::string {
    CudnnOffers offers(problem, form, session_);
    std::string last = "no offers";
    for (std::size_t i = 0; i < offers.size(); ++i) {
      const Support& support = offers.plan(i).support;
      if (support || support.reason().find("cuLibraryLoadData") != std::string::npos) return {};
      last = support.reason();
    }
    return last;
  };
  const std::string shape = "mb8ic64ih28oc64kh3ph1 dtype=f16 ";
  if (reason(parse_problem(shape + "act=silu"), kLast) == "no offers")
    GTEST_SKIP() << "nothing can be compiled here";
  for (const char* words :
       {"act=none residual=1", "act=clip:-1:1", "act=silu residual=1", "act=gelu_erf bias=0", "act=gelu_tanh",
        "act=hardswish", "act=leaky_relu:0.1", "act=sigmoid"})
    for (const CudnnForm& form : {kLast, CudnnForm{true, false}})
      EXPECT_EQ(reason(parse_problem(shape + words), form), "")
          << words << (form.fused ? "" : " unfused") << (form.channels_last ? " channels-last" : "");
}

}  // namespace
}  // namespace convtune::cuda::cudnn_graph_test
