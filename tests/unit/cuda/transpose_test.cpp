// The transposing kernels without a GPU: every tile that a matrix can lead to is compiled for every
// architecture, spills nothing and takes the shared memory that its config says; and no lanes meet at a bank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "cuda/compile/compiler.h"
#include "cuda/launch/transpose_tile.h"
#include "cuda/launch/transposition.h"

namespace convtune::transpose_test {
namespace {

// The most threads of one warp that read from one bank of shared memory, writing the tile out.
int busiest_bank(const TransposeConfig& config) {
  int most = 0;
  for (int warp = 0; warp < config.tile_rows * config.tile_cols / 32; ++warp) {
    std::array<int, 32> readers{};
    for (int i = warp * 32; i < (warp + 1) * 32; ++i)
      ++readers[static_cast<std::size_t>((i % config.tile_rows * config.pitch() + i / config.tile_rows) %
                                         32)];
    most = std::max(most, *std::max_element(readers.begin(), readers.end()));
  }
  return most;
}

TEST(Transpose, TilesFitTheMatrix) {
  for (long long rows = 2; rows < 100; ++rows) {
    for (const long long cols : {2LL, 3LL, 31LL, 32LL, 33LL, 50176LL}) {
      if (!TransposeConfig::is_narrow(rows, cols)) continue;
      const TransposeConfig config = TransposeConfig::for_matrix(rows, cols);
      EXPECT_LE(config.tile_rows * config.tile_cols, 2048) << rows << " by " << cols;
      EXPECT_GT(config.tile_rows * config.tile_cols, 1024) << rows << " by " << cols;
      EXPECT_GE(config.pitch(), config.tile_cols) << rows << " by " << cols;
      EXPECT_LE(busiest_bank(config), 2) << rows << " by " << cols;
    }
  }
  EXPECT_EQ(TransposeConfig::for_matrix(3, 50176).tile_rows, 3);
  EXPECT_EQ(TransposeConfig::for_matrix(3025, 3).tile_cols, 3);
}

// Eight lanes have the vectors of a row, four the words of a column: a warp writes the same element of each
// vector at once; two floats at a time meet here and there. Reading, a quarter of a warp has the eight pieces
// of a column, or of two.
template <int element_bytes, int cols, int words = 32>
void expect_banks_of_their_own() {
  using T = WideTranspose<element_bytes, cols, words>;
  std::set<int> all;
  for (int col = 0; col < T::kCols; ++col)
    for (int word = 0; word < T::kWords; ++word) all.insert(T::at(col, word));
  EXPECT_EQ(all.size(), static_cast<std::size_t>(T::kCols * T::kWords)) << "a place twice";
  EXPECT_EQ(*all.rbegin(), T::kCols * T::kWords - 1);
  for (const int count : {T::kOfVector, T::kOfVector / 2})
    for (int vector = 0; vector < T::kCols / count; vector += 8)
      for (int word = 0; word < T::kWords; word += 4)
        for (int element = 0; element < count; ++element) {
          std::set<int> banks;
          for (int lane = 0; lane < 32; ++lane)
            banks.insert(T::at((vector + lane % 8) * count + element, word + lane / 8) % 32);
          EXPECT_GE(banks.size(), count > 2 ? 32u : 24u) << vector << " " << word << " " << element;
        }
  for (int col = 0; col < T::kCols; col += T::kTogether) {
    std::set<int> pieces;
    for (int piece = 0; piece < 8; ++piece) {
      const int of = col + piece / (T::kWords / 4), first = 4 * piece % T::kWords;
      pieces.insert(T::at(of, first) / 4 % 8);
      for (int word = 0; word < 4; ++word)
        EXPECT_EQ(T::at(of, first + word), T::at(of, first) + word) << "no piece of 16 bytes";
    }
    EXPECT_EQ(pieces.size(), 8u) << col;
  }
}

TEST(Transpose, WideTilesMeetAtNoBank) {
  expect_banks_of_their_own<2, 64>();
  expect_banks_of_their_own<2, 128>();
  expect_banks_of_their_own<4, 64>();
  expect_banks_of_their_own<2, 128, 16>();
  expect_banks_of_their_own<2, 256, 16>();
}

TEST(Transpose, CountsTilesAndBlocks) {
  const cuda::Transposition halves{.batch = 64, .rows = 128, .cols = 784, .element_bytes = 2};
  EXPECT_EQ(halves.row_tiles(), 2);
  EXPECT_EQ(halves.col_tiles(), 7);
  EXPECT_EQ(halves.blocks(), 64 * 2 * 7);
  EXPECT_EQ(halves.bytes(), 64u * 128 * 784 * 2);
  EXPECT_EQ(halves.kernel(), "convtune::transpose_wide<unsigned short,128,32,true>");
  const cuda::Transposition narrower{.batch = 2, .rows = 96, .cols = 784, .element_bytes = 2};
  EXPECT_EQ(narrower.row_tiles(), 3);
  EXPECT_EQ(narrower.col_tiles(), 4);
  EXPECT_EQ(narrower.kernel(), "convtune::transpose_wide<unsigned short,256,16,true>");
  const cuda::Transposition back{.batch = 2, .rows = 784, .cols = 96, .element_bytes = 2};
  EXPECT_EQ(back.kernel(), "convtune::transpose_wide<unsigned short,128,32,false>");
  const cuda::Transposition few_pixels{.batch = 64, .rows = 196, .cols = 256, .element_bytes = 2};
  EXPECT_EQ(few_pixels.kernel(), "convtune::transpose_wide<unsigned short,128,32,false>");
  const cuda::Transposition floats{.batch = 2, .rows = 33, .cols = 65, .element_bytes = 4};
  EXPECT_EQ(floats.blocks(), 2 * 2 * 2);
  EXPECT_EQ(floats.kernel(), "convtune::transpose_wide<unsigned,64,32,false>");
  const cuda::Transposition image{.batch = 2, .rows = 3, .cols = 50176, .element_bytes = 2};
  EXPECT_NE(image.kernel().find("tile_rows=3,"), std::string::npos) << image.kernel();
  EXPECT_TRUE((cuda::Transposition{.rows = 1, .cols = 9}).is_copy());
  EXPECT_FALSE(image.is_copy());
}

TEST(Transpose, CompilesForEveryArchitecture) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << "NVRTC: " << cuda::describe_nvrtc();
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"}) {
    cuda::CompileJob job = cuda::Transposition{.rows = 2, .cols = 2}.job(arch);
    job.kernels.clear();
    std::vector<std::int64_t> smem_bytes;
    for (const std::int64_t bytes : {2, 4})
      for (const auto& [rows, cols] :
           {std::pair{3, 1000}, {31, 1000}, {1000, 3}, {1000, 50}, {1000, 1000}, {96, 1000}}) {
        job.kernels.push_back(
            cuda::Transposition{.rows = rows, .cols = cols, .element_bytes = bytes}.kernel());
        const TransposeConfig config = TransposeConfig::for_matrix(rows, cols);
        smem_bytes.push_back(TransposeConfig::is_narrow(rows, cols) ? config.tile_rows * config.pitch() * 4
                             : bytes == 2 && cols == 1000           ? 16384
                                                                    : 8192);
      }
    const cuda::CompiledModule module = cuda::compile(job, false);
    for (std::size_t i = 0; i < smem_bytes.size(); ++i) {
      const cuda::KernelResources& resources = module.kernels[i];
      EXPECT_EQ(resources.spill_bytes, 0) << arch << " " << resources.kernel;
      EXPECT_LE(resources.registers, 64) << arch << " " << resources.kernel;
      EXPECT_EQ(resources.static_smem_bytes, smem_bytes[i]) << arch << " " << resources.kernel;
    }
  }
}

}  // namespace
}  // namespace convtune::transpose_test
