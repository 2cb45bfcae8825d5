// The cache under everything that can happen to files: what comes out is what went in, or nothing.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "base/private_file.h"
#include "base/random_bits.h"
#include "base/sha256.h"
#include "cuda/compile/cubin_cache_folder.h"

namespace convtune::cuda::cubin_cache_test {
namespace {

namespace fs = std::filesystem;

std::string key_of(std::uint64_t i) {
  return sha256("key " + std::to_string(i));
}
// Contents have many sizes and every byte in them, and differ from key to key.
std::string content_of(std::uint64_t i) {
  std::string content(1 + random_bits(i, 0) % 20'000, '\0');
  for (std::size_t at = 0; at < content.size(); ++at) content[at] = static_cast<char>(random_bits(i, at + 1));
  return content;
}

class CubinCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "convtune_cubins_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    take_warnings();
  }
  void TearDown() override { fs::remove_all(root_); }

  CubinCache cache() const { return CubinCache(root_ / "cache"); }
  fs::path file_of(std::uint64_t i) const { return root_ / "cache" / (key_of(i) + ".cubin"); }
  void rewrite(const fs::path& file, const std::string& text) const {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
  }
  std::string text_of(const fs::path& file) const {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  fs::path root_;
};

TEST_F(CubinCacheTest, GivesBackWhatWasStored) {
  EXPECT_FALSE(cache().find(key_of(0)));
  EXPECT_FALSE(fs::exists(root_ / "cache")) << "looking must not create";
  for (std::uint64_t i = 0; i < 20; ++i) cache().store(key_of(i), content_of(i));
  cache().store(key_of(20), "");
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(cache().find(key_of(i)), content_of(i));
  EXPECT_EQ(cache().find(key_of(20)), "");
  cache().store(key_of(3), "other");
  EXPECT_EQ(cache().find(key_of(3)), "other");
  EXPECT_FALSE(cache().find(key_of(99)));
  EXPECT_TRUE(take_warnings().empty());
  EXPECT_EQ(fs::status(root_ / "cache").permissions(), fs::perms::owner_all);
}

TEST_F(CubinCacheTest, EveryTruncationIsAMiss) {
  cache().store(key_of(1), "the code of a kernel");
  const std::string whole = text_of(file_of(1));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    rewrite(file_of(1), whole.substr(0, length));
    EXPECT_FALSE(cache().find(key_of(1))) << length;
  }
  rewrite(file_of(1), whole);
  EXPECT_TRUE(cache().find(key_of(1)));
  EXPECT_EQ(take_warnings().size(), 1u) << "a file is warned of once";
}

TEST_F(CubinCacheTest, EveryFlippedByteIsAMiss) {
  cache().store(key_of(1), "the code of a kernel");
  const std::string whole = text_of(file_of(1));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    rewrite(file_of(1), damaged);
    EXPECT_FALSE(cache().find(key_of(1))) << at;
  }
  rewrite(file_of(1), whole + "x");
  EXPECT_FALSE(cache().find(key_of(1)));
  cache().store(key_of(1), "new");
  EXPECT_EQ(cache().find(key_of(1)), "new") << "a damaged file must be replaced";
}

TEST_F(CubinCacheTest, AnEntryOfAnotherKeyIsAMiss) {
  cache().store(key_of(1), "one");
  fs::copy_file(file_of(1), file_of(2));
  EXPECT_FALSE(cache().find(key_of(2)));
  EXPECT_EQ(take_warnings().size(), 1u);
}

TEST_F(CubinCacheTest, FilesThatOthersMayHaveWrittenAreNotUsed) {
  cache().store(key_of(1), "one");
  fs::permissions(file_of(1), fs::perms::group_write, fs::perm_options::add);
  EXPECT_FALSE(cache().find(key_of(1)));
  fs::remove(file_of(1));
  cache().store(key_of(2), "two");
  fs::create_symlink(file_of(2), file_of(1));
  EXPECT_FALSE(cache().find(key_of(1)));
  fs::permissions(root_ / "cache", fs::perms::all);
  EXPECT_FALSE(cache().find(key_of(2)));
  cache().store(key_of(2), "three");
  EXPECT_FALSE(cache().find(key_of(2)));
  EXPECT_GE(take_warnings().size(), 1u);
}

TEST_F(CubinCacheTest, AFolderThatCannotBeWrittenIsWarnedOfOnce) {
  rewrite(root_ / "cache", "a file stands where the folder would be");
  for (std::uint64_t i = 0; i < 3; ++i) cache().store(key_of(i), "one");
  EXPECT_FALSE(cache().find(key_of(0)));
  EXPECT_EQ(take_warnings().size(), 1u);
  const CubinCache nowhere{fs::path()};
  nowhere.store(key_of(1), "one");
  EXPECT_FALSE(nowhere.find(key_of(1)));
  EXPECT_TRUE(take_warnings().empty());
}

TEST_F(CubinCacheTest, AReadOnlyFolderStillAnswers) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write to a read-only folder";
  cache().store(key_of(1), "one");
  fs::permissions(root_ / "cache", fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(cache().find(key_of(1)), "one");
  cache().store(key_of(2), "two");
  EXPECT_FALSE(cache().find(key_of(2)));
  EXPECT_EQ(take_warnings().size(), 1u);
  fs::permissions(root_ / "cache", fs::perms::owner_all);
}

TEST_F(CubinCacheTest, TheEnvironmentNamesTheFolder) {
  ::setenv("CONVTUNE_CACHE_DIR", "/a/b", 1);
  EXPECT_EQ(CubinCache::default_folder(), "/a/b");
  ::unsetenv("CONVTUNE_CACHE_DIR");
  ::setenv("XDG_CACHE_HOME", "/c", 1);
  EXPECT_EQ(CubinCache::default_folder(), "/c/convtune");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_TRUE(CubinCache::default_folder().is_absolute());
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(CubinCache::default_folder(), "/home/someone/.cache/convtune");
}

TEST_F(CubinCacheTest, WhatWasUsedLongestAgoGoesFirst) {
  constexpr std::int64_t kLimit = 200'000;
  const CubinCache small(root_ / "cache", kLimit);
  const std::string content(10'000, 'x');
  small.store(key_of(0), content);  // in use all the time
  for (std::uint64_t i = 1; i < 100; ++i) {
    small.store(key_of(i), content);
    for (const auto& entry : fs::directory_iterator(root_ / "cache"))  // two hours go by
      fs::last_write_time(entry.path(), entry.last_write_time() - std::chrono::hours(2));
    ASSERT_EQ(small.find(key_of(0)), content) << i;
    ASSERT_LE(small.contents().bytes, kLimit);
  }
  EXPECT_GE(small.contents().bytes, kLimit * 8 / 10) << "no more goes than has to";
  for (std::uint64_t i = 90; i < 100; ++i) EXPECT_EQ(small.find(key_of(i)), content);
  EXPECT_FALSE(small.find(key_of(1)));
  EXPECT_TRUE(take_warnings().empty());
}

TEST_F(CubinCacheTest, StaysNearItsLimitWithoutLookingEachTime) {
  constexpr std::int64_t kLimit = 50'000;
  const std::string content(100, 'x');  // about one store in three looks
  std::int64_t most = 0;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const CubinCache small(root_ / "cache", kLimit);
    small.store(key_of(i), content);
    if (i % 10 == 0) most = std::max(most, small.contents().bytes);
  }
  EXPECT_GE(most, kLimit);
  EXPECT_LE(most, kLimit * 12 / 10);
}

TEST_F(CubinCacheTest, ContentsAndClean) {
  EXPECT_EQ(cache().contents().kernels, 0);
  EXPECT_EQ(cache().clean().kernels, 0);
  EXPECT_FALSE(fs::exists(root_ / "cache")) << "looking must not create";
  for (std::uint64_t i = 0; i < 5; ++i) cache().store(key_of(i), "code");
  rewrite(root_ / "cache" / "notes.cubin", "mine");
  const auto kept = cache().contents();
  EXPECT_EQ(kept.folder, root_ / "cache");
  EXPECT_EQ(kept.kernels, 5);
  EXPECT_EQ(kept.bytes, static_cast<std::int64_t>(5 * fs::file_size(file_of(0))));
  const auto deleted = cache().clean();
  EXPECT_EQ(deleted.kernels, 5);
  EXPECT_EQ(deleted.bytes, kept.bytes);
  EXPECT_EQ(cache().contents().kernels, 0);
  EXPECT_TRUE(fs::exists(root_ / "cache" / "notes.cubin"));
  EXPECT_FALSE(cache().find(key_of(1)));
  EXPECT_TRUE(take_warnings().empty());
}

// Processes that store, find, damage, delete, push out and are killed, all over the same keys.
TEST_F(CubinCacheTest, ProcessesNeverReadAWrongEntry) {
  constexpr int kProcesses = 8;
  constexpr std::uint64_t kKeys = 12, kSteps = 150;
  const CubinCache small(root_ / "cache", 60'000);
  const auto work = [&](std::uint64_t process) {
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const std::uint64_t bits = random_bits(process, step), i = bits % kKeys;
      switch (bits >> 32 & 7) {
        case 0:
          if (::truncate(file_of(i).c_str(), static_cast<off_t>(bits >> 40 & 4095)) != 0) break;
          break;
        case 1:
        case 2:
        case 3:
          small.store(key_of(i), content_of(i));
          break;
        case 4:
          if (step % 16 == 0) small.clean();
          break;
        default:
          if (const auto found = small.find(key_of(i)); found && *found != content_of(i)) ::_exit(1);
      }
      if (process % 2 == 1 && step == kSteps / 2) ::raise(SIGKILL);
    }
    ::_exit(0);
  };
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) work(static_cast<std::uint64_t>(process));
    children.push_back(child);
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    int status = 0;
    ASSERT_EQ(::waitpid(children[i], &status, 0), children[i]);
    if (i % 2 == 1)
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    else
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "a wrong entry was read";
  }
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const auto found = cache().find(key_of(i));
    EXPECT_TRUE(!found || *found == content_of(i)) << i;
  }
}

}  // namespace
}  // namespace convtune::cuda::cubin_cache_test
