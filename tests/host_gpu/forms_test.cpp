// The stand-in's instructions beside a GPU's: forms.txt was taken on one by `gpu_bits forms`.
#include "forms.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

namespace convtune::forms_test {
namespace {

TEST(Forms, GiveTheBitsThatAGpuGave) {
  std::ifstream table(CONVTUNE_HOST_GPU_DIR "/forms.txt");
  std::map<std::string, std::string> expected;
  for (std::string name, hash; std::getline(table, name, '\t') && std::getline(table, hash);)
    expected[name] = hash;
  const auto results = host_gpu_tests::run_forms();
  EXPECT_EQ(results.size(), expected.size());
  for (const host_gpu_tests::FormResult& form : results)
    EXPECT_EQ(form.hash(), expected[form.name])
        << form.name << ": `gpu_bits form '" << form.name << "' FILE` and host_bits show the words";
}

}  // namespace
}  // namespace convtune::forms_test
