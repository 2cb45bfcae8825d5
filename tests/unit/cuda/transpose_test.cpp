// The transposing kernel without a GPU: every tile that a matrix can lead to is compiled for every
// architecture, spills nothing and takes the shared memory that its config says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "cuda/compile/compiler.h"
#include "cuda/launch/transpose_tile.h"

namespace convtune {
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

TEST(Transpose, CompilesForEveryArchitecture) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << "NVRTC: " << cuda::describe_nvrtc();
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"}) {
    cuda::CompileJob job = cuda::kernel_job("cuda/launch/transpose_tile.cuh", "", arch);
    job.kernels.clear();
    std::vector<TransposeConfig> configs;
    for (const auto& [rows, cols] : {std::pair{3, 1000}, {31, 1000}, {1000, 3}, {1000, 1000}}) {
      configs.push_back(TransposeConfig::for_matrix(rows, cols));
      job.kernels.push_back(fmt::format(
          "convtune::transpose<convtune::TransposeConfig{{.tile_rows={},.tile_cols={}}},{}>",
          configs.back().tile_rows, configs.back().tile_cols, rows < cols ? "unsigned short" : "unsigned"));
    }
    const cuda::CompiledModule module = cuda::compile(job, false);
    for (std::size_t i = 0; i < configs.size(); ++i) {
      const cuda::KernelResources& resources = module.kernels[i];
      EXPECT_EQ(resources.spill_bytes, 0) << arch << " " << resources.kernel;
      EXPECT_LE(resources.registers, 64) << arch << " " << resources.kernel;
      EXPECT_EQ(resources.static_smem_bytes, configs[i].tile_rows * configs[i].pitch() * 4)
          << arch << " " << resources.kernel;
    }
  }
}

}  // namespace
}  // namespace convtune
