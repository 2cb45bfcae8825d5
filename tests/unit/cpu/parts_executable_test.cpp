// Gradients of x whose stride leaves pixels that no tap meets, by every algorithm that takes them: zeros
// there, and exact elsewhere.
#include <gtest/gtest.h>

#include <string>

#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/backend/cpu_backend.h"
#include "measure/testbed.h"

namespace convtune::parts_executable_test {
namespace {

// Strides beyond the filter, strides over dilated filters, residues that are apart, groups, both layouts.
const char* const kProblems[] = {"mb2ic7ih9oc5kh1sh2",
                                 "mb1ic4ih11oc6kh3sh2dh1ph2",
                                 "mb1ic4ih11oc6kh2sh3 layout=nhwc",
                                 "mb2g4ic8ih9oc8kh1sh2 layout=nhwc",
                                 "mb1ic4ih17oc6kh3sh3dh1ph2",
                                 "mb1ic4ih17oc6kh3sh4dh1ph2 dtype=bf16",
                                 "mb1g8ic8iw40oc8kw3sw2pw1dw1",
                                 "mb1ic16ih12oc16kh1sh4 layout=nhwc dtype=bf16"};

// Rows of dx whose residues are a part each, are of one part, or are of both: even and odd extents, strides
// with a loop of their own and without, cropped at both ends, groups, frames.
const char* const kRows[] = {"mb2ic7ih9iw11oc5oh18ow21kh3kw3sh2sw2ph1pw1",
                             "mb1ic6ih7iw9oc9kh2kw2sh2sw2ph0pw0",
                             "mb1ic4ih5iw7oc6oh11ow15kh4kw4sh2sw2ph1pw1 dtype=bf16",
                             "mb2ic5ih4iw9oc3kh5kw5sh3sw3ph1pw1",
                             "mb1ic4iw21oc6kw8sw4pw2",
                             "mb1ic4iw13oc5kw16sw8pw4",
                             "g2mb1ic8ih6iw5oc6oh12ow10kh3kw3sh2sw2ph1pw1",
                             "mb1ic4id3ih4iw5oc6kd2kh2kw2sd2sh2sw2pd0ph0pw0",
                             "mb1ic4id3ih4iw5oc6kd3kh3kw3sd2sh2sw2pd1ph1pw1"};

int checked_with_all(const ConvProblem& problem) {
  const DeviceInfo& info = cpu::backend().info();
  int taken = 0, checked = 0;
  for (const Algorithm* const algorithm : cpu::own_algorithms()) {
    if (!algorithm->supports(problem, info)) continue;
    Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
    for (const Config& config : algorithm->candidates(problem, info)) {
      EXPECT_EQ(bed.check(*algorithm->build(problem, info, config)).failure, "")
          << algorithm->name() << " with " << to_string(config) << ": " << to_string(problem);
      if (++taken % 8 == 0) break;
    }
    checked += taken > 0;
  }
  EXPECT_GT(taken, 0) << to_string(problem);
  return checked;
}

TEST(PartsExecutable, LeavesZerosWhereNoTapMeets) {
  int checked = 0;
  for (const char* const text : kProblems)
    checked += checked_with_all(parse_problem(std::string(text) + " dir=bwd_d bias=0"));
  EXPECT_GE(checked, 12);
}

TEST(PartsExecutable, StoresRowsOfSeveralParts) {
  for (const char* const text : kRows)
    for (const char* const words : {" dir=transposed", " dir=transposed act=sigmoid layout=nhwc"})
      EXPECT_GE(checked_with_all(parse_problem(std::string(text) + words)), 1);
}

// An epilogue turns an empty sum into more than a zero.
TEST(PartsExecutable, RefusesThemWithAnEpilogue) {
  for (const char* const words : {"bias=1", "bias=0 residual=1", "bias=0 act=sigmoid"}) {
    const ConvProblem problem = parse_problem("mb2ic7ih9oc5kh1sh2 dir=bwd_d " + std::string(words));
    for (const Algorithm* const algorithm : cpu::own_algorithms())
      EXPECT_FALSE(algorithm->supports(problem, cpu::backend().info())) << algorithm->name() << ": " << words;
  }
}

}  // namespace
}  // namespace convtune::parts_executable_test
