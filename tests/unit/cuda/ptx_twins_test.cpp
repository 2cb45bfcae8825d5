// Instructions are in src/cuda/ptx alone, and each has a twin in tests/host_gpu/cuda/ptx of the same name and
// the same arguments, with which kernels are executed without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace convtune::ptx_twins_test {
namespace {

namespace fs = std::filesystem;
const fs::path kRoot = CONVTUNE_SOURCE_DIR;

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string without_comments(const std::string& text) {
  return std::regex_replace(text, std::regex("//[^\n]*"), "");
}

// "ld_shared_v2(float&,float&,unsigned)": names of arguments and of macros' parts do not count.
std::set<std::string> functions_of(const std::string& commented) {
  const std::string text = without_comments(commented);
  std::set<std::string> found;
  const std::regex function(
      R"((?:inline|__forceinline__|static|constexpr)\s[^;={}()]*?\b(\w+)\(([^{};]*?)\)\s*\{)");
  for (std::sregex_iterator at(text.begin(), text.end(), function), end; at != end; ++at) {
    std::string arguments = (*at)[2];
    arguments = std::regex_replace(arguments, std::regex(R"(\\|\n)"), " ");
    arguments = std::regex_replace(arguments, std::regex(R"(\s+)"), " ");
    arguments = std::regex_replace(arguments, std::regex(R"(\(&\s*\w*\)\[[^\]]*\])"),
                                   "(&)[]");  // lengths are macros' names
    arguments = std::regex_replace(arguments, std::regex(R"(([&*\w\]>])\s+\w+(?=\s*(,|$)))"), "$1");
    found.insert((*at)[1].str() + "(" + std::regex_replace(arguments, std::regex(" "), "") + ")");
  }
  return found;
}
// Functions that macros make, and classes.
std::set<std::string> names_of(const std::string& text) {
  std::set<std::string> found;
  const std::regex made(R"(\n(?:CONVTUNE_MMA\((\w+),|struct (?:alignas\(\d+\) )?(\w+)[;\s]))");
  for (std::sregex_iterator at(text.begin(), text.end(), made), end; at != end; ++at)
    found.insert((*at)[1].matched ? (*at)[1] : (*at)[2]);
  return found;
}

TEST(PtxTwins, EveryInstructionHasOne) {
  int files = 0, functions = 0;
  for (const auto& entry : fs::directory_iterator(kRoot / "src/cuda/ptx")) {
    const fs::path twin = kRoot / "tests/host_gpu/cuda/ptx" / entry.path().filename();
    ASSERT_TRUE(fs::exists(twin)) << twin;
    const std::string ours = text_of(entry.path()), theirs = text_of(twin);
    const std::set<std::string> there = functions_of(theirs);
    for (const std::string& function : functions_of(ours)) {
      if (function.starts_with("name(")) continue;  // a macro's own
      ++functions;
      EXPECT_TRUE(there.contains(function)) << function << " of " << entry.path() << " has no twin";
    }
    for (const std::string& name : names_of(ours))
      EXPECT_TRUE(std::regex_search(theirs, std::regex("\\b" + name + "\\b")))
          << name << " of " << entry.path() << " has no twin";
    ++files;
  }
  EXPECT_GE(files, 12);
  EXPECT_GE(functions, 70);
  const fs::path twins = kRoot / "tests/host_gpu/cuda/ptx";
  EXPECT_EQ(std::distance(fs::directory_iterator(twins), fs::directory_iterator()), files);
}

TEST(PtxTwins, OneThatIsMissingIsSeen) {
  const std::string two =
      "inline void a(unsigned to) {\n}\ninline void b(const void* from, int (&x)[4]) {\n}\n";
  EXPECT_EQ(functions_of(two), (std::set<std::string>{"a(unsigned)", "b(constvoid*,int(&)[])"}));
}

// True where a text has an asm statement of more than an empty instruction, which only keeps a compiler from
// moving something.
bool has_instruction(const std::string& text) {
  for (std::size_t at = text.find("asm"); at != text.npos; at = text.find("asm", at + 3)) {
    std::size_t open = text.find_first_not_of(' ', at + 3);
    if (open != text.npos && text.compare(open, 8, "volatile") == 0)
      open = text.find_first_not_of(' ', open + 8);
    if (open == text.npos || text[open] != '(') continue;
    const std::size_t begin = text.find_first_not_of(" \n", open + 1);
    if (begin != text.npos && text.compare(begin, 2, "\"\"") != 0) return true;
  }
  return false;
}

TEST(PtxTwins, NoInstructionIsElsewhere) {
  EXPECT_TRUE(has_instruction("asm volatile(\n  \"mov\""));
  EXPECT_TRUE(has_instruction("asm(CONVTUNE_IF(\"%1\")"));
  EXPECT_FALSE(has_instruction("asm volatile(\"\" : \"+r\"(a)) // asm statements"));
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "src/cuda")) {
    if (!entry.is_regular_file() || entry.path().parent_path().filename() == "ptx") continue;
    if (entry.path().extension() != ".cuh" && entry.path().extension() != ".h") continue;
    ++files;
    EXPECT_FALSE(has_instruction(text_of(entry.path()))) << entry.path();
  }
  EXPECT_GT(files, 60);
}

}  // namespace
}  // namespace convtune::ptx_twins_test
