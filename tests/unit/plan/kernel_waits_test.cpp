// Every kernel of a run waits for the kernels before it on its stream: it may be launched before they have
// ended (cuda/launch/kernel.h).
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "cuda/compile/kernel_sources.h"
#include "cuda/launch/launch_plan.h"
#include "cuda/launch/transposition.h"
#include "kernel_problems.h"

namespace convtune::kernel_waits_test {
namespace {

// The kernels of a file that do not wait, but for those that pack weights, which are never launched early.
std::vector<std::string> kernels_that_do_not_wait(const std::string& text) {
  std::vector<std::string> found;
  const std::regex kernel("__global__[^{;]*?\\s(\\w+)\\((?=(const|void|int|float|Element|unsigned))");
  for (std::sregex_iterator at(text.begin(), text.end(), kernel), end; at != end; ++at) {
    const std::string name = (*at)[1];
    const auto begin = static_cast<std::size_t>(at->position());
    const std::string body = text.substr(begin, text.find("\n}\n", begin) - begin);
    if (!name.starts_with("pack_") && body.find("ptx::wait_for_earlier_grids(") == body.npos)
      found.push_back(name);
  }
  return found;
}

TEST(KernelsOfARun, WaitForEarlierGrids) {
  const std::string planted =
      "__global__ void __launch_bounds__(config.threads(), 2)\n    late(const int* x) {\n  *x;\n}\n"
      "__global__ void pack_late(int* x) {\n}\n"
      "__global__ void good(int* x) {\n  ptx::wait_for_earlier_grids();\n}\n";
  EXPECT_EQ(kernels_that_do_not_wait(planted), std::vector<std::string>{"late"});
  std::vector<std::string> files = {cuda::Transposition::kFile};
  for (const cuda::KernelAlgorithm* algorithm : own_algorithms())
    files.push_back(cuda::kernel_file(std::string(algorithm->name())));
  EXPECT_GT(files.size(), 10u);
  for (const std::string& file : files) {
    const std::string text = cuda::kernel_sources(file).front().text;
    EXPECT_NE(text.find("ptx::wait_for_earlier_grids("), text.npos) << file;
    EXPECT_EQ(kernels_that_do_not_wait(text), std::vector<std::string>{}) << file;
  }
}

}  // namespace
}  // namespace convtune::kernel_waits_test
