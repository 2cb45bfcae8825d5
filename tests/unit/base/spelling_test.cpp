// Tests the suggestions for an unknown name.
#include "convtune/spelling.h"

#include <gtest/gtest.h>

namespace convtune::spelling_test {
namespace {

const std::vector<std::string> kNames = {"tune",      "bench",     "rtx4090",  "vgg_conv1",
                                         "vgg_conv2", "vgg_conv3", "vgg_conv4"};

TEST(DidYouMean, AFewLettersOffIsOneName) {
  EXPECT_EQ(did_you_mean("tunee", kNames), "did you mean 'tune'?");
  EXPECT_EQ(did_you_mean("BENCH", kNames), "did you mean 'bench'?");
  EXPECT_EQ(did_you_mean("RTX-4090", kNames), "did you mean 'rtx4090'?");
}

TEST(DidYouMean, APartOfANameIsAllThatHoldIt) {
  EXPECT_EQ(did_you_mean("4090", kNames), "did you mean 'rtx4090'?");
  EXPECT_EQ(did_you_mean("vgg", kNames),
            "did you mean 'vgg_conv1', 'vgg_conv2' or 'vgg_conv3', or another of 4?");
}

TEST(DidYouMean, ASharedBeginningIsTheLast) {
  EXPECT_EQ(did_you_mean("vgg_c16", {"vgg_conv1", "vit"}), "did you mean 'vgg_conv1'?");
}

TEST(DidYouMean, NothingNearIsNothing) {
  for (const char* text : {"", "x", "un", "nothing_like_it", "vgx"})
    EXPECT_EQ(did_you_mean(text, kNames), "") << text;
  EXPECT_EQ(did_you_mean("tune", {}), "");
}

}  // namespace
}  // namespace convtune::spelling_test
