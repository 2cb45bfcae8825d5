// Suites: the embedded files byte for byte, files of the user's, and names that are nearly right.
#include "convtune/cases.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/embedded.h"
#include "refusal.h"

namespace convtune {
std::span<const EmbeddedFile> embedded_sample();  // tests/CMakeLists.txt embeds it here
}

namespace convtune::cases_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file of this test's own, removed at its end.
class SuiteFile {
 public:
  explicit SuiteFile(const std::string& text)
      : path_(testing::TempDir() + "convtune_cases_test." + std::to_string(getpid()) + ".txt") {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~SuiteFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string suite_refusal(const std::string& text) {
  const SuiteFile file(text);
  std::string message = refusal([&] { load_suite(file.path()); });
  if (const std::size_t at = message.find(file.path()); at != message.npos)
    message.replace(at, file.path().size(), "FILE");
  return message;
}

TEST(Embedded, HoldsTheFilesByteForByte) {
  ASSERT_EQ(embedded_cases().size(), 13u);
  for (const EmbeddedFile& file : embedded_cases())
    EXPECT_EQ(file.text, read(CONVTUNE_SOURCE_DIR "/cases/" + std::string(file.name))) << file.name;
}

// NUL, quotes, backslashes, trigraphs, raw string ends, high bytes, CRLF, no newline at the end.
TEST(Embedded, TakesAnyContent) {
  ASSERT_EQ(embedded_sample().size(), 2u);
  const EmbeddedFile& sample = embedded_sample()[0];
  EXPECT_EQ(sample.name, "embed_sample.bin");
  EXPECT_EQ(sample.text, read(CONVTUNE_SOURCE_DIR "/tests/unit/embed_sample.bin"));
  EXPECT_NE(sample.text.find('\0'), sample.text.npos);
  EXPECT_NE(sample.text.find(";[\\\"?"
                             "?/"),
            sample.text.npos);
  EXPECT_GT(sample.text.size(), 70000u);
  EXPECT_EQ(embedded_sample()[1].name, "embed_empty.bin");
  EXPECT_EQ(embedded_sample()[1].text, "");
}

TEST(Suites, AreInOrderNamedAndUnique) {
  std::vector<std::string> names;
  std::set<std::string> cases, keys;
  std::size_t count = 0;
  for (const Suite& suite : suites()) {
    names.push_back(suite.name);
    for (const ConvProblem& problem : suite.problems) {
      EXPECT_FALSE(problem.name.empty()) << to_string(problem);
      cases.insert(problem.name);
      keys.insert(key(problem));
      ++count;
    }
  }
  EXPECT_THAT(names, ElementsAre("stem", "body", "depthwise", "modern", "half", "video", "medical", "audio",
                                 "transposed", "training", "training3d", "training_nchw", "edges"));
  EXPECT_EQ(suite_names(), names);
  EXPECT_EQ(cases.size(), count);
  EXPECT_EQ(keys.size(), count);
}

TEST(Suites, EdgesAreSmallAndCoverTheEdges) {
  const std::vector<ConvProblem> edges = load_suite("edges");
  EXPECT_GE(edges.size(), 40u);
  bool batch_zero = false, depthwise = false, multiplier = false, asymmetric = false, skips = false,
       nhwc = false;
  for (const ConvProblem& x : edges) {
    EXPECT_LE(x.flops() / 2, 1e7) << x.name;
    batch_zero |= x.n == 0;
    depthwise |= x.groups > 1 && x.groups == x.c && x.k == x.c;
    multiplier |= x.groups > 1 && x.groups == x.c && x.k > x.c;
    asymmetric |= x.pad_top != x.pad_bottom;
    skips |= x.r > 1 && x.dilation_h > x.h;
    nhwc |= x.layout == Layout::nhwc;
  }
  EXPECT_TRUE(batch_zero && depthwise && multiplier && asymmetric && skips && nhwc);
}

// Each layer's gradients of x and of weights, but for first layers, of which nobody wants the former.
TEST(Suites, TrainingHasBothGradientsOfALayer) {
  const auto rows = [](const char* suite, Direction direction) {
    const std::vector<ConvProblem> all = load_suite(suite);
    return std::count_if(all.begin(), all.end(),
                         [&](const ConvProblem& problem) { return problem.direction == direction; });
  };
  EXPECT_EQ(rows("training", Direction::backward_weights), 33);
  EXPECT_EQ(rows("training", Direction::backward_data), 33);
  EXPECT_EQ(rows("training3d", Direction::backward_weights), 8);
  EXPECT_EQ(rows("training3d", Direction::backward_data), 7);
  EXPECT_EQ(rows("training_nchw", Direction::backward_weights), 17);
  EXPECT_EQ(rows("training_nchw", Direction::backward_data), 2);
}

TEST(LoadSuite, AllIsEverythingButTheEdges) {
  const std::size_t count =
      load_suite("stem").size() + load_suite("body").size() + load_suite("depthwise").size();
  const std::vector<ConvProblem> all = load_suite("all");
  EXPECT_EQ(all.size(), count);
  EXPECT_EQ(all.size(), 30u);
  EXPECT_EQ(all.front().name, "alexnet_conv1");
  EXPECT_EQ(all.back().name, "resnext_g32_3x3_128");
}

TEST(LoadSuite, ReadsAFile) {
  const SuiteFile file(
      "# a comment\n\n  \t\r\n"
      "ic3ih5oc4kh3n\"a # b\"   # behind a problem\r\n"
      "   mb1ic3ih5oc4kh3 act=relu\n"
      "ic3ih6oc4kh3");
  const std::vector<ConvProblem> problems = load_suite(file.path());
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[0].name, "a # b");
  EXPECT_EQ(problems[1], parse_problem("mb1ic3ih5oc4kh3 act=relu"));
  EXPECT_EQ(problems[2], parse_problem("ic3ih6oc4kh3"));
}

TEST(LoadSuite, NamesFileAndLine) {
  EXPECT_EQ(suite_refusal("# one\nic3ih5oc4kh3\nic3id5oc4\n"),
            "FILE:3: problem 'ic3id5oc4': kd is missing, and has no default");
  EXPECT_THAT(suite_refusal("ic3ih5oc4kh3n\"open # end"), HasSubstr("FILE:1: problem"));
  EXPECT_EQ(suite_refusal("# nothing\n\n"), "FILE holds no problem");
  EXPECT_EQ(suite_refusal(""), "FILE holds no problem");
  EXPECT_THAT(suite_refusal(std::string(10, '\0')), HasSubstr("FILE:1: problem '\\x00"));
  EXPECT_THAT(suite_refusal(std::string(5000, 'x')), HasSubstr("5000 bytes are more than the limit of 4096"));
}

TEST(LoadSuite, LeavesOutWhatItCannotUse) {
  const SuiteFile file(
      "--reset --dt=f32  # as in benchdnn's input files\n"
      "ic3ih5oc4kh3\n"
      "ic3id5oc4kd3ih4\n"
      "  --batch=shapes_1d\n"
      "ic3iw5oc4kw3n\"--no option\"\n");
  std::vector<std::string> left_out;
  const std::vector<ConvProblem> problems = load_suite(file.path(), &left_out);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[1].name, "--no option");
  EXPECT_THAT(left_out,
              ElementsAre(file.path() + ":1: benchdnn's option '--reset' is not heeded",
                          AllOf(HasSubstr(file.path() + ":3: problem"), HasSubstr("kh is missing")),
                          file.path() + ":4: benchdnn's option '--batch=shapes_1d' is not heeded; give the "
                                        "file to --suite"));
}

TEST(LoadSuite, NeedsOneLineThatCanBeUsed) {
  const SuiteFile file("--dt=u8:s8:s8\nic3id5oc4\n");
  std::vector<std::string> left_out;
  EXPECT_EQ(
      refusal([&] { load_suite(file.path(), &left_out); }),
      fmt::format("{0} holds no problem that can be used; {0}:1: benchdnn's option '--dt=u8:s8:s8' is not "
                  "heeded",
                  file.path()));
}

TEST(LoadSuite, StopsAt64MiB) {
  const SuiteFile file("ic3ih5oc4kh3\n");
  std::filesystem::resize_file(file.path(), (std::uintmax_t{64} << 20) + 1);  // sparse
  EXPECT_THAT(refusal([&] { load_suite(file.path()); }), HasSubstr("is over 64 MiB"));
}

TEST(LoadSuite, UnknownNamesListTheKnown) {
  for (const char* name : {"", "/nowhere/suite.txt", "/"})
    EXPECT_EQ(refusal([&] { load_suite(name); }),
              fmt::format("'{}' is neither a suite (stem, body, depthwise, modern, half, video, medical, "
                          "audio, transposed, training, training3d, training_nchw, edges, all) nor a "
                          "file with problems",
                          name));
  EXPECT_THAT(refusal([] { load_suite("steam"); }), HasSubstr("did you mean 'stem'?"));
}

TEST(LoadSuite, SaysThatAFileCannotBeRead) {
  // Opens, but does not read, not even for root.
  EXPECT_EQ(refusal([&] { load_suite("/proc/self/mem"); }, ErrorKind::io),
            "reading the suite file '/proc/self/mem' failed");
  if (geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const SuiteFile file("ic3ih5oc4kh3\n");
  std::filesystem::permissions(file.path(), std::filesystem::perms::none);
  EXPECT_THAT(refusal([&] { load_suite(file.path()); }, ErrorKind::io),
              AllOf(HasSubstr("cannot read the suite file"), HasSubstr("Permission denied")));
}

TEST(FindProblem, TakesNamesAndLines) {
  for (const Suite& suite : suites())
    for (const ConvProblem& problem : suite.problems) {
      EXPECT_EQ(find_problem(problem.name), problem);
      EXPECT_EQ(find_problem(problem.name).name, problem.name);
      EXPECT_EQ(find_problem(to_string(problem)), problem);
    }
}

TEST(FindProblem, NamesTheNearest) {
  const auto answer = [](std::string_view text) { return refusal([&] { find_problem(text); }); };
  EXPECT_EQ(answer("alexnet_conv"), "no case is named 'alexnet_conv'; did you mean 'alexnet_conv1'?");
  EXPECT_EQ(answer("alexnet-conv2"), "no case is named 'alexnet-conv2'; did you mean 'alexnet_conv2'?");
  EXPECT_EQ(answer("Resnet_Stem"), "no case is named 'Resnet_Stem'; did you mean 'resnet_stem'?");
  EXPECT_EQ(answer("alexnet"),
            "no case is named 'alexnet'; did you mean 'alexnet_conv1', 'alexnet_conv1_torchvision' or "
            "'alexnet_conv2', or another of 6?");
  EXPECT_THAT(answer("resnet50"),
              HasSubstr("no case is named 'resnet50'; did you mean 'train_resnet50_stem_w', "));
  EXPECT_THAT(answer("nothing_like_it_at_all"),
              AllOf(HasSubstr("column 1: 'nothing' is none of"), HasSubstr("nor is it the name of a case")));
  EXPECT_THAT(answer("mb1ic3ih5oc4kh3zz"),
              AllOf(HasSubstr("column 16: 'zz' is none of"), Not(HasSubstr("name of a case"))));
  EXPECT_THAT(answer(""), AllOf(HasSubstr("ic is missing"), Not(HasSubstr("name of a case"))));
  EXPECT_THAT(answer(std::string(100000, 'a')), HasSubstr("100000 bytes are more than the limit of 4096"));
}

}  // namespace
}  // namespace convtune::cases_test
