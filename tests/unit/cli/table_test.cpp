// The command's table printer and progress line: widths, alignment, wrapping, colours, pace.
#include "table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "progress.h"
#include "report_cases.h"

namespace convtune::cli::table_test {
namespace {

TEST(DisplayWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("±µs"), 3);
  EXPECT_EQ(display_width("e\u0301"), 1);  // e and a combining accent
  EXPECT_EQ(display_width("畳み込み"), 8);
  EXPECT_EQ(display_width("\xff\xfe"), 2);  // malformed bytes are printed as one U+FFFD each
}

TEST(Printable, TakesTheTeethOutOfControlCharactersAndBadBytes) {
  EXPECT_EQ(printable("a\033[31mb"), "a\uFFFD[31mb");
  EXPECT_EQ(printable("a\nb\x7f"), "a\uFFFDb\uFFFD");
  EXPECT_EQ(printable("\xc0\xaf"), "\uFFFD\uFFFD");            // overlong slash
  EXPECT_EQ(printable("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");  // surrogate
  EXPECT_EQ(printable("\xc2\x9b"), "\uFFFD");                  // a C1 control sequence introducer
  EXPECT_EQ(printable("ok ± 畳"), "ok ± 畳");
}

RC_GTEST_PROP(Printable, IsIdempotentAndKeepsTheWidth, (const std::string& text)) {
  const std::string once = printable(text);
  RC_ASSERT(printable(once) == once);
  RC_ASSERT(display_width(once) >= display_width(text) - static_cast<int>(text.size()));
}

RC_GTEST_PROP(Cut, NeverTakesMoreColumnsThanAsked, (const std::string& text)) {
  const int width = *rc::gen::inRange(0, 20);
  const std::string shown = cut(printable(text), width);
  RC_ASSERT(display_width(shown) <= width);
  if (display_width(printable(text)) <= width) RC_ASSERT(shown == printable(text));
}

TEST(Cut, MarksWhatIsMissing) {
  EXPECT_EQ(cut("abcdef", 6), "abcdef");
  EXPECT_EQ(cut("abcdef", 5), "abcd…");
  EXPECT_EQ(cut("畳み込み", 4), "畳…");  // half a character is none
  EXPECT_EQ(cut("abc", 0), "");
}

TEST(Table, AlignsNumbersRightAndTextLeft) {
  Table table({{"name"}, {"us", Align::right}, {"why"}});
  table.add_row({"direct", "12.5", "fast"});
  table.add_row({"µ", "1234", ""});
  EXPECT_EQ(table.render({}),
            "name      us  why\n"
            "direct  12.5  fast\n"
            "µ       1234\n");
}

TEST(Table, FillsShortRowsAndHandlesNone) {
  Table table({{"a"}, {"b", Align::right}});
  EXPECT_EQ(table.render({}), "a  b\n");
  table.add_row({"x"});
  EXPECT_EQ(table.render({}), "a  b\nx\n");
  EXPECT_EQ(Table({}).render({}), "");
}

TEST(Table, WrapsTheLastColumnOnANarrowTerminalOnly) {
  Table table({{"name"}, {"config"}});
  table.add_row({"direct", "vectors=4 channels=6 rows=2"});
  EXPECT_EQ(table.render({.terminal = true, .color = false, .width = 28}),
            "name    config\n"
            "direct  vectors=4 channels=6\n"
            "        rows=2\n");
  const std::string plain = "name    config\ndirect  vectors=4 channels=6 rows=2\n";
  EXPECT_EQ(table.render({}), plain);
}

TEST(Table, ALastColumnWithoutRoomStandsBelowItsRow) {
  Table table({{"us", Align::right}, {"name"}, {"config"}});
  table.add_row({"9.5", "implicit_gemm_sm80", "block_m=96 block_n=128 stages=3"});
  EXPECT_EQ(table.render({.terminal = true, .color = false, .width = 30}),
            " us  name\n"
            "9.5  implicit_gemm_sm80\n"
            "    block_m=96 block_n=128\n"
            "    stages=3\n");
}

TEST(Table, ColumnsGoInTheOrderThatTheTableStates) {
  Table table({{"suite", Align::left, 2}, {"case"}, {"MB", Align::right, 1}, {"GFLOP", Align::right}});
  table.add_row({"stem", "alexnet", "452", "54"});
  const auto at = [&](int width) { return table.render({.terminal = true, .color = false, .width = width}); };
  EXPECT_EQ(at(26), "suite  case      MB  GFLOP\nstem   alexnet  452     54\n");
  EXPECT_EQ(at(25), "suite  case     GFLOP\nstem   alexnet     54\n");
  EXPECT_EQ(at(20), "case     GFLOP\nalexnet     54\n");
  EXPECT_EQ(at(5), at(20));  // columns that stay are left to the terminal
  EXPECT_EQ(at(0), at(26));
}

TEST(Table, ColumnsGoBeforeTheLastOneWraps) {
  Table table({{"problem"}, {"device", Align::left, 1}, {"algorithm and config"}});
  table.add_row({"mb1", "a machine", "onednn blocked=1"});
  const auto at = [&](int width) { return table.render({.terminal = true, .color = false, .width = width}); };
  EXPECT_EQ(at(40), "problem  device     algorithm and config\nmb1      a machine  onednn blocked=1\n");
  EXPECT_EQ(at(39), "problem  algorithm and config\nmb1      onednn blocked=1\n");
  // If it does not fit even so, the other columns need not go for it.
  table.add_row({"mb2", "another", "one two three four five six seven eight nine ten"});
  EXPECT_NE(at(48).find("device"), std::string::npos) << at(48);
}

TEST(Wrapped, BreaksAtBlanksAndIndentsWhatFollows) {
  EXPECT_EQ(wrapped("decision: one two three", 14, 2), "decision: one\n  two three");
  EXPECT_EQ(wrapped("one two", 0, 2), "one two");
  EXPECT_EQ(wrapped("alongword b", 4, 1), "alongword\n b");
  EXPECT_EQ(wrapped("one two", 9, 6, 6), "one\n      two");
}

TEST(Table, LinesFitTheTerminalWhereWordsAllow) {
  Table table({{"n", Align::right}, {"text"}});
  table.add_row({"1", "one two three four five six seven eight nine ten"});
  std::istringstream lines(table.render({.terminal = true, .color = false, .width = 24}));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 24) << line;
}

TEST(Table, ColoursOnlyWhereTheStyleSaysSo) {
  Table table({{"a"}});
  table.add_row({"good"}, Tone::strong);
  table.add_row({"wrong"}, Tone::bad);
  const std::string colored = table.render({.terminal = true, .color = true, .width = 80});
  EXPECT_NE(colored.find("\033[1mgood\033[0m"), std::string::npos);
  EXPECT_NE(colored.find("\033[31mwrong\033[0m"), std::string::npos);
  EXPECT_EQ(table.render({.terminal = true, .color = false, .width = 80}).find('\033'), std::string::npos);
}

TEST(StyleOf, AFileIsPlain) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const Style style = style_of(file);
  EXPECT_FALSE(style.terminal);
  EXPECT_FALSE(style.color);
  EXPECT_EQ(style.width, 0);
  std::fclose(file);
}

// A pseudo-terminal, as a person's shell would give.
class PseudoTerminal : public testing::Test {
 protected:
  void SetUp() override {
    master_ = std::fopen("/dev/ptmx", "r+");
    if (!master_ || grantpt(fileno(master_)) != 0 || unlockpt(fileno(master_)) != 0)
      GTEST_SKIP() << "no pseudo-terminals here";
    slave_ = std::fopen(ptsname(fileno(master_)), "r+");
    if (!slave_) GTEST_SKIP() << "no pseudo-terminals here";
  }
  void TearDown() override {
    if (slave_) std::fclose(slave_);
    if (master_) std::fclose(master_);
  }
  std::FILE *master_ = nullptr, *slave_ = nullptr;
};

TEST_F(PseudoTerminal, NoColorAndDumbTerminalsAreRespected) {
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  EXPECT_TRUE(style_of(slave_).terminal);
  EXPECT_TRUE(style_of(slave_).color);
  setenv("NO_COLOR", "1", 1);
  EXPECT_TRUE(style_of(slave_).terminal);
  EXPECT_FALSE(style_of(slave_).color);
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(style_of(slave_).terminal);
  EXPECT_FALSE(style_of(slave_).color);
}

TEST(ProgressText, SaysWhereItStandsAndWhatIsBest) {
  Progress progress;
  progress.stage = "screen";
  EXPECT_EQ(progress_text("conv", progress), "conv: screen");
  progress.done = 34;
  progress.total = 120;
  progress.best_us = 1234.4;
  progress.best = "direct vectors=4";
  progress.eta_seconds = 11.2;
  EXPECT_EQ(progress_text("conv", progress),
            "12 s left, conv: screen 34/120, best 1.234 ms (direct vectors=4)");
  progress.eta_seconds = 125;
  // Whatever is cut off is the config, and a problem's long text.
  EXPECT_EQ(progress_text("mb8ic64ih56oc64kh3ph1 precision=fp32", progress),
            "2 min 05 s left, mb8ic64ih56oc64kh3ph1 preci…: screen 34/120, best 1.234 ms (direct vectors=4)");
}

TEST(ProgressText, TheTimeLeftIsThatOfAllCases) {
  Progress progress;
  progress.stage = "vendor";
  progress.eta_seconds = 1;
  EXPECT_EQ(progress_text("[2/30] conv", progress, 28 * 2.0),
            "57 s left, 1 s of this case, [2/30] conv: vendor");
  progress.eta_seconds = 0;  // trials are limited, not time: only the mean of the cases before is known
  EXPECT_EQ(progress_text("[2/30] conv", progress, 56), "56 s left, [2/30] conv: vendor");
  CasePlace place{"[2/30] conv", 28, 0};
  EXPECT_EQ(place.seconds_behind(2), 56);
  place.mean_seconds = 0.5;  // records answer some of them
  EXPECT_EQ(place.seconds_behind(2), 14);
  place.mean_seconds = 3;  // a round that has begun is finished
  EXPECT_EQ(place.seconds_behind(2), 84) << "a case that takes longer than its budget does so again";
}

std::string contents(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

TEST(ProgressLine, ALogGetsALineEveryFewSeconds) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  double now = 100;
  {
    ProgressLine line(file, {}, [&] { return now; });
    for (int i = 0; i <= 110; ++i, now += 0.1) line.show(std::to_string(i) + std::string(200, '.'));
  }
  // 11 seconds in steps of 0.1: two lines, whole, and no control characters.
  const std::string text = contents(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_EQ(text.find_first_of("\r\033"), std::string::npos) << text;
  EXPECT_EQ(display_width(text.substr(0, text.find('\n'))), 80) << text;
  std::fclose(file);
}

TEST(ProgressLine, ATerminalIsRedrawnInPlaceAndLeftClean) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  double now = 0;
  {
    ProgressLine line(file, {.terminal = true, .color = true, .width = 8}, [&] { return now; });
    line.show("first text");
    now += 0.01;
    line.show("too soon");
    now += 0.2;
    line.show("second");
  }
  EXPECT_EQ(contents(file), "\rfirst …\033[K\rsecond\033[K\r\033[K");
  std::fclose(file);
}

}  // namespace
}  // namespace convtune::cli::table_test
