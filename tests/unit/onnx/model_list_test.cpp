// A model's list of convolutions: what is written is read again, and what is foreign is refused by its field.
#include "onnx/model_list.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "convtune/error.h"
#include "mutations.h"
#include "refusal.h"

namespace convtune::model_list_test {
namespace {

Model sample() {
  Model model;
  model.name = "net";
  model.convolutions = {{parse_problem("mb1ic3ih8oc4kh3 act=relu"), 2, {"first", "second"}},
                        {parse_problem("mb1ic4ih6oc4kh1 residual=1"), 1, {"third"}}};
  model.convolutions[0].problem.name = "first";
  model.convolutions[1].problem.name = "third";
  model.skipped = {{"ConvInteger", "its tensors are integers", 3, {"a", "b", "c"}}};
  return model;
}

TEST(ModelList, IsReadAsItWasWritten) {
  const Model model = sample(), read = parse_model(model_json(model));
  EXPECT_EQ(read, model);
  EXPECT_EQ(read.convolutions[0].problem.name, "first");
}

TEST(ModelList, EqualProblemsAreOne) {
  Model model = sample();
  model.convolutions.push_back({model.convolutions[0].problem, 5, {"last"}});
  const Model read = parse_model(model_json(model));
  ASSERT_EQ(read.convolutions.size(), 2u);
  EXPECT_EQ(read.convolutions[0].count, 7);
  EXPECT_EQ(read.convolutions[0].layers, (std::vector<std::string>{"first", "second", "last"}));
}

TEST(ModelList, NamesAreMadeFitForAProblem) {
  Model model = sample();
  model.convolutions[0].layers = {"a \"layer\"\n\x1b[31m"};
  EXPECT_EQ(parse_model(model_json(model)).convolutions[0].problem.name, "a _layer___[31m");
  model.convolutions[0].layers = {std::string(119, 'x') + "éééé"};
  EXPECT_EQ(parse_model(model_json(model)).convolutions[0].problem.name, std::string(119, 'x') + "…");
}

TEST(ModelList, WhatIsWrongIsNamed) {
  const auto with = [](const char* pointer, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(model_json(sample()));
    json[nlohmann::json::json_pointer(pointer)] = value;
    return refusal([&] { parse_model(json.dump()); });
  };
  const auto expect = [](const std::string& text, const char* needle) {
    EXPECT_NE(text.find(needle), text.npos) << text;
  };
  expect(with("/schema", 2), "schema is not 1");
  expect(with("/more", 1), "the list has a field 'more'");
  expect(with("/convolutions", "none"), "convolutions of the list is no list");
  expect(with("/convolutions/1/problem", "mb1ic3"), "problem of convolution 2: ");
  expect(with("/convolutions/1/problem", 7), "problem of convolution 2 is no text");
  for (const nlohmann::json& count :
       {nlohmann::json(0), nlohmann::json(-1), nlohmann::json(1.5), nlohmann::json(1e300),
        nlohmann::json("2"), nlohmann::json(2'000'000'000)})
    expect(with("/convolutions/0/count", count), "count of convolution 1 is no whole number from 1 to");
  expect(with("/convolutions/0/layers/0", nullptr), "a layer of convolution 1 is no text");
  expect(with("/skipped/0/why", std::string(5000, 'x')), "why of skipped layer 1 is no text of at most 4096");
  expect(refusal([] { parse_model("{"); }), "it is not JSON");
  expect(refusal([] { parse_model("[]"); }), "the list is no object");
}

TEST(ModelList, IsNeitherDeepNorEndless) {
  const auto expect = [](const std::string& text, const char* needle) {
    const std::string why = refusal([&] { parse_model(text); });
    EXPECT_NE(why.find(needle), why.npos) << why;
  };
  expect(std::string(1 << 20, '['), "it nests lists and objects more than 32 deep");
  expect(R"({"schema": 1, "model": )" + std::string(32, '[') + std::string(32, ']') + "}",
         "more than 32 deep");
  expect(R"({"schema": 1, "model": )" + std::string(31, '[') + std::string(31, ']') + "}", "convolutions");
  std::string many = "[0";
  for (int i = 0; i < 8'000'000; ++i) many += ",0";
  expect(many + "]", "it has more than 8000000 values");
}

// Each against all before would be 10^10 comparisons.
TEST(ModelList, HasManyProblems) {
  nlohmann::json list = {{"schema", 1}, {"model", "net"}, {"skipped", nlohmann::json::array()}};
  for (int i = 0; i < 100'000; ++i)
    list["convolutions"].push_back({{"problem", "mb1ic" + std::to_string(i % 90'000 + 1) + "ih8oc4kh3"},
                                    {"count", 1},
                                    {"layers", nlohmann::json::array()}});
  const Model model = parse_model(list.dump());
  ASSERT_EQ(model.convolutions.size(), 90'000u);
  EXPECT_EQ(model.convolutions[9'999].count, 2);
  EXPECT_EQ(model.convolutions[10'000].count, 1);
  EXPECT_EQ(model.convolutions[10'000].problem.c, 10'001);
}

TEST(ModelList, OfTheReaderARefusedProblemIsASkippedLayer) {
  nlohmann::json json = nlohmann::json::parse(model_json(sample()));
  json["convolutions"][0]["problem"] = "mb1ic3ih8oc4kh9";
  const Model model = model_of(json, true);
  ASSERT_EQ(model.convolutions.size(), 1u);
  ASSERT_EQ(model.skipped.size(), 2u);
  EXPECT_EQ(model.skipped[0].layers, (std::vector<std::string>{"first", "second"}));
  EXPECT_NE(model.skipped[0].why.find("kh"), std::string::npos) << model.skipped[0].why;
}

std::string repeated(std::string_view text, int times) {
  std::string all;
  while (times-- > 0) all += text;
  return all;
}

TEST(ModelList, ForeignTextIsReadOrRefused) {
  const std::string text = model_json(sample());
  int read = 0;
  for (const char* deep : {"[", "{\"a\":"})
    EXPECT_NE(refusal([&] { parse_model(repeated(deep, 100'000)); }), "accepted");
  for_each_mutation({text}, 10'000, [&](const std::string& changed) {
    try {
      const Model model = parse_model(changed);
      for (const ModelConvolution& one : model.convolutions) validate(one.problem);
      EXPECT_EQ(parse_model(model_json(model)), model);
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << changed;
    }
  });
  EXPECT_GT(read, 10);
}

}  // namespace
}  // namespace convtune::model_list_test
