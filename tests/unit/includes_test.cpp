// The folders of ARCHITECTURE.md, held over every #include line of the real tree: a file includes what lies
// in its own folder or in one that stands above it in that page's list, files of one folder make no circle,
// and some things are never included. The list is read from the page itself, so that it cannot drift from the
// code.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
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
  std::string file;  // "src/cpu/backend/cpu_backend.cpp"
  int line = 0;
  std::string target;  // a file of ours ("src/problem/config.cpp"), else as it is written ("fmt/format.h")
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
bool device_code(std::string_view path) {
  return path.ends_with(".cuh") || within(path, "src/cuda/tile/") || within(path, "src/cuda/ptx/");
}

// ---- Folders ----

// ARCHITECTURE.md has one line a folder, lowest first: its path and its job.
std::vector<std::string> folders() {
  static const std::regex kLine(R"(^((?:include|src|cli)[\w/]*)  +\S.*)");
  std::vector<std::string> folders;
  std::ifstream in(kRoot / "ARCHITECTURE.md");
  std::smatch match;
  for (std::string line; std::getline(in, line);)
    if (std::regex_match(line, match, kLine)) folders.push_back(match[1]);
  return folders;
}

// The listed folder that a file lies in: "src/cuda/algorithms/NAME/" is part of "src/cuda/algorithms".
std::optional<std::size_t> folder_of(const std::string& file, const std::vector<std::string>& folders) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < folders.size(); ++i)
    if (within(file, folders[i] + "/") && (!best || folders[i].size() > folders[*best].size())) best = i;
  return best;
}

// A header and its source are one module; a kernel is one of its own.
std::string module_of(const std::string& file) {
  return file.ends_with(".cuh") ? file : file.substr(0, file.rfind('.'));
}

// Returns the faults of these includes between files of ours: those that climb, and circles inside a
// folder.
std::vector<std::string> wrong_between_folders(const std::vector<Include>& includes,
                                               const std::vector<std::string>& folders) {
  std::vector<std::string> wrong;
  std::map<std::string, std::set<std::string>> edges;  // inside a folder
  for (const Include& include : includes) {
    if (!ours(include.target)) continue;
    const auto from = folder_of(include.file, folders), to = folder_of(include.target, folders);
    if (!from || !to)
      wrong.push_back((from ? include.target : include.file) + " lies in no folder of ARCHITECTURE.md");
    else if (*to > *from)
      wrong.push_back(include.file + ":" + std::to_string(include.line) + " climbs to " + include.target);
    else if (*to == *from && module_of(include.file) != module_of(include.target))
      edges[module_of(include.file)].insert(module_of(include.target));
  }
  std::map<std::string, int> state;  // 1: under way, 2: done
  std::vector<std::string> path;
  const std::function<void(const std::string&)> visit = [&](const std::string& module) {
    if (state[module] == 2) return;
    path.push_back(module);
    if (state[module] == 1) {
      std::string circle;
      for (auto at = std::find(path.begin(), path.end(), module); at != path.end(); ++at)
        circle += (circle.empty() ? "a circle: " : " -> ") + *at;
      wrong.push_back(circle);
    } else {
      state[module] = 1;
      for (const std::string& next : edges[module]) visit(next);
    }
    state[module] = 2;
    path.pop_back();
  };
  std::vector<std::string> modules;
  for (const auto& [module, targets] : edges) modules.push_back(module);
  for (const std::string& module : modules) visit(module);
  return wrong;
}

// ---- Files that are never included ----

// Why `file` must not include `target`; nothing when it may.
std::optional<std::string> broken_never(const std::string& file, const std::string& target) {
  const auto from = [&](std::string_view folder) { return within(file, folder); };
  const auto to = [&](std::string_view folder) { return within(target, folder); };
  if (from("include/") && !standard(target) && !to("include/convtune/"))
    return "the public headers include standard headers and each other alone";
  if (from("src/cpu/") && (to("src/cuda/") || to("cuda") || to("nvrtc") || to("cudnn")))
    return "cpu/ and cuda/ never meet";
  if (from("src/cuda/") && (to("src/cpu/") || to("hwy/") || to("dnnl") || to("oneapi/") || target == "omp.h"))
    return "cpu/ and cuda/ never meet";
  constexpr std::string_view kCpuAlgorithms = "src/cpu/algorithms/";
  const auto algorithm_of = [&](std::string_view path) {
    const std::string_view name = path.substr(kCpuAlgorithms.size());
    return name.find('/') == name.npos ? std::string_view() : name.substr(0, name.find('/'));
  };
  if (from(kCpuAlgorithms) && to(kCpuAlgorithms) && !algorithm_of(target).empty() &&
      algorithm_of(file) != algorithm_of(target))
    return "a CPU algorithm knows no other: what two of them share is src/cpu/tile's";
  if (device_code(file) && !within(target, "src/cuda/"))
    return "device code includes device code and kernels' configs alone";
  if (from("src/tune/") && (to("src/cpu/") || to("src/cuda/")))
    return "the tuner knows devices and algorithms by their contract alone";
  if ((to("src/profile/") || to("src/triton/")) && !from("src/profile/") && !from("src/triton/"))
    return "profiles and Triton files are a library over all the others";
  if (from("src/record/") && (to("src/cpu/") || to("src/cuda/") || to("src/contract/")))
    return "records know no backend";
  if (from("cli/") && !standard(target) && !posix(target) && !to("cli/") && !to("include/convtune/") &&
      !to("CLI/") && !to("fmt/") && !to("nlohmann/"))
    return "the command is a client of the public headers alone";
  if (from("src/c/") && !standard(target) && !to("src/c/") && !to("include/convtune/") && !to("fmt/") &&
      !to("nlohmann/") && target != "cxxabi.h")
    return "the C face is a client of the public headers alone";
  if (from("src/torch/") && !standard(target) && !to("src/torch/") && target != "include/convtune/c.h" &&
      target != "include/convtune/torch.h" && target != "dlfcn.h" && target != "src/base/fork_gate.h")
    return "PyTorch's operator is a client of the C face alone, and needs no header of PyTorch's";
  return std::nullopt;
}

// ---- The tree ----

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

std::vector<Include> all_includes() {
  std::vector<Include> all;
  for (const fs::path& file : source_files())
    for (Include& include : includes_of(file)) all.push_back(std::move(include));
  return all;
}

TEST(Includes, BreakNoNever) {
  const std::vector<Include> all = all_includes();
  EXPECT_GT(all.size(), 100u) << "hardly any #include line was found under " << kRoot;
  for (const Include& include : all)
    if (const auto never = broken_never(include.file, include.target))
      ADD_FAILURE() << include.file << ":" << include.line << " includes " << include.target << ", but "
                    << *never;
}

TEST(Includes, NeitherClimbNorMakeACircle) {
  for (const std::string& wrong : wrong_between_folders(all_includes(), folders())) ADD_FAILURE() << wrong;
}

TEST(Architecture, NamesEveryFolderAndNoOther) {
  const std::vector<std::string> named = folders();
  std::set<std::size_t> used;
  for (const fs::path& path : source_files()) {
    const auto folder = folder_of(from_root(path), named);
    EXPECT_TRUE(folder) << from_root(path) << " lies in no folder that ARCHITECTURE.md names";
    if (folder) used.insert(*folder);
  }
  for (std::size_t i = 0; i < named.size(); ++i) {
    EXPECT_TRUE(used.contains(i)) << "ARCHITECTURE.md names " << named[i] << ", which holds no file";
    EXPECT_EQ(std::count(named.begin(), named.end(), named[i]), 1) << named[i] << " has two lines";
  }
}

// Two headers of one name, of which an include or a message would not say which is meant. Folders of
// algorithms have files of the same names by intent.
std::vector<std::string> headers_of_one_name(const std::vector<std::string>& files) {
  std::map<std::string, std::string> first;
  std::vector<std::string> wrong;
  for (const std::string& file : files) {
    if (file.ends_with(".cpp") || file.find("/algorithms/") != file.npos) continue;
    const auto [known, is_first] = first.emplace(file.substr(file.rfind('/') + 1), file);
    if (!is_first) wrong.push_back(known->second + " and " + file + " have one name");
  }
  return wrong;
}

TEST(Includes, NoTwoHeadersHaveOneName) {
  std::vector<std::string> files;
  for (const fs::path& path : source_files()) files.push_back(from_root(path));
  for (const std::string& wrong : headers_of_one_name(files)) ADD_FAILURE() << wrong;
}

// Several test files are compiled as one: what two of them call alike is two things by the namespaces alone.
// A test that is a program by itself has none of ours.
TEST(TestFiles, AreInNamespacesOfTheirNames) {
  int seen = 0;
  for (const char* folder : {"tests/unit", "tests/gpu"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string name = entry.path().stem().string();
      if (!name.ends_with("_test") || entry.path().extension() != ".cpp") continue;
      std::ifstream in(entry.path());
      bool opens = false, opens_own = false;
      for (std::string line; std::getline(in, line);) {
        opens |= line.starts_with("namespace convtune");
        opens_own |= line.starts_with("namespace convtune::") && line.ends_with("::" + name + " {");
      }
      EXPECT_EQ(opens, opens_own) << entry.path();
      seen += opens_own;
    }
  EXPECT_GT(seen, 50);
}

// Each rule, broken on purpose: the functions above can say no.
TEST(Includes, RulesCanSayNo) {
  const std::vector<std::string> some = {"src/base", "src/plan"};
  EXPECT_EQ(wrong_between_folders({{"src/plan/a.cpp", 1, "src/base/b.h"}}, some).size(), 0u);
  EXPECT_EQ(wrong_between_folders({{"src/base/b.cpp", 7, "src/plan/a.h"}}, some),
            std::vector<std::string>{"src/base/b.cpp:7 climbs to src/plan/a.h"});
  EXPECT_EQ(wrong_between_folders({{"src/base/b.cpp", 7, "src/other/a.h"}}, some),
            std::vector<std::string>{"src/other/a.h lies in no folder of ARCHITECTURE.md"});
  EXPECT_EQ(wrong_between_folders({{"src/base/a.h", 1, "src/base/b.h"},
                                   {"src/base/b.cpp", 1, "src/base/c.h"},
                                   {"src/base/c.h", 1, "src/base/a.h"}},
                                  some),
            std::vector<std::string>{"a circle: src/base/a -> src/base/b -> src/base/c -> src/base/a"});

  EXPECT_EQ(headers_of_one_name({"src/base/a.h", "src/base/a.cpp", "src/cpu/algorithms/x/a.h"}).size(), 0u);
  EXPECT_EQ(headers_of_one_name({"src/base/a.h", "src/plan/a.h"}),
            std::vector<std::string>{"src/base/a.h and src/plan/a.h have one name"});

  const std::pair<const char*, const char*> forbidden[] = {
      {"include/convtune/tensor.h", "cuda.h"},
      {"include/convtune/tensor.h", "nlohmann/json.hpp"},
      {"include/convtune/tensor.h", "src/problem/config_fields.h"},
      {"src/cpu/algorithms/direct/direct.cpp", "src/cuda/device/driver.h"},
      {"src/cpu/algorithms/direct/direct.cpp", "cuda_runtime.h"},
      {"src/cpu/algorithms/amx/amx_geometry.h", "src/cpu/algorithms/direct/direct_geometry.h"},
      {"src/cuda/device/driver.cpp", "src/cpu/backend/cpu_backend.h"},
      {"src/cuda/device/driver.cpp", "hwy/highway.h"},
      {"src/cuda/tile/conv_extents.h", "cstdint"},
      {"src/cuda/algorithms/direct_body_sm90/load.cuh", "src/problem/config_fields.h"},
      {"src/record/database.cpp", "src/contract/backend.h"},
      {"src/record/trials.cpp", "src/cpu/backend/cpu_backend.h"},
      {"src/tune/small_batch.cpp", "src/cpu/base/caches.h"},
      {"src/report/report.cpp", "src/profile/known_metrics.h"},
      {"src/tune/last_stage.cpp", "src/cuda/backend/cuda.h"},
      {"cli/tune.cpp", "src/problem/config_fields.h"},
      {"cli/tune.cpp", "omp.h"},
      {"src/c/c_face.cpp", "src/contract/backend.h"},
      {"src/c/c_face.cpp", "cli/options.h"},
      {"src/c/c_face.cpp", "CLI/CLI.hpp"},
      {"src/torch/table.cpp", "include/convtune/convolution.h"},
      {"src/torch/shim.cpp", "torch/csrc/stable/library.h"},
  };
  for (const auto& [file, target] : forbidden)
    EXPECT_TRUE(broken_never(file, target)) << file << " may include " << target;
  const std::pair<const char*, const char*> allowed[] = {
      {"include/convtune/problem.h", "include/convtune/tensor.h"},
      {"include/convtune/problem.h", "cstdint"},
      {"src/cpu/algorithms/direct/direct.cpp", "hwy/highway.h"},
      {"src/cpu/algorithms/direct/direct.cpp", "src/cpu/algorithms/direct/direct_geometry.h"},
      {"src/cpu/algorithms/direct/direct.cpp", "src/cpu/algorithms/cpu_algorithms.h"},
      {"src/cuda/algorithms/direct_body_sm90/load.cuh", "src/cuda/ptx/wgmma.cuh"},
      {"src/record/database.cpp", "src/base/private_file.h"},
      {"cli/tune.cpp", "CLI/CLI.hpp"},
      {"cli/progress.cpp", "sys/ioctl.h"},
      {"src/c/c_face.cpp", "include/convtune/report.h"},
      {"src/c/c_face.cpp", "nlohmann/json.hpp"},
      {"src/torch/table.h", "include/convtune/c.h"},
  };
  for (const auto& [file, target] : allowed)
    EXPECT_FALSE(broken_never(file, target)) << file << " may not include " << target;
}

}  // namespace
