// One kernel on one problem with one config and in one mode, on the stand-ins:
//   host_kernel ALGORITHM PROBLEM [CONFIG] [MODE] [special | denormal]
// Without a config it takes the first that the algorithm lists. The mode is words of settings_of()
// (launch.cpp). With `special` tensors have NaN and infinities, with `denormal` such numbers, else integers.
// Tests print such lines; `gdb --args` goes before them. Exits with 0 where the result is right, with 1 where
// it is not, and with 2 where it was asked for what there is not.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "kernel_problems.h"
#include "problem/config_fields.h"
#include "stand_ins.h"

using namespace convtune;

int main(int count, char** arguments) {
  const auto argument = [&](int i) { return i < count ? std::string(arguments[i]) : std::string(); };
  if (count < 3) {
    fmt::print(stderr, "usage: host_kernel ALGORITHM PROBLEM [CONFIG] [MODE] [special|denormal]\n");
    return 2;
  }
  try {
    host_gpu_tests::use_stand_ins();
    host_gpu_tests::set_mode(argument(4));
    const auto own = own_algorithms();
    const auto algorithm =
        std::find_if(own.begin(), own.end(), [&](auto* one) { return one->name() == argument(1); });
    if (algorithm == own.end()) throw Error(ErrorKind::invalid_argument, "there is no kernel " + argument(1));
    Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
    const ConvProblem problem = tf32(argument(2));
    if (const Support support = (*algorithm)->supports(problem, gpu.info()); !support)
      throw Error(ErrorKind::invalid_argument, support.reason());
    const Config config = argument(3).empty() ? (*algorithm)->candidates(problem, gpu.info()).front()
                                              : parse_config(argument(3));
    const auto executable = (*algorithm)->build(problem, gpu.info(), config);
    std::string fault;
    const TestData data = argument(5) == "special"    ? TestData::non_finite
                          : argument(5) == "denormal" ? TestData::denormal
                                                      : TestData::integer;
    for (const std::uint64_t seed :
         data == TestData::integer ? std::vector<std::uint64_t>{5} : std::vector<std::uint64_t>{5, 6, 7}) {
      Testbed bed(problem, gpu, data, seed, 0);
      fault += host_gpu_tests::fault_of(bed, *executable);
    }
    fmt::print("{} on {} with {}: {}\n", (*algorithm)->name(), to_string(problem), to_string(config),
               fault.empty() ? "right" : fault);
    return fault.empty() ? 0 : 1;
  } catch (const Error& error) {
    fmt::print(stderr, "host_kernel: {}\n", error.what());
    return 2;
  }
}
