// Checks where the direct convolution's outputs go: wherever y begins, and nowhere else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/direct/direct_candidates.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/tile/instruction_sets.h"
#include "problem/config_fields.h"
#include "unit/cpu/real_tensors.h"

namespace convtune::direct_outputs_test {
namespace {

const DeviceInfo& info() {
  return cpu::backend().info();
}

// There all outputs go past the caches that may.
DeviceInfo without_caches() {
  DeviceInfo device = info();
  device.l2_bytes = 1, device.l3_bytes = 0;
  return device;
}

class Packed {
 public:
  Packed(const Host& host, const cpu::DirectConfig& config, const DeviceInfo& device)
      : host_(host),
        executable_(cpu::direct().build(host.problem, device, to_config(config))),
        packed_(executable_->packed_bytes()) {
    executable_->pack(host.w.data(), host.bias.data(), packed_.data(), nullptr);
  }
  void run(float* y) const { executable_->run({.x = host_.x.data(), .y = y}, packed_.data(), nullptr); }

 private:
  const Host& host_;
  std::unique_ptr<Executable> executable_;
  std::vector<std::byte> packed_;
};

// Rows begin anywhere in a vector; what lies before and behind the output stays.
TEST(DirectOutputs, BeginAmidAVector) {
  int checked = 0;
  for (const char* text : {"mb2ic3ih16iw48oc5kh3ph1", "mb1ic3ih32iw40oc4kh3sh2ph1 act=relu",
                           "mb2ic3ih32oc7kh4sh4", "mb1ic3ih28iw64oc9kh4sh4", "mb2ic3ih33iw64oc9kh3sh2ph1",
                           "mb2ic5ih12iw16oc7kh1", "mb1ic3ih8iw12oc6kh1"}) {
    const ConvProblem problem = parse_problem(text);
    const auto count = static_cast<std::size_t>(problem.output_elements());
    const Host host(problem);
    for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2)
      for (const int way : {0, 1, 2})
        for (const int stream : {0, 1}) {
          // The last way reads x where it lies.
          const cpu::DirectConfig config{.vector_bits = bits,
                                         .channels = 4,
                                         .vectors = 3,
                                         .rows = 3,
                                         .flat = way == 0 ? 0 : 1,
                                         .stream = stream,
                                         .staged = way == 2 ? 0 : 1};
          if (!cpu::direct().accepts(problem, info(), to_config(config))) continue;
          ++checked;
          const Packed packed(host, config, checked % 2 == 0 ? info() : without_caches());
          std::vector<float> expected(count);
          packed.run(expected.data());
          for (const std::size_t shift : {0, 1, 4, 7, 8, 12, 15, 16}) {
            constexpr float kCanary = 12345;
            std::vector<float> y(count + 64, kCanary);
            packed.run(y.data() + shift);
            EXPECT_EQ(std::memcmp(y.data() + shift, expected.data(), count * sizeof(float)), 0)
                << text << ' ' << to_string(to_config(config)) << " shifted by " << shift;
            y.erase(y.begin() + static_cast<std::ptrdiff_t>(shift),
                    y.begin() + static_cast<std::ptrdiff_t>(shift + count));
            EXPECT_EQ(std::count(y.begin(), y.end(), kCanary), std::ssize(y)) << text << ' ' << shift;
          }
        }
  }
  EXPECT_GE(checked, 9);
}

}  // namespace
}  // namespace convtune::direct_outputs_test
