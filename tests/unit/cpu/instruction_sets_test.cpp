// The table of instruction sets, and that every row has its kernels.
#include "cpu/tile/instruction_sets.h"

#include <gtest/gtest.h>

#include "cpu/algorithms/implicit_gemm/implicit_gemm_kernels.h"
#include "cpu/algorithms/winograd_filters/winograd_filters_kernels.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/backend/multiply_add.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/tensor_kernels.h"
#include "cpu/tile/winograd/winograd_kernels.h"

namespace convtune::instruction_sets_test {
namespace {

TEST(InstructionSets, EveryCompiledRowHasKernelsOfItsWidthThatFitItsRegisters) {
  int compiled = 0;
  for (const cpu::InstructionSet& set : cpu::instruction_sets()) {
    if (!set.compiled) continue;
    SCOPED_TRACE(set.name);
    const cpu::DirectKernels* direct = cpu::direct_kernels(set.vector_bits);
    const cpu::ImplicitGemmKernels* gemm = cpu::implicit_gemm_kernels(set.vector_bits);
    const cpu::TensorKernels* tensors = cpu::tensor_kernels(set.vector_bits);
    ASSERT_TRUE(direct && gemm && tensors);
    EXPECT_TRUE(cpu::winograd_kernels(set.vector_bits, 2) && cpu::winograd_kernels(set.vector_bits, 4));
    EXPECT_TRUE(cpu::winograd_filters_kernels(set.vector_bits));
    EXPECT_EQ(direct->lanes, set.vector_bits / 32);
    EXPECT_EQ(gemm->lanes, set.vector_bits / 32);
    EXPECT_EQ(tensors->lanes, set.vector_bits / 32);
    EXPECT_EQ(cpu::multiply_add_kernel(set.vector_bits).flops % (2 * direct->lanes), 0);
    int most = 0;
    for (const cpu::TileShape& tile : direct->tiles) {
      EXPECT_TRUE(cpu::fits_registers({tile.rows, tile.vectors}, set.registers));
      most = std::max(most, tile.rows * tile.vectors);
    }
    EXPECT_GE(most, set.registers * 3 / 4);
    ++compiled;
  }
  EXPECT_GE(compiled, 1);
}

TEST(InstructionSets, TheWidestHereRuns) {
  const DeviceInfo& here = cpu::backend().info();
  EXPECT_EQ(here.isa, cpu::widest_instruction_set());
  bool named = here.isa == "scalar";
  for (const cpu::InstructionSet& set : cpu::instruction_sets()) {
    if (set.runs_here()) {
      EXPECT_TRUE(set.compiled) << set.name << " runs here and this build lacks it";
      EXPECT_LE(set.vector_bits, cpu::widest_vector_bits(here)) << set.name;
    }
    named = named || (set.name == here.isa && set.runs_here());
  }
  EXPECT_TRUE(named) << here.isa;
}

TEST(InstructionSets, ADeviceOfNoneHasNoVectors) {
  DeviceInfo info;
  for (const char* isa : {"", "scalar", "sm_90a"}) {
    info.isa = isa;
    EXPECT_EQ(cpu::widest_vector_bits(info), 0) << isa;
  }
}

}  // namespace
}  // namespace convtune::instruction_sets_test
