// The identity of a shared library: what the linker wrote, else size and time.
#include "base/build_id.h"

#include <gtest/gtest.h>
#include <link.h>

#include <filesystem>
#include <fstream>

#include "records_fixture.h"

namespace convtune::build_id_test {
namespace {

namespace fs = std::filesystem;

// The C library, which every distribution links with a build ID.
std::string c_library() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        if (std::string_view(info->dlpi_name).find("libc.so") != std::string_view::npos)
          *static_cast<std::string*>(found) = info->dlpi_name;
        return 0;
      },
      &path);
  return path;
}

TEST(BuildId, IsThatOfTheLinkerAndGoesWithTheFile) {
  const std::string id = build_id(c_library());
  EXPECT_EQ(id.size(), 40u) << id;
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
  const ScratchFolder folder;
  fs::copy_file(c_library(), folder.path() / "copy.so");
  EXPECT_EQ(build_id(folder.path() / "copy.so"), id);
}

TEST(BuildId, IsSizeAndTimeWhereTheLinkerWroteNone) {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "text.so";
  std::ofstream(file) << "no library";
  EXPECT_TRUE(build_id(file).starts_with("10 bytes of ")) << build_id(file);
  std::string cut(64, '\0');
  std::ifstream(c_library(), std::ios::binary).read(cut.data(), 64);
  std::ofstream(file, std::ios::binary) << cut;  // its header alone
  EXPECT_TRUE(build_id(file).starts_with("64 bytes of ")) << build_id(file);
}

TEST(BuildId, IsEmptyWhereThereIsNoFile) {
  const ScratchFolder folder;
  EXPECT_EQ(build_id(folder.path() / "absent.so"), "");
  EXPECT_EQ(build_id(folder.path()), "");
}

}  // namespace
}  // namespace convtune::build_id_test
