// Every algorithm of our own, for GPUs and for CPUs, without running it: it offers what it accepts, refuses
// with a reason, and takes no config from outside that is not of its fields.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernel_expectations.h"

namespace convtune::algorithms_test {
namespace {

std::vector<const Algorithm*> own() {
  std::vector<const Algorithm*> all;
  for (const Device::Kind kind : {Device::Kind::cpu, Device::Kind::cuda})
    for (const Algorithm* algorithm : algorithms(kind))
      if (!algorithm->vendor() && !algorithm->reference()) all.push_back(algorithm);
  return all;
}

class Algorithms : public testing::TestWithParam<const Algorithm*> {
 protected:
  const Algorithm& algorithm() { return *GetParam(); }
  bool on_cpu() { return algorithm().device_kind() == Device::Kind::cpu; }
  // The first has no code of ours.
  std::vector<DeviceInfo> devices() {
    if (!on_cpu())
      return {
          gpu({7, 5}), gpu(), gpu({8, 0}), gpu({8, 6}), gpu({10, 0}), gpu({12, 0}), gpu(ComputeCapability{})};
    std::vector<DeviceInfo> all;
    for (const char* isa : {"scalar", "avx512", "avx2", "sse4"}) {
      all.push_back(device_info({Device::Kind::cpu}));
      all.back().isa = isa;
    }
    return all;
  }
  // A CPU's lists of candidates take longer.
  std::vector<ConvProblem> problems() {
    std::vector<ConvProblem> all = small_problems();
    for (const ConvProblem& problem : suite_problems(256)) all.push_back(problem);
    return on_cpu() ? spread(all, 40) : all;
  }
};

TEST_P(Algorithms, RefusesWithAReasonAndOffersWhatItAccepts) {
  const std::vector<DeviceInfo> all = devices();
  for (const DeviceInfo& device : all)
    for (const ConvProblem& problem : problems()) {
      const Support support = algorithm().supports(problem, device);
      EXPECT_EQ(support.reason().empty(), static_cast<bool>(support)) << to_string(problem);
      EXPECT_FALSE(&device == &all.front() && support) << to_string(problem);
      const std::vector<Config> configs = algorithm().candidates(problem, device);
      EXPECT_EQ(configs.empty(), !support) << to_string(problem);
      for (const Config& config : spread(configs, 50))
        EXPECT_TRUE(algorithm().accepts(problem, device, config))
            << to_string(problem) << " with " << to_string(config);
    }
}

// Records and command lines come from outside.
TEST_P(Algorithms, TakesNoConfigThatIsNotOfItsFields) {
  const DeviceInfo device = devices()[1];
  for (const ConvProblem& problem : spread(supported(algorithm(), device, problems()), 4)) {
    const Config good = algorithm().candidates(problem, device).front();
    const auto accepts = [&](const Config& config) {
      return static_cast<bool>(algorithm().accepts(problem, device, config));
    };
    Config longer = good;
    longer.values.emplace_back("unheard_of", 1);
    EXPECT_FALSE(accepts(longer));
    EXPECT_FALSE(accepts({}));
    std::vector<ConfigField> fields = algorithm().fields();  // some are of some configs alone
    std::erase_if(fields, [&](const ConfigField& field) {
      return std::ranges::find(good.values, field.name, &std::pair<std::string, std::int64_t>::first) ==
             good.values.end();
    });
    ASSERT_EQ(fields.size(), good.values.size());
    for (std::size_t i = 0; i < good.values.size(); ++i) {
      Config other = good;
      other.values.erase(other.values.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_FALSE(accepts(other)) << to_string(other);
      for (const std::int64_t wrong : {std::int64_t{-1}, fields[i].least - 1, fields[i].most + 1,
                                       good.values[i].second + (std::int64_t{1} << 32)}) {
        other = good;
        other.values[i].second = wrong;
        EXPECT_FALSE(accepts(other)) << to_string(other);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, Algorithms, testing::ValuesIn(own()), [](const auto& info) {
  return (info.param->device_kind() == Device::Kind::cpu ? "cpu_" : "gpu_") + std::string(info.param->name());
});

}  // namespace
}  // namespace convtune::algorithms_test
