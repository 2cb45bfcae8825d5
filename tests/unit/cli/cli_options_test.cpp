// The command's small languages (budgets, shares, problem words), its exit codes and its files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "convtune/cases.h"
#include "convtune/error.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"

namespace convtune::cli::cli_options_test {
namespace {

namespace fs = std::filesystem;

std::string refusal(const std::function<void()>& action, ErrorKind kind = ErrorKind::invalid_argument) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "was accepted";
  return {};
}

TEST(ParseBudget, TakesTimesAndTrials) {
  EXPECT_DOUBLE_EQ(parse_budget("60s").seconds, 60);
  EXPECT_DOUBLE_EQ(parse_budget("1.5m").seconds, 90);
  EXPECT_DOUBLE_EQ(parse_budget("500ms").seconds, 0.5);
  EXPECT_DOUBLE_EQ(parse_budget("5 s").seconds, 5);
  EXPECT_EQ(parse_budget("60s").trials, 0);
  EXPECT_EQ(parse_budget("200t").trials, 200);
  EXPECT_EQ(parse_budget("200 trials").trials, 200);
  EXPECT_GT(parse_budget("200t").seconds, 86400);  // trials alone decide
}

TEST(ParseBudget, RefusesNonsenseByName) {
  for (const char* text : {"", "s", "60", "60x", "-5s", "0s", "0t", "1.5t", "1e400s", "inf s", "nan s",
                           "60s60s", " 60s", "9999999999s", "1e3s"}) {
    const std::string why = refusal([&] { parse_budget(text); });
    EXPECT_NE(why.find(fmt::format("'{}'", text)), std::string::npos) << why;
  }
}

TEST(ParseShare, TakesPercentAndFractions) {
  EXPECT_DOUBLE_EQ(parse_share("2%"), 0.02);
  EXPECT_DOUBLE_EQ(parse_share("2.5 %"), 0.025);
  EXPECT_DOUBLE_EQ(parse_share("0.02"), 0.02);
  EXPECT_DOUBLE_EQ(parse_share("0"), 0);
  for (const char* text : {"", "%", "2", "100%", "-1%", "2 percent", "nan"})
    refusal([&] { parse_share(text); });
}

TEST(ParseProblemWords, KeyValueWordsBelongToTheProblemBeforeThem) {
  const auto problems = parse_problem_words(
      {"mb2ic3ih8oc4kh3", "act=relu", "bias=0", "alexnet_conv1", "act=relu", "mb1ic1ih4oc1kh1"});
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[0], parse_problem("mb2ic3ih8oc4kh3 act=relu bias=0"));
  EXPECT_EQ(problems[1].name, "alexnet_conv1");
  EXPECT_EQ(problems[1].activation, Activation::relu);
  ConvProblem named = find_problem("alexnet_conv1");
  named.activation = Activation::relu;
  EXPECT_EQ(problems[1], named);
  EXPECT_EQ(problems[2], parse_problem("mb1ic1ih4oc1kh1"));
}

TEST(ParseProblemWords, AQuotedLineIsTheSameAsItsWords) {
  EXPECT_EQ(parse_problem_words({"mb2ic3ih8oc4kh3 act=relu", "bias=0"}),
            parse_problem_words({"mb2ic3ih8oc4kh3", "act=relu", "bias=0"}));
}

TEST(ParseProblemWords, WordsMayBeWhatMakesALineValid) {
  const auto problems = parse_problem_words({"mb1ic1ih3oc1kh4", "pad_bottom=1", "pad_right=1"});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].pad_bottom, 1);
}

TEST(ParseProblemWords, AShellTakesTheQuotesOfANameAway) {
  const auto problems = parse_problem_words({"mb1ic1ih3oc1kh1nfirst", "mb1ic1ih3oc1kh1na=b", "act=relu"});
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[1].name, "a=b");
  EXPECT_EQ(problems[1].activation, Activation::relu);
}

TEST(ParseProblemWords, AWordWithoutAProblemIsRefused) {
  refusal([] { parse_problem_words({"act=relu"}); });
}

TEST(ProblemOptions, NothingGivenSaysWhatToGive) {
  EXPECT_NE(refusal([] { (void)ProblemOptions{}.problems(); }).find("--suite"), std::string::npos);
}

TEST(ProblemOptions, BatchOverridesAndIsChecked) {
  ProblemOptions options;
  options.words = {"alexnet_conv1"};
  options.batch = 8;
  EXPECT_EQ(options.problems().at(0).n, 8);
  options.batch = std::int64_t{1} << 60;
  refusal([&] { (void)options.problems(); });
}

TEST(ExitCode, OfErrors) {
  EXPECT_EQ(exit_code(ErrorKind::invalid_argument), 2);
  EXPECT_EQ(exit_code(ErrorKind::unsupported), 2);
  EXPECT_EQ(exit_code(ErrorKind::io), 2);
  EXPECT_EQ(exit_code(ErrorKind::no_device), 3);
  EXPECT_EQ(exit_code(ErrorKind::internal), 4);
}

TEST(ExitCode, OfVerification) {
  VerifyReport report;
  EXPECT_EQ(exit_code(report), 0);
  report.interrupted = true;
  EXPECT_EQ(exit_code(report), 130);
  report.mismatches = 1;
  EXPECT_EQ(exit_code(report), 1);  // also when interrupted: a wrong answer was seen
  report.interrupted = false;
  EXPECT_EQ(exit_code(report), 1);
}

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() {
    std::string name = (fs::temp_directory_path() / "convtune_output_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~OutputFileTest() override { fs::remove_all(folder_); }
  static std::string text_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(OutputFileTest, AppearsWholeAndReplaces) {
  const fs::path path = folder_ / "out.json";
  const OutputFile file(path.string());
  EXPECT_EQ(files(), 0u);  // asking whether it can be written leaves nothing behind
  file.write("one");
  EXPECT_EQ(text_of(path), "one");
  OutputFile(path.string()).write("two");
  EXPECT_EQ(text_of(path), "two");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, ALinkStaysALink) {
  OutputFile((folder_ / "real").string()).write("old");
  fs::create_symlink("real", folder_ / "link");
  OutputFile((folder_ / "link").string()).write("new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(text_of(folder_ / "real"), "new");
}

TEST_F(OutputFileTest, RefusesBeforeAnythingIsMeasured) {
  const std::string missing = (folder_ / "none" / "out.json").string();
  const std::string why = refusal([&] { OutputFile file(missing); }, ErrorKind::io);
  EXPECT_NE(why.find(missing), std::string::npos) << why;
  refusal([&] { OutputFile file(folder_.string()); }, ErrorKind::io);
}

TEST_F(OutputFileTest, DevicesAreWrittenInPlace) {
  OutputFile("/dev/null").write("gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  refusal([] { OutputFile("/dev/full").write("no room"); }, ErrorKind::io);
}

}  // namespace
}  // namespace convtune::cli::cli_options_test
