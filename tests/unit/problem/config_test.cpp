// Config: its text form, both ways, and the way from and to an algorithm's own struct.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <set>

#include "convtune/convolution.h"
#include "problem/config_fields.h"
#include "refusal.h"

namespace convtune::config_test {
namespace {

using testing::HasSubstr;

struct TileConfig {
  int channels = 6;
  std::int64_t vectors = 4;
  bool aligned = true;  // no choice
  template <class Self, class F>
  static void visit(Self& self, F&& field) {
    field("channels", self.channels, 1, 64, "output channels of a tile");
    field("vectors", self.vectors, 1, 16, "vectors of a tile");
    field("aligned", self.aligned);
  }
};

TEST(Config, HasATextFormBothWays) {
  const Config config{{{"vectors", 4}, {"channels", -6}}};
  EXPECT_EQ(to_string(config), "vectors=4 channels=-6");
  EXPECT_EQ(parse_config("vectors=4 channels=-6"), config);
  EXPECT_EQ(parse_config("  vectors=4\t channels=-6 "), config);
  EXPECT_EQ(to_string(Config{}), "");
  EXPECT_EQ(parse_config(""), Config{});
}

TEST(Config, AtFindsOrNamesWhatIsMissing) {
  const Config config = parse_config("vectors=4 channels=6");
  EXPECT_EQ(config.at("channels"), 6);
  EXPECT_EQ(refusal([&] { config.at("depth"); }), "config 'vectors=4 channels=6': it has no field 'depth'");
}

TEST(Config, RefusesWhatItCannotRead) {
  const auto answer = [](std::string_view text) { return refusal([&] { parse_config(text); }); };
  EXPECT_EQ(answer("a=1 b"), "config 'a=1 b': column 5: 'b' is not name=integer");
  for (const char* text : {"=1", "a=", "a", "a=x", "a=1x", "a==1", "a= 1", "1a=1", "a-b=1", "a=+1", "a=1,b=2",
                           "a=9223372036854775808", "a=1.5", "\xc3\xa4=1"})
    EXPECT_THAT(answer(text), HasSubstr("is not name=integer")) << text;
  EXPECT_EQ(answer("a=1 a=1"), "config 'a=1 a=1': column 5: 'a' is given twice");
  EXPECT_THAT(answer(std::string(5000, 'a')), HasSubstr("5000 bytes are more than the limit of 4096"));
}

TEST(Config, BecomesATypedConfigAndBack) {
  EXPECT_EQ(to_string(to_config(TileConfig{})), "channels=6 vectors=4");
  const auto typed = from_config<TileConfig>(parse_config("vectors=8 channels=2"));
  EXPECT_EQ(typed.channels, 2);
  EXPECT_EQ(typed.vectors, 8);
  EXPECT_THAT(refusal([] { from_config<TileConfig>(parse_config("vectors=8")); }), HasSubstr("'channels'"));
  EXPECT_THAT(refusal([] { from_config<TileConfig>(parse_config("vectors=8 channels=2 depth=1")); }),
              HasSubstr("fields that the algorithm does not know"));
  EXPECT_EQ(refusal([] { from_config<TileConfig>(parse_config("vectors=17 channels=2")); }),
            "vectors must be 1 to 16, not 17");
  EXPECT_FALSE(from_config(to_config(typed), TileConfig{.aligned = false}).aligned)
      << "what is no choice stays";
}

TEST(Config, FieldsSayWhatTheyMean) {
  const std::vector<ConfigField> fields = config_fields<TileConfig>();
  ASSERT_EQ(fields.size(), 2u);
  EXPECT_EQ(fields[1].name, "vectors");
  EXPECT_EQ(fields[1].least, 1);
  EXPECT_EQ(fields[1].most, 16);
  EXPECT_EQ(fields[1].meaning, "vectors of a tile");
}

RC_GTEST_PROP(Config, RoundTrip, (const std::vector<std::int64_t>& values)) {
  Config config;
  for (const std::int64_t value : values) {
    if (config.values.size() == 100) break;
    config.values.emplace_back("field_" + std::to_string(config.values.size()), value);
  }
  RC_ASSERT(parse_config(to_string(config)) == config);
}

RC_GTEST_PROP(Config, AnyBytesParseOrAreRefused, (const std::string& text)) {
  try {
    const Config config = parse_config(text);
    RC_ASSERT(parse_config(to_string(config)) == config);
  } catch (const Error& error) {
    RC_ASSERT(error.kind() == ErrorKind::invalid_argument);
  }
}

TEST(PlanSource, HasATextForm) {
  std::set<std::string_view> names;
  for (const PlanSource source : {PlanSource::tuned, PlanSource::unproven, PlanSource::nearest,
                                  PlanSource::estimate, PlanSource::forced})
    names.insert(to_string(source));
  EXPECT_EQ(names, (std::set<std::string_view>{"tuned", "unproven", "nearest", "estimate", "forced"}));
}

}  // namespace
}  // namespace convtune::config_test
