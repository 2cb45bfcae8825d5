// The nevers and the floors of ARCHITECTURE.md, held over every #include line of the real tree. The
// floors are read from ARCHITECTURE.md itself, so that the page cannot drift from the code.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;
const fs::path kRoot = CONVTUNE_SOURCE_DIR;
constexpr std::array kRoots = {"include", "src", "cli"};

struct Include {
  std::string file;  // "src/cpu/direct.cpp"
  int line = 0;
  std::string target;  // a file of ours ("src/config.h"), else as it is written ("fmt/format.h")
};

bool within(std::string_view path, std::string_view folder) {
  return path.starts_with(folder);
}
bool ours(std::string_view target) {
  return within(target, "include/") || within(target, "src/") || within(target, "cli/");
}
// <vector>, <cstdint>: every header of the C++ standard is one word. The C face needs two of C's.
bool standard(std::string_view target) {
  return target.find_first_of("./") == std::string_view::npos || target == "stddef.h" || target == "stdint.h";
}
bool posix(std::string_view target) {
  constexpr std::array<std::string_view, 4> kHeaders = {"fcntl.h", "signal.h", "termios.h", "unistd.h"};
  return within(target, "sys/") || std::count(kHeaders.begin(), kHeaders.end(), target) > 0;
}

// A room is a header with its source: "src/problem.cpp" and "src/problem.h" are "src/problem".
// The face, the command and the device code are one room each.
std::string room_of(const std::string& file) {
  if (within(file, "include/convtune/")) return "include/convtune";
  if (within(file, "cli/")) return "cli";
  if (within(file, "src/cuda/kernels/")) return "src/cuda/kernels";
  return file.substr(0, file.rfind('.'));
}

// Why `file` must not include `target`, as one of the nevers; nothing when it may.
std::optional<std::string> broken_never(const std::string& file, const std::string& target) {
  const auto from = [&](std::string_view folder) { return within(file, folder); };
  const auto to = [&](std::string_view folder) { return within(target, folder); };
  if (from("include/") && !standard(target) && !to("include/convtune/"))
    return "the public headers include standard headers and each other alone";
  if (from("src/cpu/") && (to("src/cuda/") || to("cuda") || to("nvrtc") || to("cudnn")))
    return "cpu/ and cuda/ never meet";
  if (from("src/cuda/") && (to("src/cpu/") || to("hwy/") || to("dnnl") || to("oneapi/") || target == "omp.h"))
    return "cpu/ and cuda/ never meet";
  if (from("src/cuda/kernels/") && !to("src/cuda/kernels/"))
    return "device code includes nothing outside its folder";
  for (std::string_view room : {"src/database", "src/trials", "src/record_json"})
    if (room_of(file) == room &&
        (to("src/cpu/") || to("src/cuda/") || to("src/backend.") || to("src/algorithms.")))
      return "records know no backend";
  if (from("cli/") && !standard(target) && !posix(target) && !to("cli/") && !to("include/convtune/") &&
      !to("CLI/") && !to("fmt/") && !to("nlohmann/"))
    return "the command is a client of the public headers alone";
  if (from("src/c/") && !standard(target) && !to("src/c/") && !to("include/convtune/") && !to("fmt/") &&
      !to("nlohmann/"))
    return "the C face is a client of the public headers alone";
  return std::nullopt;
}

std::string from_root(const fs::path& path) {
  return path.lexically_relative(kRoot).generic_string();
}

std::vector<fs::path> source_files() {
  std::vector<fs::path> files;
  for (const char* root : kRoots)
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / root)) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp" || extension == ".cuh") files.push_back(entry.path());
    }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Include> includes_of(const fs::path& file) {
  static const std::regex kInclude(R"(^\s*#\s*include\s*["<]([^">]+)[">].*)");
  std::vector<Include> includes;
  std::ifstream in(file);
  std::smatch match;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!std::regex_match(line, match, kInclude)) continue;
    std::string target = match[1];
    for (const fs::path& folder : {file.parent_path(), kRoot / "src", kRoot / "include"})
      if (fs::exists(folder / target)) {
        target = from_root((folder / target).lexically_normal());
        break;
      }
    includes.push_back({from_root(file), number, target});
  }
  return includes;
}

// ARCHITECTURE.md has one line a room: its floor, its path, its job.
std::map<std::string, int> floors() {
  static const std::regex kLine(R"(^ *(\d+)  ((?:include|src|cli)[\w/]*)  +\S.*)");
  std::map<std::string, int> floors;
  std::ifstream in(kRoot / "ARCHITECTURE.md");
  std::smatch match;
  for (std::string line; std::getline(in, line);)
    if (std::regex_match(line, match, kLine)) {
      EXPECT_FALSE(floors.contains(match[2])) << "ARCHITECTURE.md has two lines for " << match[2];
      floors[match[2]] = std::stoi(match[1]);
    }
  return floors;
}

TEST(Includes, BreakNoNever) {
  std::size_t seen = 0;
  for (const fs::path& file : source_files())
    for (const Include& include : includes_of(file)) {
      ++seen;
      if (const auto never = broken_never(include.file, include.target))
        ADD_FAILURE() << include.file << ":" << include.line << " includes " << include.target << ", but "
                      << *never;
    }
  EXPECT_GT(seen, 100u) << "hardly any #include line was found under " << kRoot;
}

TEST(Includes, GoDownOrStay) {
  const auto floor = floors();
  for (const fs::path& file : source_files())
    for (const Include& include : includes_of(file)) {
      if (!ours(include.target)) continue;
      const auto from = floor.find(room_of(include.file)), to = floor.find(room_of(include.target));
      if (from == floor.end() || to == floor.end()) continue;  // the next test says so
      EXPECT_LE(to->second, from->second)
          << include.file << ":" << include.line << " (floor " << from->second << ") looks up to "
          << include.target << " (floor " << to->second << ")";
    }
}

TEST(Architecture, NamesEveryRoomAndNoOther) {
  std::set<std::string> rooms, named;
  for (const fs::path& file : source_files()) rooms.insert(room_of(from_root(file)));
  for (const auto& [room, floor] : floors()) named.insert(room);
  for (const auto& room : rooms)
    EXPECT_TRUE(named.contains(room)) << room << " has no line in ARCHITECTURE.md";
  for (const auto& room : named)
    EXPECT_TRUE(rooms.contains(room)) << "ARCHITECTURE.md names " << room << ", which is not there";
}

// Each never, broken on purpose: the rules above can say no.
TEST(Includes, RulesCanSayNo) {
  const std::pair<const char*, const char*> forbidden[] = {
      {"include/convtune/tensor.h", "cuda.h"},
      {"include/convtune/tensor.h", "nlohmann/json.hpp"},
      {"include/convtune/tensor.h", "src/config.h"},
      {"src/cpu/direct.cpp", "src/cuda/driver.h"},
      {"src/cpu/direct.cpp", "cuda_runtime.h"},
      {"src/cuda/driver.cpp", "src/cpu/cpu.h"},
      {"src/cuda/driver.cpp", "hwy/highway.h"},
      {"src/cuda/kernels/direct_stem.cuh", "cstdint"},
      {"src/cuda/kernels/direct_stem.cuh", "src/config.h"},
      {"src/database.cpp", "src/backend.h"},
      {"src/trials.cpp", "src/cpu/cpu.h"},
      {"src/record_json.cpp", "src/algorithms.h"},
      {"cli/tune.cpp", "src/config.h"},
      {"cli/tune.cpp", "omp.h"},
      {"src/c/c_face.cpp", "src/backend.h"},
      {"src/c/c_face.cpp", "cli/options.h"},
      {"src/c/c_face.cpp", "CLI/CLI.hpp"},
  };
  for (const auto& [file, target] : forbidden)
    EXPECT_TRUE(broken_never(file, target)) << file << " may include " << target;
  const std::pair<const char*, const char*> allowed[] = {
      {"include/convtune/problem.h", "include/convtune/tensor.h"},
      {"include/convtune/problem.h", "cstdint"},
      {"src/cpu/direct.cpp", "hwy/highway.h"},
      {"src/cuda/kernels/direct_stem.cuh", "src/cuda/kernels/epilogue.cuh"},
      {"src/database.cpp", "src/private_file.h"},
      {"cli/tune.cpp", "CLI/CLI.hpp"},
      {"cli/progress.cpp", "sys/ioctl.h"},
      {"src/c/c_face.cpp", "include/convtune/report.h"},
      {"src/c/c_face.cpp", "nlohmann/json.hpp"},
  };
  for (const auto& [file, target] : allowed)
    EXPECT_FALSE(broken_never(file, target)) << file << " may not include " << target;
}

}  // namespace
