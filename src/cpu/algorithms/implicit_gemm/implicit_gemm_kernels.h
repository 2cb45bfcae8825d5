// The multiply-adds of the implicit GEMM: compiled once for each instruction set, chosen at run time through
// this table of plain functions.
//
// A word is what one lane multiplies at a time: an f32 element, or two neighbouring bf16 elements.
#pragma once

#include <cstdint>

#include "cpu/tile/register_tile.h"

namespace convtune::cpu {

// sums[i][l] = (sums[i][l] if accumulate, else 0) + sum over t, c of x[pixels[i] + taps[t] + c words] *
// weights[t][c][l]
//   i in [0, pixels of the kernel), l in [0, vectors of the kernel * lanes): output channels,
//   c in [0, words): of a tap, or of a row of taps. Offsets in bytes.
struct MultiplyArgs {
  const void* x;
  const std::int64_t* pixels;
  const std::int64_t* taps;
  std::int64_t tap_count, words;
  bool half;  // of bf16: the last word of every tap is its lower half alone, which is all that is read
  const float* weights;  // [tap_count][words][vectors * lanes]
  float* sums;           // aligned to a vector; row i at sums + i * sums_step
  std::int64_t sums_step;
  bool accumulate;
  // What side_by_side fetches: a line of the next weights a tap, and the next pixels' end, of which pixels[0]
  // and taps are as far.
  const float* next_weights;
  const void* next_x;
};
using MultiplyKernel = void (*)(const MultiplyArgs&);

constexpr int kMaxGemmPixels = 14, kMaxGemmVectors = 4;
// Register tiles of 1, 2, ... pixels.
using MultiplyKernels = RegisterTiles<MultiplyKernel>;

struct ImplicitGemmKernels {
  int lanes;  // floats in a vector
  MultiplyKernels f32;
  MultiplyKernels bf16_pairs;    // none where the instruction set multiplies no pairs
  MultiplyKernels side_by_side;  // of f32 in one pass, one word a tap, where pixels[i] = pixels[0] + i words
};

// Null where this build has no code for that width (cpu/tile/instruction_sets.h).
// Whether the processor can run it is the caller's to know: DeviceInfo::isa, multiplies_bf16().
const ImplicitGemmKernels* implicit_gemm_kernels(int vector_bits);

}  // namespace convtune::cpu
