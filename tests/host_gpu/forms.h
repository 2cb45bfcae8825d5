// Forms of instructions (forms.cuh), executed on device 0: what a GPU and its stand-in are compared by.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace convtune::host_gpu_tests {

struct FormResult {
  std::string name;                  // "half_product<true, 64, 128>", "load<Load::box>, 3"
  std::vector<std::uint32_t> words;  // that the form wrote, and what was there before where it did not

  std::string hash() const;
};

// Compiles and launches all forms, which are of compute capability 9.0. Throws Error where a device or a
// compiler refuses.
std::vector<FormResult> run_forms();

}  // namespace convtune::host_gpu_tests
