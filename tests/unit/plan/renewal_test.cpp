// Records that were proven against an older library of the vendor's than the one that is here.
#include <gtest/gtest.h>

#include "convtune/database.h"
#include "cpu/onednn/onednn.h"
#include "cpu/onednn/onednn_api.h"
#include "cuda/compile/compiler.h"
#include "plan/algorithms.h"

namespace convtune::renewal_test {
namespace {

Record proven_against(const std::string& software) {
  Record record;
  record.device = "cpu|AMD EPYC|family 25 model 17|avx512|2 threads";
  record.software = software;
  return record;
}

TEST(Renewal, IsOfferedWhereAnOlderLibraryWasBeaten) {
  if (cpu::onednn() == nullptr) GTEST_SKIP() << cpu::onednn_version();
  const std::string here = vendor_library(Device::Kind::cpu);
  EXPECT_EQ(here, "oneDNN " + cpu::onednn_version());
  EXPECT_EQ(renewal(proven_against("convtune 0.1.0, oneDNN 1.9.10")),
            "proven against oneDNN 1.9.10, and " + here + " is here now: `convtune tune --retune` renews it");
  EXPECT_NE(renewal(proven_against("convtune 0.1.0")).find("or none, and " + here), std::string::npos);

  EXPECT_EQ(renewal(proven_against("convtune 0.1.0, " + here)), "");
  EXPECT_EQ(renewal(proven_against("convtune 0.1.0, g++ 12.2.0, " + here)), "");
  EXPECT_EQ(renewal(proven_against("convtune 0.1.0, oneDNN 99.0.0")), "") << "what is here is the older one";
}

TEST(Renewal, IsOfferedWhereAnotherCompilerMadeTheMachineCode) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << cuda::describe_nvrtc();
  Record record = proven_against("convtune 0.1.0");
  record.compiler = "NVRTC 12.4 build 00000000";
  EXPECT_EQ(renewal(record), "measured with machine code of NVRTC 12.4 build 00000000, and " +
                                 cuda::nvrtc_build() + " is here now: `convtune tune --retune` renews it");
  record.compiler = cuda::nvrtc_build();
  EXPECT_EQ(renewal(record).find("NVRTC"), std::string::npos) << renewal(record);
  record.compiler.clear();
  EXPECT_EQ(renewal(record).find("NVRTC"), std::string::npos) << renewal(record);
}

}  // namespace
}  // namespace convtune::renewal_test
