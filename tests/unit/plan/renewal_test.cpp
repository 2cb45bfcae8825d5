// Records that were proven against an older library of the vendor's than the one that is here.
#include <gtest/gtest.h>

#include "convtune/database.h"
#include "cpu/cpu.h"
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

}  // namespace
}  // namespace convtune::renewal_test
